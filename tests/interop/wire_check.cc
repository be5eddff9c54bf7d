// SPDX-License-Identifier: Apache-2.0
//
// Checks RoCEv2 packets as they stood on an Ethernet: from captures, behind the kernel's
// segmentation and before any offload of the receiver.
//   wire_check [--ours ADDRESS] FILE...     classic pcap
// With --ours, identifications that others than the address gave their packets may be any.
// One line of counts a file; a line for each of the first packets that are wrong. Status 0 when
// there were packets and all were right.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/pcap.h"

namespace verbena {
namespace {

constexpr std::size_t kComplaints = 10;

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

class Tally {
 public:
  std::size_t packets = 0;
  std::size_t segments = 0;  ///< packets that were not the first of their send
  std::size_t wrong = 0;
  std::size_t largest = 0;  ///< bytes of payload
};

/// What a file's packets must fulfil.
class WireCheck {
 public:
  /// `ours`: whose packets have identifications as ours have; everybody's without it.
  explicit WireCheck(const std::optional<wire::Address>& ours) : ours_(ours) {}

  /// Empty when the frame is right.
  [[nodiscard]] std::string fault_of(ConstBytes bytes) {
    const auto frame = wire::parse_frame(bytes);
    if (!frame) return frame.error().message;
    const auto packet = wire::parse(frame->udp_payload);
    if (!packet) return std::string(wire::to_string(packet.error()));
    const ConstBytes covered =
        frame->udp_payload.first(frame->udp_payload.size() - wire::kIcrcSize);
    if (wire::icrc(frame->path, frame->identification, covered) != packet->icrc)
      return fmt::format("wrong ICRC: {}", wire::to_string(*packet));
    tally.largest = std::max(tally.largest, packet->payload.size());
    return fault_of_identification(*frame);
  }

  Tally tally{};

 private:
  /// The index within its send, which the kernel makes (`nic.md`, Trains): 0, or one more than that
  /// of the source's packet before it.
  [[nodiscard]] std::string fault_of_identification(const wire::Frame& frame) {
    if (!frame.path.source.is_ipv4() || frame.path.source != ours_.value_or(frame.path.source))
      return {};
    const std::uint16_t before = std::exchange(last_[frame.path.source], frame.identification);
    if (frame.identification == 0) return {};
    ++tally.segments;
    if (frame.identification == before + 1) return {};
    return fmt::format("identification {} behind {}", frame.identification, before);
  }

  std::optional<wire::Address> ours_;
  std::map<wire::Address, std::uint16_t> last_;
};

bool check_file(const char* path, const std::optional<wire::Address>& ours) {
  const auto file = read_file(path);
  const auto records = wire::parse_pcap(file);
  if (!records) {
    fmt::print("{}: {}\n", path, records.error().message);
    return false;
  }
  WireCheck check(ours);
  for (const wire::PcapRecord& record : *records) {
    ++check.tally.packets;
    const std::string fault = check.fault_of(record.frame);
    if (fault.empty()) continue;
    if (++check.tally.wrong <= kComplaints)
      fmt::print("{}: packet {}: {}\n", path, check.tally.packets, fault);
  }
  const Tally& tally = check.tally;
  fmt::print("{}: {} packets, {} wrong; {} behind others in a send; payloads up to {} bytes\n",
             path, tally.packets, tally.wrong, tally.segments, tally.largest);
  return tally.packets > 0 && tally.wrong == 0;
}

}  // namespace
}  // namespace verbena

int main(int argc, char** argv) {
  std::span<char*> files(argv + 1, static_cast<std::size_t>(argc - 1));
  std::optional<verbena::wire::Address> ours;
  if (files.size() >= 2 && std::string_view(files[0]) == "--ours") {
    const auto address = verbena::wire::Address::from_string(files[1]);
    if (!address) {
      fmt::print(stderr, "wire_check: {}\n", address.error().message);
      return 2;
    }
    ours = *address;
    files = files.subspan(2);
  }
  if (files.empty()) {
    std::fputs("Usage: wire_check [--ours ADDRESS] FILE...\n", stderr);
    return 2;
  }
  bool right = true;
  for (const char* file : files) right = verbena::check_file(file, ours) && right;
  return right ? 0 : 1;
}
