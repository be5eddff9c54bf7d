// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "engine/key_table.h"
#include "nic/async_events.h"
#include "nic/completion_channel.h"
#include "nic/completion_queue.h"
#include "nic/device_memory.h"
#include "nic/held_events.h"
#include "nic/nic.h"
#include "nic/null_memory.h"
#include "nic/object_table.h"
#include "nic/poll_state.h"
#include "nic/queue_pair.h"
#include "nic/raw_port.h"
#include "nic/shard.h"
#include "nic/shared_receive_queue.h"
#include "nic/work_queue.h"
#include "nic/xrc_domain.h"

namespace verbena::nic {

/// What nic.cc (life, data path, progress) and nic_objects.cc (objects) share.
struct Nic::Impl final : OverrunListener {
  Impl(Host& the_host, const NicConfig& the_config, std::unique_ptr<Notifier> async_notifier);

  [[nodiscard]] Shard& shard_of(const QueuePair& qp) { return *shards[qp.home()]; }
  /// Calls `drive` for each shard that completes to a queue, in order.
  template <typename Drive>
  void for_shards_of(const CompletionQueue& cq, Drive&& drive) {
    std::uint64_t mask = cq.shards.load(std::memory_order_relaxed);
    for (std::size_t i = 0; mask != 0; ++i, mask >>= 1) {
      if ((mask & 1) != 0) drive(*shards[i]);
    }
  }
  /// Acknowledgements made now wait for a reply only while somebody is there to send them later.
  [[nodiscard]] engine::Acks acks(Time now) const {
    return poll_state.polled(now) ? engine::Acks::kHold : engine::Acks::kSend;
  }
  /// Waits until take() gives something, driving the shards between; with `driven`, in the runner's
  /// place.
  template <typename Take>
  auto wait_for(Notifier& notifier, SelfDriven* driven, Take&& take)
      -> Result<typename decltype(take())::value_type>;
  /// Fills what a path leaves open and checks the rest: invalid_argument.
  [[nodiscard]] Result<wire::Path> complete_path(wire::Path path) const;
  [[nodiscard]] Result<void> check_attributes(const engine::QpAttributes& attributes,
                                              std::uint32_t mask) const;
  [[nodiscard]] Result<void> check_init(const QpInit& init) const;
  /// Enters a region in both tables.
  [[nodiscard]] Result<MemoryRegion*> add_region(ProtectionDomain* pd, engine::MemoryKey key);
  /// Opens what of a region is shared to the peers that may have it.
  void share(MemoryRegion& region, Bytes memory, std::uint32_t access);
  void publish(const MemoryRegion& region, std::uint32_t access);
  /// On return nobody uses the region's memory any more, by its key.
  void withdraw(const MemoryRegion& region);
  /// What peers stay in is reached by packets from now on. With the objects' mutex held, as the
  /// two before.
  void give_up_memory();
  [[nodiscard]] Result<void> check_srq_size(std::uint32_t max_wr) const;

  void close(QueuePair& qp, QueuePair::Opening& opening);
  /// Gives a queue pair its place: in a shard's engine, or for raw packets beside it.
  [[nodiscard]] Result<void> settle(QueuePair& qp, const QpInit& init);
  /// Takes that place away.
  void unsettle(QueuePair& qp);
  /// Ties a receive queue that has a completion queue to it.
  void join_cq(SharedReceiveQueue& srq);
  void leave_cq(SharedReceiveQueue& srq);
  /// Gives an XRC receive queue its number, under which the domain's targets find it from now on.
  [[nodiscard]] Result<void> enter_domain(SharedReceiveQueue& srq);
  /// No target takes from it any more.
  void leave_domain(SharedReceiveQueue& srq);

  /// As Nic::detach_multicast(), with the object lock held, as is what follows.
  [[nodiscard]] Result<void> detach(QueuePair& qp, const wire::Address& group);
  [[nodiscard]] std::vector<wire::Address> groups_of(const QueuePair& qp) const;

  void overrun(CompletionQueue& cq) override;

  Host& host;
  NicConfig config;
  engine::KeyTable keys;
  AsyncEvents async_events;
  HeldEvents held_events;
  std::atomic<bool> failed{false};
  DeviceMemoryPool device_memory;
  PollState poll_state;
  std::function<void()> wake;  ///< set before the first object is made

  mutable std::mutex port_mutex;  ///< guards the next
  PortState port{};

  std::mutex objects_mutex;
  std::uint32_t next_pd = 1;
  std::uint32_t next_home = 0;
  std::unique_ptr<NullMemory> null_memory;  ///< made for the first region of nothing
  ObjectTable<ProtectionDomain> pds;
  ObjectTable<MemoryRegion> regions;
  std::map<std::uint32_t, MemoryRegion*> shared_regions{};  ///< by key: of which peers have some
  ObjectTable<MemoryWindow> windows;
  ObjectTable<AddressHandle> handles;
  ObjectTable<CompletionChannel> channels;
  ObjectTable<CompletionQueue> cqs;
  ObjectTable<SharedReceiveQueue> srqs;
  ObjectTable<QueuePair> qps;
  ObjectTable<XrcDomain> domains;
  ObjectTable<WorkQueue> work_queues;
  ObjectTable<IndirectionTable> tables;
  std::map<FileIdentity, std::weak_ptr<XrcReceives>> shared_domains;  ///< those that are open
  std::map<wire::Address, std::vector<QueuePair*>> groups;  ///< those that have queue pairs
  std::set<std::uint32_t> srq_numbers;
  std::uint32_t next_srq_number;  ///< the low bits to try next

  std::vector<std::unique_ptr<Shard>> shards;  ///< their engines point to all of the above
  RawPort raw_port;                            ///< last: it leads to queue pairs and shards
};

}  // namespace verbena::nic
