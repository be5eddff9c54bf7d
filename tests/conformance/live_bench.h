// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sys.h"
#include "conformance/bench.h"
#include "link/icrc_check.h"
#include "link/udp.h"

namespace verbena::conformance {

/// A subject somewhere else: RoCEv2 packets over a UDP socket, and a TCP connection to
/// `verbena-conform-subject`, which runs on any device.
///
/// What comes over either is not believed: packets are parsed with care, answers are short lines.
class LiveBench final : public Bench {
 public:
  struct Options {
    std::string host{};  ///< of the subject, by name or number
    std::uint16_t port = kPort;
    /// The tester's end of the wire: an address of this machine at which no NIC is. Nothing: the
    /// one that the TCP connection has, or beside the subject's on loopback.
    std::optional<wire::Address> from{};
    Duration silence = std::chrono::milliseconds(100);
  };
  static constexpr std::uint16_t kPort = 47911;

  /// An error says what to do.
  [[nodiscard]] static Result<std::unique_ptr<LiveBench>> connect(const Options& options);

  /// "device=rxe0 gid=…", as the subject says.
  [[nodiscard]] const std::string& subject() const { return subject_; }

  [[nodiscard]] Time now() override;
  void sleep(Duration duration) override;
  [[nodiscard]] wire::Address address() const override { return path_.source; }
  void send(Bytes datagram, bool right_icrc, std::uint8_t traffic_class) override;
  [[nodiscard]] std::optional<std::vector<std::byte>> receive(Time until) override;
  [[nodiscard]] Result<std::string> ask(std::string_view line) override;
  [[nodiscard]] Duration silence() const override { return silence_; }
  [[nodiscard]] Duration patience() const override { return std::chrono::seconds(5); }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using Stream = std::unique_ptr<std::FILE, Closer>;

  LiveBench(Stream control, Duration silence) : control_(std::move(control)), silence_(silence) {}
  [[nodiscard]] Result<void> open_wire(const Options& options);

  Stream control_;
  std::string subject_{};
  sys::OwnedFd socket_{};
  std::unique_ptr<link::UdpLink> link_{};
  link::IcrcCheck icrc_{link::IcrcCheck::Mode::kSolve};
  wire::Path path_{};  ///< of the tester's packets
  Duration silence_;
};

}  // namespace verbena::conformance
