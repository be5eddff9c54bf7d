// SPDX-License-Identifier: Apache-2.0
#include "wire/pcap.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace verbena::wire {
namespace {

constexpr std::uint32_t kMagicMicroseconds = 0xA1B2C3D4;
constexpr std::uint32_t kMagicNanoseconds = 0xA1B23C4D;
constexpr std::uint32_t kLinkTypeEthernet = 1;
constexpr std::uint32_t kMaxCapturedSize = 262144;  // what tcpdump takes as its own limit

std::uint32_t load(const std::byte* from, bool swapped) {
  std::uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return swapped ? __builtin_bswap32(value) : value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

Result<std::vector<PcapRecord>> parse_pcap(ConstBytes file) {
  if (file.size() < kPcapFileHeaderSize)
    return fail(std::errc::bad_message, "the capture's header is truncated");
  const std::uint32_t magic = load(file.data(), false);
  const bool swapped = magic == __builtin_bswap32(kMagicMicroseconds) ||
                       magic == __builtin_bswap32(kMagicNanoseconds);
  const std::uint32_t native_magic = load(file.data(), swapped);
  if (native_magic != kMagicMicroseconds && native_magic != kMagicNanoseconds) {
    return fail(std::errc::bad_message, "this is no pcap file");
  }
  if (load(file.data() + 20, swapped) != kLinkTypeEthernet) {
    return fail(std::errc::bad_message, "the capture is not of Ethernet frames");
  }
  const std::int64_t fraction = native_magic == kMagicNanoseconds ? 1 : 1000;

  std::vector<PcapRecord> records;
  ConstBytes rest = file.subspan(kPcapFileHeaderSize);
  while (!rest.empty()) {
    if (rest.size() < kPcapRecordHeaderSize)
      return fail(std::errc::bad_message, "a record's header is truncated");
    const std::size_t captured = load(rest.data() + 8, swapped);
    if (captured > rest.size() - kPcapRecordHeaderSize)
      return fail(std::errc::bad_message, "a record is truncated");
    records.push_back({
        .time = std::chrono::seconds(load(rest.data(), swapped)) +
                Duration(fraction * load(rest.data() + 4, swapped)),
        .frame = rest.subspan(kPcapRecordHeaderSize, captured),
        .original_size = load(rest.data() + 12, swapped),
    });
    rest = rest.subspan(kPcapRecordHeaderSize + captured);
  }
  return records;
}

void encode_pcap_file_header(std::byte* to) {
  store(to, kMagicNanoseconds);
  store(to + 4, std::uint16_t{2});  // version 2.4
  store(to + 6, std::uint16_t{4});
  store(to + 8, std::uint64_t{0});  // time zone and accuracy, always 0
  store(to + 16, kMaxCapturedSize);
  store(to + 20, kLinkTypeEthernet);
}

void encode_pcap_record_header(const PcapRecord& record, std::byte* to) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(record.time);
  store(to, static_cast<std::uint32_t>(seconds.count()));
  store(to + 4, static_cast<std::uint32_t>((record.time - seconds).count()));
  store(to + 8, static_cast<std::uint32_t>(record.frame.size()));
  store(to + 12, static_cast<std::uint32_t>(record.original_size));
}

}  // namespace verbena::wire
