// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/address.h"

namespace verbena::conformance {

/// Where a subject stands: the wire to its NIC, and a line to the program that uses that. There is
/// one with a simulated network (`sim_bench.h`) and one with sockets (`live_bench.h`).
class Bench {
 public:
  Bench() = default;
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  virtual ~Bench() = default;

  [[nodiscard]] virtual Time now() = 0;
  virtual void sleep(Duration duration) = 0;
  /// Of the tester's end.
  [[nodiscard]] virtual wire::Address address() const = 0;

  /// Sends what stands in a UDP payload, ICRC included, which is made right or spoilt here, in an
  /// IP header with that traffic class.
  virtual void send(Bytes datagram, bool right_icrc, std::uint8_t traffic_class) = 0;
  /// The next datagram from the subject with a right ICRC; nothing when none has come by `until`.
  [[nodiscard]] virtual std::optional<std::vector<std::byte>> receive(Time until) = 0;

  /// Lets the subject obey a line (`subject.h`) and returns its answer; an error when it cannot be
  /// asked.
  [[nodiscard]] virtual Result<std::string> ask(std::string_view line) = 0;

  /// How long nothing must come before nothing will.
  [[nodiscard]] virtual Duration silence() const = 0;
  /// How long to wait for what must come.
  [[nodiscard]] virtual Duration patience() const = 0;
};

}  // namespace verbena::conformance
