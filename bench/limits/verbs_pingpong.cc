// SPDX-License-Identifier: Apache-2.0
//
// Messages of 64 bytes to and fro by the calls that ib_write_lat and ib_send_lat make for each,
// with requests that were made once, on a provider that only carries them through memory which two
// processes share: it takes no lock, checks nothing, and tells of a request at once. A SEND is
// copied twice, since what it comes from and goes to is either program's own. What is left is what
// verbs cost who calls them.
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/limits/limits.h"
#include "bench/limits/other_process.h"
#include "bench/support/figure.h"

namespace verbena::bench {

namespace {

constexpr std::size_t kMessage = 64;
using Message = std::array<std::byte, kMessage>;
constexpr unsigned kPlaces = 4;        // of a ring or a queue, of which a ping-pong needs two
constexpr unsigned kTripsAtOnce = 64;  // between two looks at the clock

/// Of what goes one way; zeros are an empty one.
struct Lane {
  /// A SEND, and behind it its number, which says that it is there.
  struct alignas(64) Slot {
    Message message;
    std::atomic<unsigned long> number;
  };
  std::array<Slot, kPlaces> slots;
  alignas(64) Message target;  ///< of WRITEs
};

/// What was posted, first in, first out.
template <typename T>
class Queue {
 public:
  void push(const T& value) { values_[last_++ % kPlaces] = value; }
  [[nodiscard]] bool empty() const { return first_ == last_; }
  T pop() { return values_[first_++ % kPlaces]; }

 private:
  std::array<T, kPlaces> values_{};
  unsigned first_ = 0;
  unsigned last_ = 0;
};

ibv_sge piece_of(const Message& message) {
  return {.addr = reinterpret_cast<std::uint64_t>(message.data()), .length = kMessage, .lkey = 0};
}

/// One end: a queue pair and its two completion queues.
class End {
 public:
  End(Lane& out, Lane& in) : out_(out), in_(in) {
    context_.ops.post_send = post_send;
    context_.ops.post_recv = post_receive;
    context_.ops.poll_cq = poll;
    ibv_context* provider = &context_;
    asm volatile("" : "+r"(provider));  // so that nobody knows at which functions it points
    qp_.context = sends_.context = receives_.context = provider;
    qp_.qp_context = sends_.cq_context = receives_.cq_context = this;
    request_.sg_list = &sent_piece_;
    request_.num_sge = 1;
    request_.send_flags = IBV_SEND_SIGNALED;
    request_.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(out_.target.data());
    receive_.sg_list = &received_piece_;
    receive_.num_sge = 1;
    post();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  /// As ib_write_lat does: the last byte tells a message from the one before.
  void send_write() {
    sent_.back() = static_cast<std::byte>(++number_);
    send(IBV_WR_RDMA_WRITE);
  }
  /// It looks at that until the next message has come.
  void await_write() {
    const volatile std::byte& last = in_.target.back();
    const auto next = static_cast<std::byte>(++awaited_);
    while (last != next) {}
  }
  /// As ib_send_lat does, which never looks into its messages.
  void send_send() { send(IBV_WR_SEND); }
  /// It posts a receive behind each message that has come.
  void await_send() {
    take(receives_);
    post();
  }

 private:
  /// Posts the request and waits until it is told.
  void send(ibv_wr_opcode opcode) {
    request_.opcode = opcode;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(&qp_, &request_, &bad) != 0) give_up("ibv_post_send");
    take(sends_);
  }
  void post() {
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(&qp_, &receive_, &bad) != 0) give_up("ibv_post_recv");
  }
  static void take(ibv_cq& from) {
    ibv_wc completion;
    while (ibv_poll_cq(&from, 1, &completion) == 0) {}
    if (completion.status != IBV_WC_SUCCESS) give_up("a completion");
  }

  // --- The provider

  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** /*bad*/) {
    End& end = *static_cast<End*>(qp->qp_context);
    for (; wr != nullptr; wr = wr->next) {
      const auto* const from = reinterpret_cast<const void*>(wr->sg_list->addr);
      if (wr->opcode == IBV_WR_RDMA_WRITE) {
        std::memcpy(reinterpret_cast<void*>(wr->wr.rdma.remote_addr), from, kMessage);
      } else {
        Lane::Slot& slot = end.out_.slots[end.put_++ % kPlaces];
        std::memcpy(slot.message.data(), from, kMessage);
        slot.number.store(end.put_, std::memory_order_release);
      }
      end.done_.push(*wr);
    }
    return 0;
  }
  static int post_receive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** /*bad*/) {
    End& end = *static_cast<End*>(qp->qp_context);
    for (; wr != nullptr; wr = wr->next)
      end.posted_.push({.id = wr->wr_id, .to = reinterpret_cast<void*>(wr->sg_list->addr)});
    return 0;
  }
  static int poll(ibv_cq* cq, int count, ibv_wc* into) {
    End& end = *static_cast<End*>(cq->cq_context);
    int found = 0;
    if (cq == &end.sends_) {
      for (; found < count && !end.done_.empty(); ++found) end.tell_sent(into[found]);
    } else {
      for (; found < count && end.has_come(); ++found) end.tell_received(into[found]);
    }
    return found;
  }

  void tell_sent(ibv_wc& into) {
    const Done done = done_.pop();
    into = {};
    into.wr_id = done.id;
    into.opcode = done.opcode;
  }
  /// The message's line is on its way when its number's is here.
  [[nodiscard]] bool has_come() const {
    const Lane::Slot& slot = in_.slots[taken_ % kPlaces];
    __builtin_prefetch(&slot.message);
    return slot.number.load(std::memory_order_acquire) == taken_ + 1;
  }
  void tell_received(ibv_wc& into) {
    const Receive receive = posted_.pop();
    std::memcpy(receive.to, in_.slots[taken_++ % kPlaces].message.data(), kMessage);
    into = {};
    into.wr_id = receive.id;
    into.opcode = IBV_WC_RECV;
    into.byte_len = kMessage;
  }

  struct Done {
    Done() = default;
    explicit(false) Done(const ibv_send_wr& wr)
        : id(wr.wr_id), opcode(wr.opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE : IBV_WC_SEND) {}
    std::uint64_t id = 0;
    ibv_wc_opcode opcode = IBV_WC_SEND;
  };
  struct Receive {
    std::uint64_t id = 0;
    void* to = nullptr;
  };

  Lane& out_;
  Lane& in_;
  ibv_context context_{};
  ibv_qp qp_{};
  ibv_cq sends_{};
  ibv_cq receives_{};
  // The program's.
  alignas(64) Message sent_{};
  alignas(64) Message received_{};
  ibv_sge sent_piece_ = piece_of(sent_);
  ibv_sge received_piece_ = piece_of(received_);
  ibv_send_wr request_{};
  ibv_recv_wr receive_{};
  unsigned number_ = 0;   // of the WRITE sent last
  unsigned awaited_ = 0;  // of the one that came last
  // The provider's.
  Queue<Done> done_;
  Queue<Receive> posted_;
  unsigned long put_ = 0;    // SENDs into the ring
  unsigned long taken_ = 0;  // and out of the other
};

/// Half round trips of messages that are sent and awaited so, and their median.
void pingpong(const Loop& loop, void (End::*send)(), void (End::*await)()) {
  const SharedMemory there(sizeof(Lane));
  const SharedMemory back(sizeof(Lane));
  const OtherProcess other([&] {
    End end(back.as<Lane>(), there.as<Lane>());
    for (;;) {
      (end.*await)();
      (end.*send)();
    }
  });
  pin_to_processor(0);
  End end(there.as<Lane>(), back.as<Lane>());
  std::vector<double> microseconds;
  const auto begin = Clock::now();
  while (seconds_since(begin) < loop.seconds) {
    const auto start = Clock::now();
    for (unsigned i = 0; i < kTripsAtOnce; ++i) {
      (end.*send)();
      (end.*await)();
    }
    microseconds.push_back(seconds_since(start) * 1e6 / 2 / kTripsAtOnce);
  }
  print_latencies(microseconds);
}

}  // namespace

void bounce_writes(const Loop& loop) { pingpong(loop, &End::send_write, &End::await_write); }
void bounce_sends(const Loop& loop) { pingpong(loop, &End::send_send, &End::await_send); }

}  // namespace verbena::bench
