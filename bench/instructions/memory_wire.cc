// SPDX-License-Identifier: Apache-2.0
#include "bench/instructions/memory_wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "nic/nic.h"

namespace verbena::bench {

namespace {

constexpr std::uint16_t kChannel = 1;

/// Nobody waits for it.
class Count final : public nic::Notifier {
 public:
  [[nodiscard]] int descriptor() const override { return -1; }
  void signal() override { ++count_; }
  [[nodiscard]] bool take() override {
    const bool some = count_ > 0;
    count_ -= some ? 1U : 0U;
    return some;
  }
  [[nodiscard]] bool blocking() const override { return false; }

 private:
  unsigned count_ = 0;
};

}  // namespace

void Inbox::put(const wire::Train& train, const wire::TrainPacket& packet, std::uint16_t position,
                wire::IcrcStart start) {
  VERBENA_CHECK(put_ - taken_ < kRoom);
  Datagram& to = datagrams_[put_++ % kRoom];
  to.position = position;
  to.path = *train.path;
  to.size = wire::write_packet(train, packet, start, to.bytes);
}

std::size_t Inbox::take(std::span<wire::Segment> segments) {
  const std::size_t count = std::min(segments.size(), put_ - taken_);
  for (wire::Segment& segment : segments.first(count)) {
    const Datagram& from = datagrams_[taken_++ % kRoom];
    segment.renew(ConstBytes(from.bytes).first(from.size), from.path);
    segment.position = from.position;
  }
  return count;
}

std::size_t MemoryLink::send(std::span<const wire::Train> trains, Time) {
  for (const wire::Train& train : trains) {
    wire::TrainPacket packet;
    for (std::uint32_t i = 0; i < train.count; ++i) {
      wire::advance(train, i, packet);
      const auto position = static_cast<std::uint16_t>(i);
      theirs_.put(train, packet, position,
                  {icrc_.start(*train.path, position, packet.wire_size())});
    }
  }
  return trains.size();
}

std::size_t MemoryLink::receive(std::span<wire::Segment> segments, Time) {
  return mine_.take(segments);
}

Result<nic::Attachment> MemoryHost::attach(const wire::Address& address) {
  const std::uint8_t place = attached_++;
  VERBENA_CHECK(place < inboxes_.size());
  nic::Attachment made{
      .slot = static_cast<std::uint8_t>(place + 1),
      .link = std::make_unique<MemoryLink>(inboxes_[place], inboxes_[1U - place], segments_)};
  addresses_[place] = address;
  if (rings_) {
    channels_[place] = VERBENA_TRY(link::ShmChannels::create());
    made.link = std::make_unique<link::ShmLink>(std::move(made.link), channels_[place]);
    made.meet = [](const wire::Path&, std::uint32_t) { return kChannel; };
    if (place == 1) VERBENA_TRY(join_by_rings());
  }
  if (!shares_) return made;
  made.direct = paths_[place] =
      std::make_shared<nic::DirectPaths>(std::move(VERBENA_TRY(nic::DirectBoard::create()).board));
  made.meet = [](const wire::Path&, std::uint32_t) { return kChannel; };
  for (std::size_t i = 0; place == 1 && i < paths_.size(); ++i) {
    auto words = VERBENA_TRY(nic::ReachWords::create());
    paths_[i]->open(kChannel, {.board = paths_[1 - i]->board(),
                               .words = std::make_unique<nic::ReachWords>(std::move(words.words)),
                               .own = addresses_[i],
                               .peer = addresses_[1 - i],
                               .there = [] { return true; }});
  }
  return made;
}

Result<void> MemoryHost::join_by_rings() {
  std::array<link::RingMemory::Made, 2> rings = {VERBENA_TRY(link::RingMemory::create()),
                                                 VERBENA_TRY(link::RingMemory::create())};
  std::array<int, 2> bells{};
  VERBENA_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, bells.data()) == 0);
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    const auto number = channels_[i]->open(
        {.out = std::move(rings[i].memory),
         .in = VERBENA_TRY(link::RingMemory::open(rings[1 - i].descriptor.get())),
         .own = addresses_[i],
         .peer = addresses_[1 - i],
         .bell = bells[i]});
    VERBENA_CHECK(number && *number == kChannel);
  }
  return {};
}

std::optional<nic::OpenMemory> MemoryHost::share_memory(Bytes memory, std::uint32_t) {
  if (!shares_) return std::nullopt;
  return nic::OpenMemory{.pages = memory,
                         .offset = reinterpret_cast<std::uintptr_t>(memory.data()),
                         .home = nic::MemoryHome::kWritable};
}

Result<std::unique_ptr<nic::Notifier>> MemoryHost::make_notifier() {
  return std::make_unique<Count>();
}

nic::Waited MemoryHost::wait(const std::function<bool()>& ready, nic::Notifier*, nic::SelfDriven*) {
  for (unsigned i = 0; i < 10'000; ++i) {
    if (ready()) return nic::Waited::kReady;
    for (std::size_t which = 0; which < nics_.size(); ++which) drive(which);
  }
  return nic::Waited::kDeadlock;
}

void MemoryHost::drive(std::size_t which) { nics_.at(which)->progress(now(), 64); }

}  // namespace verbena::bench
