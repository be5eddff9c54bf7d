// SPDX-License-Identifier: Apache-2.0
//
// A ring in which anything stands: first what the reader claims to have released, then records from
// where it begins. Each end takes what is there or breaks the ring, and touches no byte beside it.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "link/shm_ring.h"

using namespace verbena;
using namespace verbena::link;

namespace {

constexpr std::size_t kIndices = std::size_t{3} * 128;  // but for the key
constexpr std::size_t kRecordsAt = 131072;

/// Gives records the marks that they would have if a writer had left them so.
void mark_all(const RingMemory& memory) {
  const Bytes records = memory.bytes().subspan(kRecordsAt);
  for (std::size_t at = 0; at + 64 <= records.size();) {
    const std::uint64_t mark = memory.mark_at(at);
    std::memcpy(records.data() + at, &mark, sizeof mark);
    std::uint32_t size = 0;
    std::memcpy(&size, records.data() + at + 8, sizeof size);
    if (size > kMaxRingPacket) return;
    at += (std::to_integer<std::size_t>(records[at + 12]) + size + 63) / 64 * 64;
    if (size == 0) return;
  }
}

/// What a reader makes of it: each record within the ring, and no more of them than fit.
void read_all(RingReader& reader) {
  std::size_t bytes = 0;
  std::uint32_t sum = 0;
  while (const auto record = reader.next()) {
    VERBENA_CHECK(record->packet.size() >= kMinRingPacket);
    VERBENA_CHECK(record->packet.size() <= kMaxRingPacket);
    for (const std::byte byte : record->packet) sum += std::to_integer<std::uint32_t>(byte);
    VERBENA_CHECK(record->lent <= wire::kMaxChannelMtu);
    if (record->lent != 0) sum += RingReader::loan_of(record->packet).size;
    bytes += record->packet.size();
    VERBENA_CHECK(bytes <= kRingSize);
  }
  static_cast<void>(sum);
  static_cast<void>(reader.arm());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const RingMemory::Made made = RingMemory::create().value();
  const Bytes shared = made.memory.bytes();
  RingWriter writer(RingMemory::open(made.descriptor.get()).value());
  RingReader reader(RingMemory::open(made.descriptor.get()).value());
  std::fill_n(shared.data(), kIndices, std::byte{0});

  if (size < 8) return 0;
  const std::size_t records = std::min(size - 8, shared.size() - kRecordsAt);
  std::memcpy(shared.data() + kRecordsAt, data + 8, records);
  mark_all(made.memory);
  read_all(reader);
  reader.release();

  // The other end believes nothing either.
  while (writer.begin(kMaxRingPacket, 0, 0, 0) != nullptr) writer.commit();
  static_cast<void>(writer.announce());
  std::memcpy(shared.data(), data, 8);
  for (std::size_t i = 0; i < 2 * kRingSize / kMaxRingPacket; ++i) {
    if (writer.begin(kMaxRingPacket, 0, 0, 0) == nullptr) break;
    writer.commit();
  }
  VERBENA_CHECK(writer.unannounced() <= kRingSize);
  read_all(reader);
  return 0;
}
