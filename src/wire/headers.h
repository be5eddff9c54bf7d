// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "wire/opcode.h"

/// The headers of RoCEv2 as value types. Each has `kSize`, a `parse` from at least kSize bytes (the
/// caller checked) and an `encode` to at least kSize bytes; encode after parse gives the same
/// bytes, reserved bits included; parse after encode gives the same value when each field is within
/// its width (encode keeps the low bits of one that is not).
namespace verbena::wire {

namespace detail {
[[nodiscard]] constexpr std::uint8_t bits(std::byte from, unsigned lowest, unsigned width) {
  return static_cast<std::uint8_t>((std::to_integer<unsigned>(from) >> lowest) &
                                   ((1U << width) - 1U));
}
}  // namespace detail

/// Numbers of the IBA: 24 bits wide.
inline constexpr std::uint32_t kMask24 = 0xFFFFFF;
/// The destination of what is sent to a multicast group; no queue pair has the number.
inline constexpr std::uint32_t kMulticastQp = 0xFFFFFF;
inline constexpr std::uint16_t kRoceUdpPort = 4791;  ///< IANA, Annex A17
inline constexpr std::size_t kIcrcSize = 4;

/// Base Transport Header.
struct Bth {
  static constexpr std::size_t kSize = 12;
  /// Of the last word: whether an acknowledgement is asked for, seven reserved bits, the PSN.
  static constexpr std::size_t kNumberedOffset = 8;
  Opcode opcode{};
  bool solicited = false;
  bool migration = true;  ///< MigReq: set on every packet of a queue pair that is not migrating
  std::uint8_t pad_count = 0;
  std::uint8_t version = 0;
  std::uint16_t pkey = 0xFFFF;
  bool fecn = false;
  bool becn = false;
  std::uint8_t reserved6 = 0;
  std::uint32_t destination_qp = 0;
  bool ack_request = false;
  std::uint8_t reserved7 = 0;
  std::uint32_t psn = 0;

  [[nodiscard]] static Bth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const Bth&) const = default;
};

/// RDMA Extended Transport Header.
struct Reth {
  static constexpr std::size_t kSize = 16;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t dma_length = 0;

  [[nodiscard]] static Reth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const Reth&) const = default;
};

/// FLUSH Extended Transport Header (Annex A19, as Linux's rxe lays it out): how far what was placed
/// before shall get, and of which memory.
struct Feth {
  static constexpr std::size_t kSize = 4;
  // Bits of the placement type.
  static constexpr std::uint8_t kGlobalVisibility = 1;
  static constexpr std::uint8_t kPersistence = 2;
  // Selectivity levels.
  static constexpr std::uint8_t kRange = 0;   ///< what the RETH names
  static constexpr std::uint8_t kRegion = 1;  ///< all of what its key names
  std::uint32_t reserved = 0;                 ///< 26 bits
  std::uint8_t selectivity = kRange;          ///< 2 bits
  std::uint8_t placement = 0;                 ///< 4 bits

  [[nodiscard]] static Feth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const Feth&) const = default;
};

/// ACK Extended Transport Header.
struct Aeth {
  static constexpr std::size_t kSize = 4;
  enum class Kind : std::uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };
  static constexpr std::uint8_t kNoCredits = 31;
  std::uint8_t reserved = 0;  ///< the top bit of the syndrome
  Kind kind = Kind::kAck;
  std::uint8_t value = kNoCredits;  ///< 5 bits: credit count, RNR timer code or NAK code
  std::uint32_t msn = 0;

  [[nodiscard]] static Aeth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const Aeth&) const = default;
};

/// NAK codes (AETH syndrome 11).
enum class NakCode : std::uint8_t {
  kSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
};

/// Atomic Extended Transport Header.
struct AtomicEth {
  static constexpr std::size_t kSize = 28;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;

  [[nodiscard]] static AtomicEth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const AtomicEth&) const = default;
};

/// Atomic Acknowledge Extended Transport Header: the value before the operation.
struct AtomicAckEth {
  static constexpr std::size_t kSize = 8;
  std::uint64_t original = 0;

  [[nodiscard]] static AtomicAckEth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const AtomicAckEth&) const = default;
};

/// Datagram Extended Transport Header.
struct Deth {
  static constexpr std::size_t kSize = 8;
  std::uint32_t qkey = 0;
  std::uint8_t reserved = 0;
  std::uint32_t source_qp = 0;

  [[nodiscard]] static Deth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const Deth&) const = default;
};

/// Immediate data: opaque to the transport, kept in network order as it came.
struct ImmDt {
  static constexpr std::size_t kSize = 4;
  std::uint32_t value = 0;  ///< host order of the four big-endian bytes on the wire

  [[nodiscard]] static ImmDt parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const ImmDt&) const = default;
};

/// Invalidate Extended Transport Header.
struct Ieth {
  static constexpr std::size_t kSize = 4;
  std::uint32_t rkey = 0;

  [[nodiscard]] static Ieth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const Ieth&) const = default;
};

/// XRC Extended Transport Header.
struct XrcEth {
  static constexpr std::size_t kSize = 4;
  std::uint8_t reserved = 0;
  std::uint32_t srq_number = 0;

  [[nodiscard]] static XrcEth parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const XrcEth&) const = default;
};

/// Congestion Notification Packet: 16 reserved bytes behind the BTH (CA17-44).
struct Cnp {
  static constexpr std::size_t kSize = 16;
  std::array<std::byte, kSize> reserved{};

  [[nodiscard]] static Cnp parse(const std::byte* from);
  void encode(std::byte* to) const;
  bool operator==(const Cnp&) const = default;
};

/// The largest BTH and extension headers of any packet: XRC with an atomic.
inline constexpr std::size_t kMaxHeaderSize = Bth::kSize + XrcEth::kSize + AtomicEth::kSize;

/// Global Routing Header as a UD receiver sees it in front of its data. For IPv4 the IP header
/// stands in bytes 20..39 and the rest is undefined (A17.4.5.2); ours is zero.
struct Grh {
  static constexpr std::size_t kSize = 40;
  std::array<std::byte, kSize> bytes{};
};

// The definitions stand here because every packet in and out passes through several of them.

inline Bth Bth::parse(const std::byte* from) {
  const auto first = load_be<std::uint32_t>(from);
  const auto second = load_be<std::uint32_t>(from + 4);
  const auto third = load_be<std::uint32_t>(from + 8);
  return Bth{
      .opcode = static_cast<Opcode>(first >> 24),
      .solicited = (first >> 23 & 1U) != 0,
      .migration = (first >> 22 & 1U) != 0,
      .pad_count = static_cast<std::uint8_t>(first >> 20 & 3U),
      .version = static_cast<std::uint8_t>(first >> 16 & 0xFU),
      .pkey = static_cast<std::uint16_t>(first),
      .fecn = (second >> 31) != 0,
      .becn = (second >> 30 & 1U) != 0,
      .reserved6 = static_cast<std::uint8_t>(second >> 24 & 0x3FU),
      .destination_qp = second & kMask24,
      .ack_request = (third >> 31) != 0,
      .reserved7 = static_cast<std::uint8_t>(third >> 24 & 0x7FU),
      .psn = third & kMask24,
  };
}

inline void Bth::encode(std::byte* to) const {
  const std::uint32_t first = std::uint32_t{static_cast<std::uint8_t>(opcode)} << 24 |
                              std::uint32_t{solicited} << 23 | std::uint32_t{migration} << 22 |
                              (pad_count & 3U) << 20 | (version & 0xFU) << 16 | std::uint32_t{pkey};
  const std::uint32_t second = std::uint32_t{fecn} << 31 | std::uint32_t{becn} << 30 |
                               (reserved6 & 0x3FU) << 24 | (destination_qp & kMask24);
  store_be(to, std::uint64_t{first} << 32 | second);
  store_be(to + kNumberedOffset,
           std::uint32_t{ack_request} << 31 | (reserved7 & 0x7FU) << 24 | (psn & kMask24));
}

inline Reth Reth::parse(const std::byte* from) {
  return Reth{
      .address = load_be<std::uint64_t>(from),
      .rkey = load_be<std::uint32_t>(from + 8),
      .dma_length = load_be<std::uint32_t>(from + 12),
  };
}

inline void Reth::encode(std::byte* to) const {
  store_be(to, address);
  store_be(to + 8, rkey);
  store_be(to + 12, dma_length);
}

inline Aeth Aeth::parse(const std::byte* from) {
  return Aeth{
      .reserved = detail::bits(from[0], 7, 1),
      .kind = static_cast<Kind>(detail::bits(from[0], 5, 2)),
      .value = detail::bits(from[0], 0, 5),
      .msn = load_be24(from + 1),
  };
}

inline void Aeth::encode(std::byte* to) const {
  to[0] = static_cast<std::byte>(((reserved & 1U) << 7) |
                                 ((static_cast<unsigned>(kind) & 3U) << 5) | (value & 0x1FU));
  store_be24(to + 1, msn);
}

inline Feth Feth::parse(const std::byte* from) {
  const auto word = load_be<std::uint32_t>(from);
  return Feth{
      .reserved = word >> 6,
      .selectivity = static_cast<std::uint8_t>(word >> 4 & 3U),
      .placement = static_cast<std::uint8_t>(word & 0xFU),
  };
}

inline void Feth::encode(std::byte* to) const {
  store_be(to, reserved << 6 | (selectivity & 3U) << 4 | (placement & 0xFU));
}

inline AtomicEth AtomicEth::parse(const std::byte* from) {
  return AtomicEth{
      .address = load_be<std::uint64_t>(from),
      .rkey = load_be<std::uint32_t>(from + 8),
      .swap_or_add = load_be<std::uint64_t>(from + 12),
      .compare = load_be<std::uint64_t>(from + 20),
  };
}

inline void AtomicEth::encode(std::byte* to) const {
  store_be(to, address);
  store_be(to + 8, rkey);
  store_be(to + 12, swap_or_add);
  store_be(to + 20, compare);
}

inline AtomicAckEth AtomicAckEth::parse(const std::byte* from) {
  return AtomicAckEth{.original = load_be<std::uint64_t>(from)};
}

inline void AtomicAckEth::encode(std::byte* to) const { store_be(to, original); }

inline Deth Deth::parse(const std::byte* from) {
  return Deth{
      .qkey = load_be<std::uint32_t>(from),
      .reserved = std::to_integer<std::uint8_t>(from[4]),
      .source_qp = load_be24(from + 5),
  };
}

inline void Deth::encode(std::byte* to) const {
  store_be(to, qkey);
  to[4] = static_cast<std::byte>(reserved);
  store_be24(to + 5, source_qp);
}

inline ImmDt ImmDt::parse(const std::byte* from) {
  return ImmDt{.value = load_be<std::uint32_t>(from)};
}

inline void ImmDt::encode(std::byte* to) const { store_be(to, value); }

inline Ieth Ieth::parse(const std::byte* from) {
  return Ieth{.rkey = load_be<std::uint32_t>(from)};
}

inline void Ieth::encode(std::byte* to) const { store_be(to, rkey); }

inline XrcEth XrcEth::parse(const std::byte* from) {
  return XrcEth{.reserved = std::to_integer<std::uint8_t>(from[0]),
                .srq_number = load_be24(from + 1)};
}

inline void XrcEth::encode(std::byte* to) const {
  to[0] = static_cast<std::byte>(reserved);
  store_be24(to + 1, srq_number);
}

inline Cnp Cnp::parse(const std::byte* from) {
  Cnp cnp;
  std::memcpy(cnp.reserved.data(), from, kSize);
  return cnp;
}

inline void Cnp::encode(std::byte* to) const { std::memcpy(to, reserved.data(), kSize); }

static_assert(detail::header_size_of(0) == Bth::kSize);
static_assert(detail::header_size_of(detail::kDeth) == Bth::kSize + Deth::kSize);
static_assert(detail::header_size_of(detail::kXrcEth) == Bth::kSize + XrcEth::kSize);
static_assert(detail::header_size_of(detail::kFeth) == Bth::kSize + Feth::kSize);
static_assert(detail::header_size_of(detail::kReth) == Bth::kSize + Reth::kSize);
static_assert(detail::header_size_of(detail::kAtomicEth) == Bth::kSize + AtomicEth::kSize);
static_assert(detail::header_size_of(detail::kAeth) == Bth::kSize + Aeth::kSize);
static_assert(detail::header_size_of(detail::kAtomicAckEth) == Bth::kSize + AtomicAckEth::kSize);
static_assert(detail::header_size_of(detail::kImmediate) == Bth::kSize + ImmDt::kSize);
static_assert(detail::header_size_of(detail::kIeth) == Bth::kSize + Ieth::kSize);
static_assert(detail::header_size_of(detail::kCnpBytes) == Bth::kSize + Cnp::kSize);

}  // namespace verbena::wire
