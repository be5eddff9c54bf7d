// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "bench/streams/ends.h"
#include "bench/streams/streams.h"
#include "bench/support/control.h"
#include "bench/support/figure.h"
#include "verbena/context.h"
#include "verbena/protection_domain.h"

namespace verbena::bench {
namespace {

using verbs::rc;

constexpr std::uint32_t kLast = 1;  // the immediate of the message that ends it

/// One end with so many buffers of one size, which are used in turn.
class End {
 public:
  End(const Streams& wanted, std::size_t buffers)
      : copies_(wanted.copying == "copied"),
        size_(std::min<std::size_t>(wanted.bytes, wanted.sizes.buffer_size)),
        buffers_(buffers),
        ctx_(must(verbs::context::open(""))),
        pd_(must(ctx_.alloc_pd())),
        cq_(must(ctx_.create_cq({.depth = static_cast<std::uint32_t>(buffers)}))),
        memory_(must(pd_.alloc_mr(size_ * buffers, verbs::access::local_write))),
        user_(must(pd_.alloc_mr(wanted.bytes, verbs::access::local_write))),
        qp_(must(pd_.create_qp<rc>({.send_cq = cq_, .recv_cq = cq_, .caps = caps_of(buffers)}))) {}

  void connect(const Control& control) { bench::connect(qp_, ctx_, control); }

  /// Sends what a user has written, from `at` in it on; returns how much.
  std::size_t send(std::size_t at, bool last) {
    while (under_way_ == buffers_) under_way_ -= completions().size();
    const std::size_t size = std::min(size_, user_.size() - at);
    const std::size_t buffer = next_++ % buffers_;
    if (copies_) std::memcpy(bytes_of(buffer), user_.bytes().data() + at, size);
    const auto from = must(memory_.slice(buffer * size_, size));
    const verbs::posting how{.flags = verbs::send_flags::signaled};
    must(qp_.post(last ? verbs::send_request<rc>::send_with_immediate({&from, 1}, kLast, how)
                       : verbs::send_request<rc>::send({&from, 1}, how)));
    ++under_way_;
    return size;
  }

  void post_receives() {
    for (std::size_t buffer = 0; buffer < buffers_; ++buffer) post_receive(buffer);
  }

  /// Until the last message. A writer that was killed says nothing to a queue pair that only
  /// receives.
  void read_all(const Control& control) {
    constexpr std::uint32_t kLooks = 1 << 16;  // in vain, some milliseconds
    std::size_t at = 0;
    std::uint32_t looks = 0;
    for (bool last = false; !last;) {
      const auto arrived = completions();
      looks = arrived.empty() ? looks + 1 : 0;
      if (looks % kLooks == kLooks - 1) control.expect_peer();
      for (const verbs::work_completion& one : arrived) {
        if (one.byte_len() > user_.size() - at) at = 0;  // the next of the user's messages
        if (copies_) std::memcpy(user_.bytes().data() + at, bytes_of(one.wr_id()), one.byte_len());
        at += one.byte_len();
        last = one.immediate() == kLast;
        post_receive(one.wr_id());
      }
    }
  }

 private:
  static verbs::qp_caps caps_of(std::size_t buffers) {
    const auto each = static_cast<std::uint32_t>(buffers);
    return {.max_send_wr = each, .max_recv_wr = each};
  }
  [[nodiscard]] std::byte* bytes_of(std::size_t buffer) const {
    return memory_.bytes().data() + buffer * size_;
  }
  void post_receive(std::size_t buffer) {
    const auto into = must(memory_.slice(buffer * size_, size_));
    must(qp_.post(verbs::recv_request({&into, 1}, buffer)));
  }
  std::span<const verbs::work_completion> completions() {
    const auto got = must(cq_.poll(room_));
    for (const verbs::work_completion& one : got) must(one.result());
    return got;
  }

  bool copies_;
  std::size_t size_;
  std::size_t buffers_;
  verbs::context ctx_;
  verbs::protection_domain pd_;
  verbs::completion_queue cq_;
  verbs::memory_region memory_;
  verbs::memory_region user_;  ///< begins a page, as the other does
  verbs::queue_pair<rc> qp_;
  verbs::wc_batch<16> room_{};
  std::size_t next_ = 0;
  std::size_t under_way_ = 0;
};

void serve(const Streams& wanted) {
  const Control control = Control::serve(wanted.address, wanted.port);
  End end(wanted, wanted.sizes.receives);
  end.connect(control);
  end.post_receives();
  control.meet();
  end.read_all(control);
  control.meet();
}

void run(const Streams& wanted) {
  const Control control = Control::join(wanted.address, wanted.port);
  const std::size_t size = std::min<std::size_t>(wanted.bytes, wanted.sizes.buffer_size);
  End end(wanted, std::clamp<std::size_t>(wanted.sizes.send_buffer / size, 1, wanted.sizes.sends));
  end.connect(control);
  control.meet();
  std::size_t messages = 0;
  const auto begin = Clock::now();
  for (bool last = false; !last; ++messages) {
    last = seconds_since(begin) > wanted.seconds;
    for (std::size_t at = 0; at != wanted.bytes;)
      at += end.send(at, last && wanted.bytes - at <= size);
  }
  control.meet();  // the peer has read all
  print_figure(static_cast<double>(messages) * wanted.bytes / seconds_since(begin) / 1e9, "GB/s");
}

}  // namespace

void sends_throughput(const Streams& wanted) { wanted.serve ? serve(wanted) : run(wanted); }

}  // namespace verbena::bench
