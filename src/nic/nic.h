// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/key_table.h"
#include "nic/async_events.h"
#include "nic/config.h"
#include "nic/host.h"
#include "nic/objects.h"
#include "nic/port_state.h"
#include "nic/progress.h"
#include "nic/queue_pair_report.h"
#include "nic/receive_posting.h"
#include "nic/send_posting.h"
#include "wire/address.h"

namespace verbena::nic {

class CompletionQueue;
class CompletionChannel;
class DeviceMemory;
class DeviceMemoryPool;
class PollState;
class QueuePair;
class SharedReceiveQueue;
class WorkQueue;
enum class WorkQueueState : std::uint8_t;
struct Flow;
struct FlowRule;
struct IndirectionTable;
struct XrcDomain;
struct XrcDomainInit;

/// The objects of a software RNIC and the calls that work on them: what ibv_* functions are made
/// of. Threads that poll or post drive the NIC themselves (`nic.md`, Progress); the host does the
/// rest.
///
/// Threads: every function is safe from any thread, as the verbs are: what destroys an object must
/// not run beside other uses of it. Lock order: object lock, shard, post locks, CQ, channel; nobody
/// holds a post lock while taking a shard, and who has the posters' lock only tries to. The lock of
/// the port comes before shards and is held with no other.
class Nic {
 public:
  /// Takes a slot at the configured address and starts to be driven by the host. `host` outlives
  /// the NIC.
  [[nodiscard]] static Result<std::unique_ptr<Nic>> open(Host& host, const NicConfig& config);
  /// All objects are gone (the C ABI closes in order or leaks on purpose at exit). The last ACKs
  /// are flushed.
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  [[nodiscard]] const NicConfig& config() const;
  [[nodiscard]] PortState port() const;
  /// For the host: what became of the port. Raises the events that tell programs what is new: port
  /// error, port active, GID change. While the port is down nothing is sent or received, as with a
  /// pulled cable.
  void set_port(const PortState& state);
  [[nodiscard]] engine::Counters counters() const;
  /// Reports of the queue pairs with numbers above `above`, in order, as many as fit; returns how
  /// many.
  [[nodiscard]] std::size_t report_queue_pairs(std::uint32_t above,
                                               std::span<QueuePairReport> to) const;
  [[nodiscard]] Host& host() const;

  // Objects. invalid_argument for values that make no sense, not_enough_memory above a limit,
  // device_or_resource_busy when something still uses what is to be destroyed. Destroying a CQ, SRQ
  // or QP waits until its events were acknowledged.

  [[nodiscard]] Result<ProtectionDomain*> alloc_pd();
  /// Another name for a protection domain: keys of both work with queues of both. Queues made with
  /// it have their storage in `memory`, which is never called with a lock of ours held.
  [[nodiscard]] Result<ProtectionDomain*> alloc_parent_domain(ProtectionDomain* pd,
                                                              std::pmr::memory_resource* memory);
  [[nodiscard]] Result<void> dealloc_pd(ProtectionDomain* pd);

  /// Registers [base, base + length) under `address` (the IOVA). Access rights as engine::Access;
  /// remote write or atomic needs local write, and nothing can be flushed to persistence
  /// (operation_not_supported). bad_address when the range wraps around, and for memory on demand
  /// that no page can be at.
  [[nodiscard]] Result<MemoryRegion*> register_memory(ProtectionDomain* pd, std::byte* base,
                                                      std::uint64_t length, std::uint64_t address,
                                                      std::uint32_t access);
  /// Registers some of the device's own memory, or none, whose first byte then has address 0. As
  /// register_memory(); invalid_argument for bytes that it does not have.
  [[nodiscard]] Result<MemoryRegion*> register_memory(ProtectionDomain* pd, DeviceMemory& memory,
                                                      std::uint64_t offset, std::uint64_t length,
                                                      std::uint32_t access);
  /// The device's own memory.
  [[nodiscard]] DeviceMemoryPool& device_memory();
  /// Registers all of the process's memory, on demand, each byte under its own address.
  [[nodiscard]] Result<MemoryRegion*> register_all_memory(ProtectionDomain* pd,
                                                          std::uint32_t access);
  /// A region of nothing: it reads as zeros, and what is written is gone. No peer reaches it.
  [[nodiscard]] Result<MemoryRegion*> register_nothing(ProtectionDomain* pd);
  /// The bytes of an on-demand region that advice is about; the errors are those of
  /// ibv_advise_mr(3). invalid_argument: the key is a window's; bad_address: there is no such key,
  /// or not all of the range is its; operation_not_permitted: another protection domain's, or
  /// `writes` and the region may not be written; no_such_file_or_directory: not on demand.
  [[nodiscard]] Result<Bytes> find_on_demand(const ProtectionDomain* pd, std::uint32_t key,
                                             std::uint64_t address, std::uint64_t length,
                                             bool writes);
  /// Other rights, or another protection domain, under the same key. As register_memory();
  /// device_or_resource_busy while windows are bound to it.
  [[nodiscard]] Result<void> change_memory(MemoryRegion* region, ProtectionDomain* pd,
                                           std::uint32_t access);
  /// On return nothing of this NIC touches the memory any more. device_or_resource_busy while
  /// windows are bound to it.
  [[nodiscard]] Result<void> deregister_memory(MemoryRegion* region);

  /// Opens nothing before a queue pair's BIND_WINDOW says what.
  [[nodiscard]] Result<MemoryWindow*> alloc_window(ProtectionDomain* pd, engine::WindowType type);
  [[nodiscard]] Result<void> dealloc_window(MemoryWindow* window);

  [[nodiscard]] Result<CompletionChannel*> create_channel();
  [[nodiscard]] Result<void> destroy_channel(CompletionChannel* channel);
  [[nodiscard]] Notifier& notifier(CompletionChannel* channel);
  /// The cookie of the next completion queue that notified. Waits when the channel's descriptor is
  /// blocking, else operation_would_block; interrupted after a signal. Each event must be
  /// acknowledged.
  [[nodiscard]] Result<void*> next_event(CompletionChannel* channel);

  /// `cookie` is what events name (the C object). `capacity` is what the program asked for; at
  /// least that is granted. `pd`, if there is one, says where its storage is.
  [[nodiscard]] Result<CompletionQueue*> create_cq(std::uint32_t capacity,
                                                   CompletionChannel* channel, void* cookie,
                                                   ProtectionDomain* pd = nullptr,
                                                   const CqOptions& options = {});
  [[nodiscard]] Result<void> resize_cq(CompletionQueue* cq, std::uint32_t capacity);
  /// From now on; an event that waits goes out.
  void moderate_cq(CompletionQueue* cq, const CqModeration& moderation);
  [[nodiscard]] Result<void> destroy_cq(CompletionQueue* cq);
  [[nodiscard]] std::uint32_t capacity(const CompletionQueue* cq) const;
  void acknowledge(CompletionQueue* cq, std::uint32_t events);
  /// Drives the shard inline, then takes completions, and into `times`, unless it is empty, when
  /// they were made. Returns how many. operation_would_block never; io_error after an overrun.
  [[nodiscard]] Result<std::uint32_t> poll(CompletionQueue* cq,
                                           std::span<engine::Completion> completions,
                                           std::span<Time> times = {});
  // The parts of nic::poll() (`nic/polling.h`).

  /// Behind a poll that found something: whether it may end without driving.
  [[nodiscard]] bool goes_undriven(CompletionQueue& cq);
  /// Drives the shards that complete to the queue.
  void drive(CompletionQueue& cq);
  /// One event on the channel at the next completion (or the next solicited or failed one). Covers
  /// only later ones.
  [[nodiscard]] Result<void> arm(CompletionQueue* cq, bool solicited_only);

  /// Opens the domain of a file, or makes one. resource_unavailable_try_again when there is none
  /// for the file and none may be made, invalid_argument when there is one and it must be new. A
  /// domain is known to this NIC only.
  [[nodiscard]] Result<XrcDomain*> open_domain(const XrcDomainInit& init);
  /// device_or_resource_busy while something is there that was made through it.
  [[nodiscard]] Result<void> close_domain(XrcDomain* domain);

  [[nodiscard]] Result<SharedReceiveQueue*> create_srq(SrqInit& init, void* cookie);
  /// Works on the queue's receives that have tags; done when it returns. invalid_argument where it
  /// has none, else as engine::TagList::add().
  [[nodiscard]] Result<void> serve(SharedReceiveQueue* srq, TagRequest& request);
  /// Sets what is given: another size, which must hold what is posted, and a limit, at most the
  /// size. Nothing changes on an error.
  [[nodiscard]] Result<void> modify_srq(SharedReceiveQueue* srq,
                                        std::optional<std::uint32_t> max_wr,
                                        std::optional<std::uint32_t> limit);
  [[nodiscard]] SrqAttributes query_srq(const SharedReceiveQueue* srq) const;
  [[nodiscard]] Result<void> destroy_srq(SharedReceiveQueue* srq);
  /// By which XRC requests name it; 0 for a basic one.
  [[nodiscard]] std::uint32_t number(const SharedReceiveQueue* srq) const;
  void acknowledge(SharedReceiveQueue* srq, std::uint32_t events);

  [[nodiscard]] Result<QueuePair*> create_qp(QpInit& init, void* cookie);
  /// Opens an XRC_RECV queue pair of the domain once more, so that its events are told with this
  /// cookie too. invalid_argument when the domain has none of that number.
  [[nodiscard]] Result<QueuePair*> open_qp(XrcDomain* domain, std::uint32_t number, void* cookie);
  /// Closes what was opened with `cookie`, which only a queue pair that was opened again needs;
  /// with the last opening the queue pair goes. device_or_resource_busy while it is attached to a
  /// multicast group.
  [[nodiscard]] Result<void> destroy_qp(QueuePair* qp, const void* cookie = nullptr);
  [[nodiscard]] Result<void> modify_qp(QueuePair* qp, const engine::QpAttributes& attributes,
                                       std::uint32_t mask);
  [[nodiscard]] engine::QpAttributes query_qp(QueuePair* qp) const;
  [[nodiscard]] std::uint32_t number(const QueuePair* qp) const;
  void acknowledge(QueuePair* qp, std::uint32_t events, const void* cookie = nullptr);

  /// What is sent to a multicast group reaches the UD queue pair too; attached twice is attached
  /// once. invalid_argument for another type and for an address that is no group, not_enough_memory
  /// at a limit, else why the group cannot be received.
  [[nodiscard]] Result<void> attach_multicast(QueuePair* qp, const wire::Address& group);
  /// invalid_argument when it is not attached.
  [[nodiscard]] Result<void> detach_multicast(QueuePair* qp, const wire::Address& group);
  void detach_all_multicast(QueuePair* qp);

  // Posts without driving; send(), or ring_sends() or ring_receives() after the last one of a call,
  // tells the shard.

  [[nodiscard]] SendPosting post_sends(QueuePair* qp);
  /// One request, copied in with its pieces.
  [[nodiscard]] Result<void> post_send(QueuePair* qp, const engine::SendRequest& request);
  /// Several, each written where it will lie.
  [[nodiscard]] ReceivePosting post_receives(QueuePair* qp);
  /// One request, copied in with its pieces. Errors as of ReceivePosting::begin().
  [[nodiscard]] Result<void> post_receive(QueuePair* qp, const engine::ReceiveRequest& request);
  /// Does a WRITE or READ alone that is one copy, without a place in the send queue. False: it is
  /// to be posted. For queue pairs that do so (QueuePair::copies()); others learn it by send().
  [[nodiscard]] bool do_at_once(QueuePair* qp, const engine::SendWqe& wqe);
  /// Sends a SEND alone, whose receiver waits for it, and then publishes it; `posting`, which is
  /// new, is over then. False: it is to be posted. For queue pairs that do so
  /// (QueuePair::sends_short()).
  [[nodiscard]] bool send_short(QueuePair* qp, SendPosting& posting,
                                const engine::ShortRequest& request);
  /// Does what a posting has on the spot, if that is one request which can be, or publishes it and
  /// tells the shard: nothing is to follow. Errors as of SendPosting::publish().
  [[nodiscard]] Result<void> send(QueuePair* qp, SendPosting& posting);
  void ring_sends(QueuePair* qp);
  void ring_receives(QueuePair* qp);
  /// Needs no bell: it waits there for a packet.
  [[nodiscard]] Result<void> post_receive(SharedReceiveQueue* srq,
                                          const engine::ReceiveRequest& request);

  // Raw packets. A raw packet queue pair sends frames to the host's segment, and gets those that a
  // rule steers to it; one that spreads hands them to the work queues of its table and neither
  // sends nor changes its state: operation_not_supported.

  /// invalid_argument for a rule that says anything twice; operation_not_supported for a queue pair
  /// that frames cannot be steered to. While there is a rule the queue pair is in use.
  [[nodiscard]] Result<Flow*> create_flow(QueuePair* qp, const FlowRule& rule);
  void destroy_flow(Flow* flow);

  [[nodiscard]] Result<WorkQueue*> create_wq(WorkQueueInit& init);
  /// As WorkQueue::modify().
  [[nodiscard]] Result<void> modify_wq(WorkQueue* wq, std::optional<WorkQueueState> from,
                                       WorkQueueState to);
  [[nodiscard]] Result<void> destroy_wq(WorkQueue* wq);
  [[nodiscard]] std::uint32_t number(const WorkQueue* wq) const;
  /// Needs no bell.
  [[nodiscard]] Result<void> post_receive(WorkQueue* wq, const engine::ReceiveRequest& request);
  /// Of as many entries as a power of two; one may be in it several times.
  [[nodiscard]] Result<IndirectionTable*> create_table(std::span<WorkQueue* const> queues);
  [[nodiscard]] Result<void> destroy_table(IndirectionTable* table);

  [[nodiscard]] Result<AddressHandle*> create_ah(ProtectionDomain* pd, const wire::Path& path);
  [[nodiscard]] Result<void> destroy_ah(AddressHandle* ah);

  // Asynchronous events.

  [[nodiscard]] Notifier& async_notifier();
  [[nodiscard]] Result<AsyncEvent> next_async_event();

  // Progress, for the host.

  /// Receives, times out, sends; at most `budget` datagrams. Returns whether there was something to
  /// do. Gives way when another thread drives the shard.
  Progress progress(Time now, std::uint32_t budget);
  /// The last progress() of a process that ends: what was held for somebody who is expected back
  /// leaves, too.
  void finish(Time now, std::uint32_t budget);
  /// Before a host sleeps on the descriptors.
  [[nodiscard]] MaySleep may_sleep(Time now);
  /// When progress() should be called although the link is silent. A host asks before it sleeps,
  /// and says when it comes back `at_latest` anyhow: it is woken only for something earlier.
  [[nodiscard]] std::optional<Time> next_timeout(
      std::optional<Time> at_latest = std::nullopt) const;
  /// The link's descriptors for the runner's epoll.
  [[nodiscard]] std::span<const int> descriptors() const;
  /// Which application threads do the runner's work.
  [[nodiscard]] PollState& poll_state();
  /// It cannot work any more, and the program is told once, by an event. Any locks may be held.
  void raise_fatal();

 private:
  struct Impl;
  explicit Nic(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena::nic
