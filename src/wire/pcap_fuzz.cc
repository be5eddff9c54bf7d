// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a capture file: its records lie within it, one behind the other.
#include <cstdint>

#include "base/check.h"
#include "wire/pcap.h"

using namespace verbena;
using namespace verbena::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes file = std::as_bytes(std::span(data, size));
  const auto records = parse_pcap(file);
  if (!records) return 0;
  std::size_t at = kPcapFileHeaderSize;
  for (const PcapRecord& record : *records) {
    at += kPcapRecordHeaderSize;
    VERBENA_CHECK(record.frame.data() == file.data() + at);
    at += record.frame.size();
  }
  VERBENA_CHECK(at == file.size());
  return 0;
}
