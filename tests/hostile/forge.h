// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/random.h"
#include "wire/address.h"
#include "wire/packet.h"

namespace verbena::hostile {

/// What a hostile peer knows of its victim: all that a good one is told.
struct Target {
  wire::Path path{};  ///< of its packets
  std::uint32_t qp_number = 0;
  std::uint32_t psn = 0;      ///< that the victim expects first
  std::uint32_t own_psn = 0;  ///< of the victim's own first request; it never makes one
  std::uint64_t address = 0;  ///< of the region that the peer may reach
  std::uint32_t length = 0;
  std::uint32_t rkey = 0;
  std::uint64_t read_only_address = 0;  ///< of a region as long that it may only read
  std::uint32_t read_only_rkey = 0;
  std::uint32_t datagram_qp = 0;
  std::uint32_t qkey = 0;
  std::uint32_t other_qp = 0;      ///< of the victim, connected to somebody else
  std::uint16_t service_port = 0;  ///< where it listens for connections, with rdma_cm

  static constexpr std::uint32_t kMtu = 1024;
};

/// Bytes of a datagram, BTH to ICRC.
struct Datagram {
  static constexpr std::size_t kMost = 4096 + 128;
  std::array<std::byte, kMost> bytes;
  std::size_t size = 0;
  bool right_icrc = true;  ///< who sends it puts the right ICRC into the last four bytes
};

/// Makes packets as a good peer would, and bytes of any kind.
class Forge {
 public:
  Forge(const Target& target, std::uint64_t seed) : target_(target), random_(seed) {}

  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] Random& random() { return random_; }

  /// A packet to the target's queue pair that would be right, but perhaps for its PSN: a request to
  /// the start of the region, a positive acknowledgement, an answer of zeros. `payload` is at most
  /// kMost.
  [[nodiscard]] wire::Packet packet(wire::Opcode opcode, std::uint32_t psn,
                                    std::size_t payload = 0) const;
  /// Encodes it.
  [[nodiscard]] static Datagram datagram(const wire::Packet& packet);
  /// Random bytes.
  [[nodiscard]] Datagram garbage(std::size_t size);

  static constexpr std::size_t kMost = 4096;

 private:
  Target target_;
  Random random_;
};

}  // namespace verbena::hostile
