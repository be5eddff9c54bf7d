// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"

/// Capture files as Wireshark and tcpdump read and write them (libpcap's classic format, Ethernet).
/// Bytes in and out; whoever owns the file does the reading and writing.
namespace verbena::wire {

/// One captured frame.
struct PcapRecord {
  Duration time{};                ///< since the capture's epoch, usually 1970
  ConstBytes frame{};             ///< what was captured of it; borrowed from the file's bytes
  std::size_t original_size = 0;  ///< on the wire; more than frame.size() when it was cut
};

inline constexpr std::size_t kPcapFileHeaderSize = 24;
inline constexpr std::size_t kPcapRecordHeaderSize = 16;

/// All records of a capture, in either byte order and with micro- or nanoseconds; bad_message when
/// it is no capture of Ethernet frames or ends within a record.
[[nodiscard]] Result<std::vector<PcapRecord>> parse_pcap(ConstBytes file);

/// Writes kPcapFileHeaderSize bytes: Ethernet frames, nanoseconds, this machine's byte order
/// (readers take both).
void encode_pcap_file_header(std::byte* to);

/// Writes the kPcapRecordHeaderSize bytes that stand before the captured bytes of a frame.
void encode_pcap_record_header(const PcapRecord& record, std::byte* to);

}  // namespace verbena::wire
