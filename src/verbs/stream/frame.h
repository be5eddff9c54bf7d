// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "verbena/memory_region.h"
#include "verbena/stream_options.h"

/// What the ends of a stream say to each other beside its data: SENDs with the immediate
/// `kFrameImmediate`. All numbers are big-endian.
///
///   hello   kind 1, transport, version (2), magic (4), receives (4), buffer size (4), ring (20)
///   credit  kind 2, 7 zeros, messages released (8), bytes of the ring released (8)
///   fin     kind 3, 7 zeros: no more data
///   bye     kind 4, 7 zeros: the peer's fin has arrived
///   leave   kind 5, 7 zeros, behind the fin: nothing is read any more, nor answered
///
/// Numbers of credit are totals since the beginning. Data are SENDs, or RDMA WRITEs with immediate
/// into a ring. Their immediate, with which no frame can be mistaken:
///
///   packets before (8)   padding (8)   the low bits of the messages released (16)
///
/// What a software NIC sends at once are packets of one length, of which the last may be shorter.
/// SENDs have no immediate where nothing new is to be said: all packets of a message may have one
/// length then, also together with other messages. A WRITE cannot do without. So a message into a
/// ring may be two requests: a WRITE of so many packets, and one with immediate, of one packet that
/// has kOfImmediate bytes of data less than each of those. Where it is one, padding of kPadding
/// bytes makes its last packet a short one. Padding is behind at least kPaddedFrom bytes of data
/// and takes its part of the ring: no two messages are for the same bytes, in whatever order they
/// arrive.
namespace verbena::verbs::streams {

inline constexpr std::size_t kMaxFrame = 64;  ///< what a receive has room for at least
inline constexpr std::uint32_t kMagic = 0x56425354;
inline constexpr std::uint16_t kVersion = 3;
inline constexpr std::uint32_t kFrameImmediate = 1 << 16;
inline constexpr std::uint32_t kOfImmediate = 4;
inline constexpr std::uint32_t kPadding = 4;
inline constexpr std::uint32_t kMostPadding = 255;
inline constexpr std::uint32_t kMostBefore = 255;  ///< packets
inline constexpr std::uint32_t kPaddedFrom = 16 << 10;

/// What the immediate of data says.
struct DataImmediate {
  std::uint8_t before = 0;   ///< packets
  std::uint8_t padding = 0;  ///< bytes; with no packets before 0 or kPadding
  std::uint16_t released = 0;

  [[nodiscard]] constexpr std::uint32_t value() const {
    return std::uint32_t{before} << 24 | std::uint32_t{padding} << 16 | released;
  }
  /// Bytes of a message, padding included, whose WRITE with immediate has `length`.
  [[nodiscard]] constexpr std::uint64_t bytes(std::uint32_t length) const {
    return before * (std::uint64_t{length} + kOfImmediate) + length;
  }
  friend bool operator==(const DataImmediate&, const DataImmediate&) noexcept = default;
};
/// `protocol_error` for one with other padding.
[[nodiscard]] Result<DataImmediate> parse_immediate(std::uint32_t value);

/// The first frame: what its sender receives into.
struct Hello {
  stream_transport transport = stream_transport::messages;
  std::uint32_t receives = 0;
  std::uint32_t buffer_size = 0;
  remote_region ring;
  friend bool operator==(const Hello&, const Hello&) noexcept = default;
};
struct Credit {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Credit&, const Credit&) noexcept = default;
};
struct Fin {
  friend bool operator==(const Fin&, const Fin&) noexcept = default;
};
struct Bye {
  friend bool operator==(const Bye&, const Bye&) noexcept = default;
};
struct Leave {
  friend bool operator==(const Leave&, const Leave&) noexcept = default;
};
using Frame = std::variant<Hello, Credit, Fin, Bye, Leave>;

/// How many bytes of `to` it has filled.
std::size_t write_frame(const Frame& frame, std::span<std::byte, kMaxFrame> to);
/// `protocol_error` for whatever an end that follows the rules does not send.
[[nodiscard]] Result<Frame> parse_frame(std::span<const std::byte> from);

[[nodiscard]] std::unexpected<Error> protocol_error(std::string what);

}  // namespace verbena::verbs::streams
