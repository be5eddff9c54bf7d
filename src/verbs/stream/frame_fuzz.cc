// SPDX-License-Identifier: Apache-2.0
//
// The bytes as a frame: what is taken is written again as it was. Then as what a peer does to one
// end, which must hold its own rules whatever comes: no more is posted than the queues hold, and no
// byte is read that did not arrive.
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "verbs/stream/core.h"

using namespace verbena::verbs;
using namespace verbena::verbs::streams;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_frame(std::span<const std::byte> bytes) {
  const auto frame = parse_frame(bytes);
  if (!frame) return;
  std::array<std::byte, kMaxFrame> again{};
  const std::size_t size = write_frame(*frame, again);
  require(std::ranges::equal(std::span(again).first(size), bytes));
}

class Victim {
 public:
  static constexpr std::uint32_t kPacket = 1024;

  /// All sizes of data are multiples of `unit`.
  Victim(stream_transport transport, std::size_t unit)
      : unit_(unit),
        options_{.transport = transport,
                 .buffer_size = 64 * unit + unit / 4,  // no multiple of what is padded
                 .receives = 3,
                 .sends = 2,
                 .send_buffer = 100 * unit},
        send_(send_bytes(options_)),
        slots_(slot_bytes(options_)),
        ring_(ring_bytes(options_)),
        core_(options_,
              {.send = send_, .slots = slots_, .ring = ring_, .ring_for_peer = region()}) {
    core_.set_packet(kPacket);
  }

  /// One step of the peer's or of the user's, of the first bytes; what is left of them.
  std::span<const std::byte> step(std::span<const std::byte> from) {
    pump();
    const auto what = static_cast<unsigned>(from.front());
    from = from.subspan(1);
    switch (what % 5) {
      case 0: return frame(from, (what >> 3) * 4 % 68);
      case 1: return data(from);
      case 2:
        if (!requests_.empty()) {
          core_.handle_sent();
          under_way_ -= requests_.front();
          requests_.pop_front();
        }
        return from;
      case 3:
        if (const auto room = core_.room())
          core_.commit(std::min(room->size(), std::size_t{4} * (what >> 3) * unit_ + 7));
        return from;
      default:
        read();
        if (what == 0xFE) core_.shutdown();
        if (what == 0xF9) core_.leave();
        return from;
    }
  }

 private:
  remote_region region() const {
    return ring_.empty() ? remote_region() : remote_region(0x1000, ring_.size(), 1);
  }
  void pump() {
    while (const auto receive = core_.poll_receive()) posted_.push_back(*receive);
    require(posted_.size() <= receive_depth(options_));
    while (const auto transmit = core_.poll_transmit()) {
      requests_.push_back(transmit->before != 0 ? kMostRequests : 1);
      under_way_ += requests_.back();
      require(transmit->before < transmit->length);
      require(transmit->offset + transmit->length <= send_.size());
      if (transmit->kind == Transmit::Kind::kWrite)
        require(transmit->to.size() == transmit->length + transmit->padding);
    }
    require(under_way_ <= send_depth(options_));
  }
  void read() {
    const auto front = core_.front();
    if (!front || front->empty()) return;
    core_.consume(front->size() / 2 + 1);
    const stream_counters counters = core_.counters();
    read_ += front->size() / 2 + 1;
    require(read_ <= counters.bytes_received);
  }
  std::span<const std::byte> frame(std::span<const std::byte> from, std::size_t size) {
    size = std::min({size, from.size(), kMaxFrame});
    if (posted_.empty()) return from;
    const std::uint32_t receive = posted_.front();
    posted_.pop_front();
    std::ranges::copy(from.first(size), core_.slot(receive).begin());
    core_.handle_received(receive, static_cast<std::uint32_t>(size), kFrameImmediate);
    return from.subspan(size);
  }
  std::span<const std::byte> data(std::span<const std::byte> from) {
    if (posted_.empty() || from.size() < 3) return from;
    const std::uint32_t receive = posted_.front();
    posted_.pop_front();
    auto length = static_cast<std::uint32_t>(from[0]) * static_cast<std::uint32_t>(unit_);
    std::optional<std::uint32_t> immediate =
        static_cast<std::uint32_t>(from[1]) << 15 | static_cast<std::uint32_t>(from[2]);
    if (from[1] == std::byte{0xFF}) immediate.reset();
    if (from[1] == std::byte{0xFD}) immediate = static_cast<std::uint32_t>(from[2]) << 16;
    if (from[1] == std::byte{0xFC})
      immediate = DataImmediate{.before = static_cast<std::uint8_t>(from[2])}.value();
    if (from[1] == std::byte{0xFE}) {
      length += kPadding;
      immediate = DataImmediate{.padding = kPadding, .released = static_cast<std::uint8_t>(from[2])}
                      .value();
    }
    core_.handle_received(receive, length, immediate);
    return from.subspan(3);
  }

  std::size_t unit_;
  stream_options options_;
  std::vector<std::byte> send_;
  std::vector<std::byte> slots_;
  std::vector<std::byte> ring_;
  Core core_;
  std::deque<std::uint32_t> posted_;
  std::deque<std::size_t> requests_;  // of what is under way
  std::size_t under_way_ = 0;
  std::uint64_t read_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check_frame(bytes);
  constexpr std::size_t kPadded = kPaddedFrom / 64;
  for (auto& victim : {std::make_unique<Victim>(stream_transport::messages, 1),
                       std::make_unique<Victim>(stream_transport::ring, 1),
                       std::make_unique<Victim>(stream_transport::ring, kPadded)}) {
    auto rest = bytes;
    while (!rest.empty()) rest = victim->step(rest);
  }
  return 0;
}
