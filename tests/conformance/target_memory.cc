// SPDX-License-Identifier: Apache-2.0
#include "conformance/target_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/psn.h"

namespace verbena::conformance {
namespace {

constexpr std::size_t kGuestRegion = 16384;  ///< the region of every hand-made capture's server
constexpr std::size_t kGuestWindow = 4096;   ///< rxe-rc-send-inv binds so much of it
constexpr std::uint32_t kWrongKey = 0x5500;  ///< the bits that the wrong-key captures turn
constexpr std::size_t kBeyond = 32;          ///< bytes of rxe-rc-nak-bounds behind the region
constexpr std::uint32_t kHiddenKey = 0xFFFFFF00;  ///< of the region behind the window

bool is_fatal_nak(const wire::Packet& packet) {
  return packet.info().operation == wire::Operation::kAcknowledge &&
         packet.aeth.kind == wire::Aeth::Kind::kNak &&
         packet.aeth.value != static_cast<std::uint8_t>(wire::NakCode::kSequenceError);
}

}  // namespace

TargetMemory::TargetMemory(const std::string& capture, const Exchange& exchange, TestMemory& memory)
    : exchange_(exchange),
      memory_(memory),
      window_(capture == "rxe-rc-send-inv"),
      owner_writes_(capture == "rxe-cm-rping") {
  add_ranges(capture, exchange);
  follow(exchange);
  constexpr std::uint32_t kAll = engine::kRemoteWrite | engine::kRemoteRead | engine::kRemoteAtomic;
  for (const auto& [key, image] : images_) {
    TestMemory::Region& region =
        memory.add(window_ ? kHiddenKey : key, image.address, image.initial.size(), kAll);
    std::ranges::copy(image.initial, region.bytes().begin());
    if (window_) {
      memory.add_window(key, kHiddenKey, image.address, kGuestWindow, engine::kRemoteWrite);
    }
  }
}

void TargetMemory::Image::extend(std::uint64_t from, std::uint64_t to) {
  if (initial.empty()) address = from;
  const std::uint64_t end = std::max(to, address + initial.size());
  const std::uint64_t start = std::min(from, address);
  address = start;
  initial.assign(end - start, std::byte{0});
  current = initial;
  known.assign(initial.size(), false);
}

/// Bytes that an answer shows, or a request sets: what was never seen before stood there at first.
void TargetMemory::Image::know(std::uint64_t at, ConstBytes before, ConstBytes after) {
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::size_t index = at - address + i;
    if (!known.at(index) && !before.empty()) initial[index] = before[i];
    known[index] = true;
    current[index] = after[i];
  }
}

/// The server's regions, as its program made them. Only the keys and edges that a capture is about
/// differ from what the requests say.
void TargetMemory::add_ranges(const std::string& capture, const Exchange& exchange) {
  const bool wrong_key = capture == "rxe-rc-nak-rkey" || capture == "rxe-rc-nak-read-rkey";
  for (const CapturedPacket* request : exchange.requests()) {
    const wire::Packet& packet = request->packet;
    if (packet.info().has_reth && packet.reth.dma_length != 0) {
      const wire::Reth& reth = packet.reth;
      const std::uint32_t key = wrong_key ? reth.rkey ^ kWrongKey : reth.rkey;
      std::uint64_t end = reth.address + reth.dma_length;
      if (wrong_key) end = reth.address + kGuestRegion;
      if (capture == "rxe-rc-nak-bounds") end = reth.address + kBeyond;
      images_[key].extend(reth.address, end);
    } else if (packet.info().has_atomic_eth) {
      images_[packet.atomic_eth.rkey].extend(packet.atomic_eth.address,
                                             packet.atomic_eth.address + sizeof(std::uint64_t));
    }
  }
  if (window_) {
    for (auto& [key, image] : images_) image.extend(image.address, image.address + kGuestRegion);
  }
}

/// Executes the requests up to the one that rxe refused, as the specification's words have it and
/// not as the engine does it.
void TargetMemory::follow(const Exchange& exchange) {
  std::int32_t end = 1 << 22;
  for (const CapturedPacket* answer : exchange.answers()) {
    if (is_fatal_nak(answer->packet))
      end = engine::psn_distance(answer->packet.bth.psn, exchange.first_psn);
  }
  for (const Message& message : messages(exchange)) {
    if (engine::psn_distance(message.head().bth.psn, exchange.first_psn) >= end) return;
    switch (message.head().info().operation) {
      case wire::Operation::kWrite:
        if (message.length != 0) {
          images_.at(message.head().reth.rkey)
              .know(message.head().reth.address, {}, message.payload);
        }
        break;
      case wire::Operation::kReadRequest: follow_read(message); break;
      case wire::Operation::kCompareSwap:
      case wire::Operation::kFetchAdd: follow_atomic(message, exchange); break;
      default: break;
    }
  }
}

template <typename Visit>
void TargetMemory::for_each_response(const wire::Packet& read, Visit visit) const {
  const auto count = static_cast<std::int32_t>(engine::packet_count(read.reth.dma_length, kMtu));
  for (const CapturedPacket* answer : exchange_.answers()) {
    const wire::Packet& packet = answer->packet;
    const std::int32_t index = engine::psn_distance(packet.bth.psn, read.bth.psn);
    if (packet.info().operation != wire::Operation::kReadResponse || index < 0 || index >= count)
      continue;
    visit(packet, read.reth.address + static_cast<std::uint64_t>(index) * kMtu);
  }
}

void TargetMemory::follow_read(const Message& message) {
  if (message.length == 0) return;
  Image& image = images_.at(message.head().reth.rkey);
  for_each_response(message.head(), [&](const wire::Packet& response, std::uint64_t at) {
    for (std::size_t i = 0; i < response.payload.size(); ++i) {
      const std::size_t place = at - image.address + i;
      if (!image.known.at(place)) image.initial[place] = response.payload[i];
      if (!image.known[place] || owner_writes_) image.current[place] = response.payload[i];
      image.known[place] = true;
    }
  });
}

void TargetMemory::before(const CapturedPacket& request) {
  const wire::Packet& packet = request.packet;
  if (!owner_writes_ || packet.info().operation != wire::Operation::kReadRequest) return;
  for_each_response(packet, [&](const wire::Packet& response, std::uint64_t at) {
    TestMemory::Region& region = memory_.region(packet.reth.rkey);
    std::ranges::copy(response.payload, region.bytes().subspan(at - region.address).begin());
  });
}

void TargetMemory::follow_atomic(const Message& message, const Exchange& exchange) {
  const wire::AtomicEth& request = message.head().atomic_eth;
  for (const CapturedPacket* answer : exchange.answers()) {
    const wire::Packet& packet = answer->packet;
    if (packet.info().operation != wire::Operation::kAtomicAcknowledge ||
        packet.bth.psn != message.head().bth.psn) {
      continue;
    }
    // Big-endian on the wire, the host's own order in memory (engine.md, "Responder").
    const std::uint64_t original = packet.atomic_ack_eth.original;
    std::uint64_t after = original;
    if (message.head().info().operation == wire::Operation::kFetchAdd) {
      after += request.swap_or_add;
    } else if (original == request.compare) {
      after = request.swap_or_add;
    }
    images_.at(request.rkey)
        .know(request.address, std::as_bytes(std::span(&original, 1)),
              std::as_bytes(std::span(&after, 1)));
    return;
  }
}

void TargetMemory::expect_final() const {
  for (const auto& [key, image] : images_) {
    const Bytes bytes = memory_.region(window_ ? kHiddenKey : key).bytes();
    EXPECT_TRUE(std::ranges::equal(bytes, image.current)) << "region of key " << key;
  }
}

}  // namespace verbena::conformance
