// SPDX-License-Identifier: Apache-2.0
#include "conformance/capture.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "engine/psn.h"
#include "wire/frame.h"
#include "wire/pcap.h"

namespace verbena::conformance {
namespace {

/// How far an answer's PSN may be from the first one of its connection: no capture is longer, and
/// other connections start at random PSNs.
constexpr std::int32_t kLongest = 4096;

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

/// Neighbour discovery precedes the first IPv6 packet on an Ethernet.
bool is_icmpv6(ConstBytes frame) {
  constexpr std::size_t kNextHeader = 20;
  constexpr std::byte kIcmpv6{58};
  return frame.size() > kNextHeader && load_be<std::uint16_t>(frame.data() + 12) == 0x86DD &&
         frame[kNextHeader] == kIcmpv6;
}

Exchange& exchange_of_request(std::vector<Exchange>& all, const CapturedPacket& captured) {
  const auto found = std::ranges::find_if(all, [&](const Exchange& exchange) {
    return exchange.requester == captured.path.source &&
           exchange.responder == captured.path.destination &&
           exchange.responder_qp == captured.packet.bth.destination_qp;
  });
  if (found != all.end()) return *found;
  all.push_back({.requester = captured.path.source,
                 .responder = captured.path.destination,
                 .responder_qp = captured.packet.bth.destination_qp,
                 .first_psn = captured.packet.bth.psn});
  return all.back();
}

/// An answer names the queue pair that asked but not the one that answers: the PSN tells.
Exchange& exchange_of_answer(std::vector<Exchange>& all, const CapturedPacket& captured) {
  const std::uint32_t asked = captured.packet.bth.destination_qp;
  const auto found = std::ranges::find_if(all, [&](const Exchange& exchange) {
    const std::int32_t distance = engine::psn_distance(captured.packet.bth.psn, exchange.first_psn);
    return exchange.requester == captured.path.destination &&
           exchange.responder == captured.path.source &&
           (exchange.requester_qp == 0 || exchange.requester_qp == asked) && distance >= 0 &&
           distance < kLongest;
  });
  if (found == all.end()) throw std::runtime_error("an answer without a request");
  found->requester_qp = asked;
  return *found;
}

}  // namespace

Capture::Capture(std::string_view name)
    : name_(name), file_(read_file(std::filesystem::path(VERBENA_VECTORS) / (name_ + ".pcap"))) {
  const auto records = wire::parse_pcap(file_);
  if (!records) throw std::runtime_error(records.error().message);
  for (const wire::PcapRecord& record : *records) {
    if (is_icmpv6(record.frame)) continue;
    const wire::Frame frame = wire::parse_frame(record.frame).value();
    packets_.push_back({.time = record.time - records->front().time,
                        .path = frame.path,
                        .identification = frame.identification,
                        .frame = record.frame,
                        .datagram = frame.udp_payload,
                        .packet = wire::parse(frame.udp_payload).value()});
  }
}

bool is_request(const wire::Packet& packet) {
  using enum wire::Operation;
  const wire::Operation operation = packet.info().operation;
  return operation == kSend || operation == kWrite || operation == kReadRequest ||
         operation == kCompareSwap || operation == kFetchAdd;
}

bool is_rd_atomic(const wire::Packet& packet) {
  using enum wire::Operation;
  const wire::Operation operation = packet.info().operation;
  return operation == kReadRequest || operation == kCompareSwap || operation == kFetchAdd;
}

bool begins_message(const wire::Packet& packet) {
  const wire::Place place = packet.info().place;
  return place == wire::Place::kFirst || place == wire::Place::kOnly;
}

bool ends_message(const wire::Packet& packet) {
  const wire::Place place = packet.info().place;
  return place == wire::Place::kLast || place == wire::Place::kOnly;
}

std::vector<const CapturedPacket*> Exchange::requests() const {
  std::vector<const CapturedPacket*> out;
  for (const Item& item : items)
    if (!item.answer) out.push_back(item.captured);
  return out;
}

std::vector<const CapturedPacket*> Exchange::answers() const {
  std::vector<const CapturedPacket*> out;
  for (const Item& item : items)
    if (item.answer) out.push_back(item.captured);
  return out;
}

std::uint8_t Exchange::rd_atomic() const {
  int most = 1;
  int open = 0;
  for (const Item& item : items) {
    const wire::Packet& packet = item.captured->packet;
    if (!item.answer && is_rd_atomic(packet)) most = std::max(most, ++open);
    const bool response = packet.info().operation == wire::Operation::kReadResponse ||
                          packet.info().operation == wire::Operation::kAtomicAcknowledge;
    if (item.answer && response && ends_message(packet)) --open;
  }
  return static_cast<std::uint8_t>(most);
}

std::vector<Exchange> exchanges(const Capture& capture) {
  std::vector<Exchange> all;
  for (const CapturedPacket& captured : capture.packets()) {
    if (captured.packet.info().transport != wire::Transport::kRc) continue;
    const bool answer = !is_request(captured.packet);
    Exchange& exchange =
        answer ? exchange_of_answer(all, captured) : exchange_of_request(all, captured);
    exchange.items.push_back({&captured, answer});
  }
  return all;
}

bool Message::consumes_receive() const {
  return head().info().operation == wire::Operation::kSend || tail().info().has_immediate;
}

std::vector<Message> messages(const Exchange& exchange) {
  std::vector<Message> out;
  std::uint32_t next_psn = exchange.first_psn;
  for (std::size_t i = 0; i < exchange.items.size(); ++i) {
    const CapturedPacket& captured = *exchange.items[i].captured;
    const wire::Packet& packet = captured.packet;
    if (exchange.items[i].answer || packet.bth.psn != next_psn) continue;
    if (begins_message(packet)) out.push_back({.first_item = i});
    Message& message = out.back();
    message.packets.push_back(&captured);
    const bool read = packet.info().operation == wire::Operation::kReadRequest;
    message.length +=
        read ? packet.reth.dma_length : static_cast<std::uint32_t>(packet.payload.size());
    message.payload.insert(message.payload.end(), packet.payload.begin(), packet.payload.end());
    next_psn = engine::psn_add(next_psn, read ? engine::packet_count(message.length, kMtu) : 1);
  }
  return out;
}

std::vector<std::string> captures_with(wire::Transport transport) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(VERBENA_VECTORS)) {
    if (entry.path().extension() != ".pcap") continue;
    const Capture capture(entry.path().stem().string());
    if (std::ranges::any_of(capture.packets(), [&](const CapturedPacket& captured) {
          return captured.packet.info().transport == transport;
        })) {
      names.push_back(capture.name());
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace verbena::conformance
