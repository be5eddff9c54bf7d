// SPDX-License-Identifier: Apache-2.0
//
// Messages of 64 bytes to and fro by the calls that ib_write_lat and ib_send_lat make for each, on
// a provider that only carries them through memory which two processes share: it takes no lock,
// checks nothing, and tells of a request at once. What is left is what verbs cost who calls them.
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bench/limits/limits.h"
#include "bench/limits/other_process.h"
#include "bench/support/figure.h"

namespace verbena::bench {

namespace {

constexpr std::size_t kMessage = 64;
using Message = std::array<std::byte, kMessage>;
constexpr unsigned kPlaces = 64;  // of a ring or a queue, of which a ping-pong needs two

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

/// One end: a queue pair and its two completion queues.
class End {
 public:
  End(Lane& out, Lane& in) : out_(out), in_(in) {
    context_.ops.post_send = post_send;
    context_.ops.post_recv = post_receive;
    context_.ops.poll_cq = poll;
    qp_.context = sends_.context = receives_.context = &context_;
    qp_.qp_context = sends_.cq_context = receives_.cq_context = this;
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  /// As both programs do: makes a message, posts it, and waits until that is told.
  void send(ibv_wr_opcode opcode) {
    memory_.back() = static_cast<std::byte>(++sent_);
    ibv_sge piece{
        .addr = reinterpret_cast<std::uint64_t>(memory_.data()), .length = kMessage, .lkey = 0};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(out_.target.data());
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(&qp_, &request, &bad) != 0) give_up("ibv_post_send");
    take(sends_);
  }
  /// As ib_write_lat does: looks at the last byte until the next message has come.
  void await_write() {
    const volatile std::byte& last = in_.target.back();
    const auto next = static_cast<std::byte>(++came_);
    while (last != next) {}
  }
  /// As ib_send_lat does: posts a receive behind each message that has come.
  void await_send() {
    take(receives_);
    post();
  }
  void post() {
    ibv_sge piece{
        .addr = reinterpret_cast<std::uint64_t>(memory_.data()), .length = kMessage, .lkey = 0};
    ibv_recv_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(&qp_, &request, &bad) != 0) give_up("ibv_post_recv");
  }

 private:
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
  [[nodiscard]] bool has_come() const {
    return in_.slots[taken_ % kPlaces].number.load(std::memory_order_acquire) == taken_ + 1;
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
  alignas(64) Message memory_{};  // the program's
  unsigned sent_ = 0;
  unsigned came_ = 0;
  Queue<Done> done_;
  Queue<Receive> posted_;
  unsigned long put_ = 0;
  unsigned long taken_ = 0;
};

/// Half a round trip of messages that are sent by `opcode` and awaited by `await`.
void pingpong(const Loop& loop, ibv_wr_opcode opcode, void (End::*await)()) {
  const SharedMemory there(sizeof(Lane));
  const SharedMemory back(sizeof(Lane));
  const OtherProcess other([&] {
    End end(back.as<Lane>(), there.as<Lane>());
    end.post();
    for (;;) {
      (end.*await)();
      end.send(opcode);
    }
  });
  pin_to_processor(0);
  End end(there.as<Lane>(), back.as<Lane>());
  end.post();
  const double trips = calls_per_second(loop.seconds, 1024, [&] {
    end.send(opcode);
    (end.*await)();
  });
  print_figure(1e6 / trips / 2, "us");
}

}  // namespace

void bounce_writes(const Loop& loop) { pingpong(loop, IBV_WR_RDMA_WRITE, &End::await_write); }
void bounce_sends(const Loop& loop) { pingpong(loop, IBV_WR_SEND, &End::await_send); }

}  // namespace verbena::bench
