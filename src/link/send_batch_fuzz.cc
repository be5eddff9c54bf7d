// SPDX-License-Identifier: Apache-2.0
//
// Packets of any sizes and ways put together into sends, and each send split again as a receiving
// kernel's batch: every packet comes out as it went in, at the position that it was numbered with.
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "link/send_batch.h"

using namespace verbena;
using namespace verbena::link;

namespace {

struct Placed {
  std::size_t size = 0;
  std::uint32_t slot = 0;
  bool other_path = false;
};

void check_send(const std::vector<Placed>& send) {
  std::size_t bytes = 0;
  for (const Placed& packet : send) {
    VERBENA_CHECK(packet.slot == send.front().slot);
    VERBENA_CHECK(packet.other_path == send.front().other_path);
    bytes += packet.size;
  }
  VERBENA_CHECK(send.size() <= wire::kMaxSendSegments && bytes <= wire::kMaxSendBytes);
  const std::vector<std::byte> buffer(bytes);
  ReceivedBatch batch(buffer, send.front().size);
  for (std::size_t i = 0; i < send.size(); ++i) {
    VERBENA_CHECK(!batch.empty() && batch.position() == i);
    VERBENA_CHECK(batch.next().size() == send[i].size);
  }
  VERBENA_CHECK(batch.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const wire::Path path;
  wire::Path other;
  other.traffic_class = 1;
  SendBatch batch;
  std::vector<Placed> send;
  for (std::size_t i = 0; i + 3 <= size; i += 3) {
    const Placed packet{.size = 16 + (std::size_t{data[i]} << 8 | data[i + 1]) % 4200,
                        .slot = data[i + 2] & 3U,
                        .other_path = (data[i + 2] & 4U) != 0};
    wire::Train train;
    train.path = packet.other_path ? &other : &path;
    train.head.bth.destination_qp = packet.slot << kSlotShift | data[i];
    const bool single = (data[i + 2] & 0xF0U) == 0xF0U;
    const std::uint32_t room = batch.room(train, packet.size);
    if (const std::uint32_t more = data[i + 2] >> 4 & 3U; !single && more != 0 && more <= room) {
      batch.place_more(more);
      send.insert(send.end(), more, packet);
      continue;
    }
    const std::uint16_t index = batch.place(train, packet.size, single);
    VERBENA_CHECK(index == 0 || index == send.size());
    VERBENA_CHECK(index != 0 || room == 0 || single);
    if (index == 0 && !send.empty()) {
      check_send(send);
      send.clear();
    }
    send.push_back(packet);
  }
  if (!send.empty()) check_send(send);

  // A batch of any size with any segment size ends, and holds every byte once.
  if (size < 4) return 0;
  const ConstBytes bytes = std::as_bytes(std::span(data, size));
  std::size_t total = 0;
  for (ReceivedBatch any(bytes, std::size_t{data[0]} << 8 | data[1]); !any.empty();)
    total += any.next().size();
  VERBENA_CHECK(total == size);
  return 0;
}
