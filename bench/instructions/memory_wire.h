// SPDX-License-Identifier: Apache-2.0
//
// NICs on a network in memory that does nothing twice differently: no allocation for a packet, no
// thread, a clock that moves by a little each time it is read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/sys.h"
#include "base/time.h"
#include "link/link.h"
#include "link/shm.h"
#include "nic/host.h"
#include "wire/icrc_memo.h"
#include "wire/train.h"

namespace verbena::bench {

/// The datagrams on their way to one place, as a socket brings them: joined, without their
/// identification. More than fit are a programmer's error.
class Inbox {
 public:
  static constexpr std::size_t kRoom = 256;
  void put(const wire::Train& train, const wire::TrainPacket& packet, std::uint16_t position,
           wire::IcrcStart start);
  std::size_t take(std::span<wire::Segment> segments);

 private:
  struct Datagram {
    alignas(64) std::array<std::byte, 4352> bytes{};
    std::size_t size = 0;
    wire::Path path{};
    std::uint16_t position = 0;
  };
  std::vector<Datagram> datagrams_ = std::vector<Datagram>(kRoom);
  std::size_t put_ = 0;
  std::size_t taken_ = 0;
};

/// Between two inboxes.
class MemoryLink final : public link::Link {
 public:
  MemoryLink(Inbox& mine, Inbox& theirs, bool segments)
      : mine_(mine), theirs_(theirs), segments_(segments) {}
  std::size_t send(std::span<const wire::Train> trains, Time now) override;
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  [[nodiscard]] bool segments(const wire::Path& /*path*/) override { return segments_; }

 private:
  Inbox& mine_;
  Inbox& theirs_;
  bool segments_;
  wire::IcrcMemo icrc_;
};

/// Two NICs at most, driven by who polls.
class MemoryHost final : public nic::Host {
 public:
  [[nodiscard]] Time now() override { return clock_ += kTick; }
  [[nodiscard]] std::uint64_t random() override { return random_ += 0x9E3779B97F4A7C15ULL; }
  [[nodiscard]] Result<nic::Attachment> attach(const wire::Address& address) override;
  [[nodiscard]] Result<std::unique_ptr<nic::Notifier>> make_notifier() override;
  void adopt(nic::Nic& nic) override { nics_.push_back(&nic); }
  void release(nic::Nic& nic) override { std::erase(nics_, &nic); }
  void wake(nic::Nic&) override {}
  [[nodiscard]] nic::Waited wait(const std::function<bool()>& ready, nic::Notifier*,
                                 nic::SelfDriven*) override;
  [[nodiscard]] std::optional<nic::OpenMemory> share_memory(Bytes memory,
                                                            std::uint32_t access) override;
  /// Before the first NIC: they have each other's memory, too.
  void share() { shares_ = true; }
  /// Before the first NIC: packets between them go by rings.
  void use_rings() { rings_ = true; }
  /// Before the first NIC: packets of one length share sends.
  void use_segments() { segments_ = true; }
  /// Lets a NIC work, as the runner does: the first that was opened, or the second.
  void drive(std::size_t which);

 private:
  static constexpr Duration kTick = std::chrono::nanoseconds(50);
  Time clock_{std::chrono::seconds(1)};
  std::uint64_t random_ = 0;
  std::array<Inbox, 2> inboxes_;
  std::uint8_t attached_ = 0;
  std::vector<nic::Nic*> nics_;
  [[nodiscard]] Result<void> join_by_rings();

  bool shares_ = false;
  bool rings_ = false;
  bool segments_ = false;
  std::array<std::shared_ptr<link::ShmChannels>, 2> channels_{};
  std::array<std::shared_ptr<nic::DirectPaths>, 2> paths_{};
  std::array<wire::Address, 2> addresses_{};
};

}  // namespace verbena::bench
