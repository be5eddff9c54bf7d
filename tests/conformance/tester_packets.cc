// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "conformance/pattern.h"
#include "conformance/tester.h"
#include "conformance/values.h"

// The wire's part of a scenario: packets made, and packets held against what must come.

namespace verbena::conformance {
namespace {

using wire::Operation;
using wire::Place;

constexpr std::size_t kShortPayload = 16;
constexpr std::size_t kMostPayload = 64 << 10;
/// Earlier acknowledgements that may come before the one that must.
constexpr int kMostSkipped = 16;
constexpr std::uint8_t kCongestionExperienced = 3;  // of a traffic class (RFC 3168, section 5)

bool is_atomic(Operation operation) {
  return operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
}

bool ends(Place place) { return place == Place::kLast || place == Place::kOnly; }

bool is_request(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kWrite ||
         operation == Operation::kReadRequest || operation == Operation::kAtomicWrite ||
         operation == Operation::kFlush || is_atomic(operation);
}

std::string show(ConstBytes datagram) {
  const auto packet = wire::parse(datagram);
  return packet ? wire::to_string(*packet) : fmt::format("{} bytes of no packet", datagram.size());
}

/// A positive acknowledgement of a PSN before `psn`: it may come first, since acknowledging less
/// often is the responder's choice.
bool is_earlier_ack(const wire::Packet& packet, std::uint32_t psn) {
  return packet.bth.opcode == wire::Opcode::kRcAcknowledge &&
         packet.aeth.kind == wire::Aeth::Kind::kAck && packet.bth.psn != psn &&
         ((psn - packet.bth.psn) & wire::kMask24) < (1U << 23);
}

}  // namespace

// Making.

Tester::Check Tester::send(const Statement& statement) {
  wire::Packet packet = VERBENA_TRY(make_packet(statement));
  std::vector<std::byte> bytes(wire::encoded_size(packet));
  wire::encode(packet, bytes);
  if (const auto opcode = statement.field("opcode"))
    bytes[0] = static_cast<std::byte>(VERBENA_TRY(parse_number(*opcode)));
  const auto cut = VERBENA_TRY(number_of(statement, "cut", 0));
  bytes.resize(bytes.size() - std::min<std::size_t>(cut, bytes.size() - wire::kIcrcSize));
  bench_.send(bytes, statement.field("icrc") != "wrong",
              statement.has("ce") ? kCongestionExperienced : std::uint8_t{0});
  last_ = bench_.now();
  return {};
}

Result<wire::Packet> Tester::make_packet(const Statement& statement) {
  wire::Packet packet;
  packet.bth.opcode =
      opcode_from(statement.word).value_or(wire::Opcode{});  // the parser has looked
  const wire::OpcodeInfo& info = packet.info();
  std::size_t payload = 0;
  if (info.has_payload) {
    payload = VERBENA_TRY(number_of(statement, "payload", ends(info.place) ? kShortPayload : mtu_));
    if (payload > kMostPayload) return wrong("the payload is too long");
  }
  const std::uint64_t data = VERBENA_TRY(number_of(statement, "data", 0));
  payload_.resize(payload);
  for (std::size_t i = 0; i < payload; ++i) payload_[i] = payload_pattern(data + i);
  packet.payload = payload_;
  packet.bth.pad_count = static_cast<std::uint8_t>(-payload & 3U);
  VERBENA_TRY(fill_bth(statement, packet));
  VERBENA_TRY(fill_headers(statement, packet));
  return packet;
}

Tester::Check Tester::fill_bth(const Statement& statement, wire::Packet& packet) {
  const auto get = [&](std::string_view field, std::uint64_t otherwise) {
    return number_of(statement, field, otherwise);
  };
  const wire::OpcodeInfo& info = packet.info();
  wire::Bth& bth = packet.bth;
  const std::uint32_t base = base_psn(info.operation, true);
  const auto psn = statement.field("psn").value_or("0");
  const bool before = psn.starts_with('-');
  const auto offset =
      static_cast<std::uint32_t>(VERBENA_TRY(parse_number(psn.substr(before ? 1 : 0))));
  bth.psn = (before ? base - offset : base + offset) & wire::kMask24;
  bth.destination_qp = static_cast<std::uint32_t>(VERBENA_TRY(get("qpn", symbols_["qpn"])));
  const bool asks = is_request(info.operation) && ends(info.place);
  bth.ack_request = statement.has("ack") || (asks && !statement.has("noack"));
  bth.solicited = statement.has("se");
  bth.fecn = statement.has("fecn");
  bth.becn = statement.has("becn");
  bth.migration = VERBENA_TRY(get("mig", 1)) != 0;
  bth.pkey = static_cast<std::uint16_t>(VERBENA_TRY(get("pkey", 0xFFFF)));
  bth.version = static_cast<std::uint8_t>(VERBENA_TRY(get("version", 0)));
  bth.pad_count = static_cast<std::uint8_t>(VERBENA_TRY(get("pad", bth.pad_count)));
  bth.reserved7 = static_cast<std::uint8_t>(VERBENA_TRY(get("reserved", 0)));
  return {};
}

Tester::Check Tester::fill_headers(const Statement& statement, wire::Packet& packet) {
  const auto get = [&](std::string_view field, std::uint64_t otherwise) {
    return number_of(statement, field, otherwise);
  };
  const std::uint64_t address = VERBENA_TRY(get("address", symbols_["region.address"]));
  const auto rkey = static_cast<std::uint32_t>(VERBENA_TRY(get("rkey", symbols_["region.rkey"])));
  packet.reth = {
      .address = address,
      .rkey = rkey,
      .dma_length = static_cast<std::uint32_t>(VERBENA_TRY(get("length", packet.payload.size())))};
  packet.feth = {
      .selectivity = static_cast<std::uint8_t>(VERBENA_TRY(get("selectivity", wire::Feth::kRange))),
      .placement =
          static_cast<std::uint8_t>(VERBENA_TRY(get("placement", wire::Feth::kGlobalVisibility)))};
  const bool add = packet.info().operation == Operation::kFetchAdd;
  packet.atomic_eth = {.address = address,
                       .rkey = rkey,
                       .swap_or_add = VERBENA_TRY(get(add ? "add" : "swap", 1)),
                       .compare = VERBENA_TRY(get("compare", 0))};
  packet.deth = {.qkey = static_cast<std::uint32_t>(VERBENA_TRY(get("qkey", kQkey))),
                 .source_qp = static_cast<std::uint32_t>(VERBENA_TRY(get("source", number_)))};
  packet.immediate.value = static_cast<std::uint32_t>(VERBENA_TRY(get("imm", 0)));
  packet.ieth.rkey = static_cast<std::uint32_t>(VERBENA_TRY(get("inv", 0)));
  packet.xrceth.srq_number = static_cast<std::uint32_t>(VERBENA_TRY(get("srq", 0)));
  packet.aeth = VERBENA_TRY(parse_syndrome(statement.field("syndrome").value_or("ack")));
  if (statement.has("credits"))
    packet.aeth.value = static_cast<std::uint8_t>(VERBENA_TRY(get("credits", 0)));
  packet.aeth.msn = static_cast<std::uint32_t>(VERBENA_TRY(get("msn", 0))) & wire::kMask24;
  packet.atomic_ack_eth.original = VERBENA_TRY(get("original", 0));
  return {};
}

// Holding against.

std::optional<std::vector<std::byte>> Tester::next_packet(Time until) {
  for (;;) {
    auto datagram = bench_.receive(until);
    const auto packet = datagram ? wire::parse(*datagram) : std::unexpected(wire::ParseError{});
    if (!packet || packet->bth.destination_qp == number_) return datagram;
    if (bench_.now() >= until) return std::nullopt;  // others may send for ever
  }
}

Tester::Check Tester::expect(const Statement& statement) {
  const Time since = last_;
  Duration patience = bench_.patience();
  if (const auto text = statement.field("within")) patience = VERBENA_TRY(parse_duration(*text));
  for (int skipped = 0; skipped <= kMostSkipped; ++skipped) {
    const auto datagram = next_packet(since + patience);
    if (!datagram) return wrong("nothing came");
    last_ = bench_.now();
    const auto packet = wire::parse(*datagram);
    if (!packet) return wrong(fmt::format("came {}", show(*datagram)));
    const auto psn = statement.field("psn");
    const std::uint32_t wanted =
        (base_psn(packet->info().operation, false) +
         static_cast<std::uint32_t>(VERBENA_TRY(parse_number(psn.value_or("0"))))) &
        wire::kMask24;
    if (psn && is_earlier_ack(*packet, wanted)) continue;
    const bool same =
        opcode_name(packet->bth.opcode) == statement.word && (!psn || packet->bth.psn == wanted);
    if (!same) return wrong(fmt::format("came {}", wire::to_string(*packet)));
    if (const auto text = statement.field("after");
        text && last_ - since < VERBENA_TRY(parse_duration(*text)))
      return wrong(fmt::format("came after {} us", (last_ - since).count() / 1000));
    return compare(statement, *packet);
  }
  return wrong("only earlier acknowledgements came");
}

Tester::Check Tester::compare(const Statement& statement, const wire::Packet& packet) {
  const bool atomic = is_atomic(packet.info().operation);
  const bool add = packet.info().operation == Operation::kFetchAdd;
  const std::pair<std::string_view, std::uint64_t> numbers[] = {
      {"payload", packet.payload.size()},
      {"address", atomic ? packet.atomic_eth.address : packet.reth.address},
      {"rkey", atomic ? packet.atomic_eth.rkey : packet.reth.rkey},
      {"length", packet.reth.dma_length},
      {"imm", packet.immediate.value},
      {"inv", packet.ieth.rkey},
      {"msn", packet.aeth.msn},
      {"credits", packet.aeth.value},
      {"original", packet.atomic_ack_eth.original},
      {add ? "add" : "swap", packet.atomic_eth.swap_or_add},
      {"compare", packet.atomic_eth.compare},
      {"qkey", packet.deth.qkey},
      {"source", packet.deth.source_qp},
      {"pkey", packet.bth.pkey},
      {"mig", packet.bth.migration ? 1U : 0U},
      {"placement", packet.feth.placement},
      {"selectivity", packet.feth.selectivity},
  };
  for (const auto& [name, value] : numbers) {
    if (VERBENA_TRY(number_of(statement, name, value)) != value)
      return wrong(fmt::format("{} is {:#x} in {}", name, value, wire::to_string(packet)));
  }
  const bool flags = (!statement.has("ack") || packet.bth.ack_request) &&
                     (!statement.has("noack") || !packet.bth.ack_request) &&
                     (!statement.has("se") || packet.bth.solicited) &&
                     (!statement.has("nose") || !packet.bth.solicited) &&
                     (!statement.has("becn") || packet.bth.becn);
  if (!flags) return wrong(fmt::format("wrong flags in {}", wire::to_string(packet)));
  if (packet.cnp != wire::Cnp{}) return wrong("a CNP's sixteen bytes are not zero");
  const auto syndrome = statement.field("syndrome");
  if (syndrome && !has_syndrome(packet.aeth, *syndrome))
    return wrong(fmt::format("another syndrome in {}", wire::to_string(packet)));
  return compare_payload(statement, packet);
}

/// "data=K": as the pattern from K on; "data=initial+K": as a region was at first.
Tester::Check Tester::compare_payload(const Statement& statement, const wire::Packet& packet) {
  const auto data = statement.field("data");
  if (!data) return {};
  constexpr std::string_view kInitial = "initial+";
  const bool initial = data->starts_with(kInitial);
  const std::uint64_t from =
      VERBENA_TRY(parse_number(initial ? data->substr(kInitial.size()) : *data));
  for (std::size_t i = 0; i < packet.payload.size(); ++i) {
    const std::byte wanted = initial ? initial_pattern(from + i) : payload_pattern(from + i);
    if (packet.payload[i] != wanted)
      return wrong(fmt::format("byte {} of the payload is not '{}'", i, *data));
  }
  return {};
}

Tester::Check Tester::silence(const Statement& statement) {
  Duration duration = bench_.silence();
  if (const auto text = statement.field("for")) duration = VERBENA_TRY(parse_duration(*text));
  const auto came = next_packet(bench_.now() + duration);
  last_ = bench_.now();
  if (came) return wrong(fmt::format("came {}", show(*came)));
  return {};
}

}  // namespace verbena::conformance
