// SPDX-License-Identifier: Apache-2.0
#include "link/pcapng.h"

#include <algorithm>
#include <cstring>

namespace verbena::link {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A;
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr std::uint16_t kEthernet = 1;
constexpr std::uint16_t kOptionEnd = 0;
constexpr std::uint16_t kOptionTimeResolution = 9;
constexpr std::uint16_t kOptionPacketFlags = 2;

/// Writes numbers one behind the other.
class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  template <typename T>
  Writer& put(T value) {
    std::memcpy(to_, &value, sizeof value);
    to_ += sizeof value;
    return *this;
  }

 private:
  std::byte* to_;
};

}  // namespace

std::array<std::byte, kPcapngHeaderSize> pcapng_header() {
  std::array<std::byte, kPcapngHeaderSize> header{};
  Writer(header.data())
      .put(kSectionHeader)
      .put(std::uint32_t{28})
      .put(kByteOrderMagic)
      .put(std::uint16_t{1})
      .put(std::uint16_t{0})
      .put(~std::uint64_t{0})  // the section's length is not known
      .put(std::uint32_t{28})
      .put(kInterfaceDescription)
      .put(std::uint32_t{32})
      .put(kEthernet)
      .put(std::uint16_t{0})
      .put(std::uint32_t{0})  // packets are not cut
      .put(kOptionTimeResolution)
      .put(std::uint16_t{1})
      .put(std::uint32_t{9})  // one byte, 10^-9, and its padding: little-endian machines
      .put(kOptionEnd)
      .put(std::uint16_t{0})
      .put(std::uint32_t{32});
  if constexpr (std::endian::native == std::endian::big)
    std::reverse(header.data() + 48, header.data() + 52);
  return header;
}

std::size_t finish_packet_block(std::byte* to, std::size_t frame_size, Duration time,
                                Direction direction) {
  const std::size_t size = packet_block_size(frame_size);
  const auto nanoseconds = static_cast<std::uint64_t>(time.count());
  Writer(to)
      .put(kEnhancedPacket)
      .put(static_cast<std::uint32_t>(size))
      .put(std::uint32_t{0})  // the only interface
      .put(static_cast<std::uint32_t>(nanoseconds >> 32))
      .put(static_cast<std::uint32_t>(nanoseconds))
      .put(static_cast<std::uint32_t>(frame_size))
      .put(static_cast<std::uint32_t>(frame_size));
  std::byte* const end = to + kPacketBlockHead + frame_size;
  const std::size_t padding = (0 - frame_size) & 3;
  Writer(std::fill_n(end, padding, std::byte{0}))
      .put(kOptionPacketFlags)
      .put(std::uint16_t{4})
      .put(static_cast<std::uint32_t>(direction))
      .put(kOptionEnd)
      .put(std::uint16_t{0})
      .put(static_cast<std::uint32_t>(size));
  return size;
}

}  // namespace verbena::link
