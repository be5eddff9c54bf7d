// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "bench/streams/ends.h"
#include "bench/streams/streams.h"
#include "bench/support/control.h"
#include "bench/support/figure.h"
#include "verbena/async/epoll_loop.h"
#include "verbena/async/queue_pair.h"
#include "verbena/async/uring_loop.h"
#include "verbena/context.h"
#include "verbena/protection_domain.h"

namespace verbena::bench {
namespace {

using verbs::leased_slice;
using verbs::rc;
using verbs::task;

constexpr std::uint32_t kLast = 1;  // the immediate of the message that ends it
constexpr std::uint32_t kStretches = 4;

/// One end, in which two coroutines take turns: while one answers, the other's receive is posted.
template <typename Loop>
class Bouncer {
 public:
  Bouncer(Loop& loop, verbs::async_queue_pair<rc> qp, verbs::memory_region memory,
          const Streams& wanted)
      : loop_(loop), qp_(std::move(qp)), memory_(std::move(memory)), wanted_(wanted) {}

  void run() {
    loop_.spawn(bounce(0));
    loop_.spawn(bounce(2));
    if (!wanted_.serve) loop_.spawn(begin());
    must(loop_.run());
  }
  [[nodiscard]] std::vector<double>& microseconds() { return microseconds_; }

 private:
  [[nodiscard]] leased_slice stretch(std::uint32_t number) const {
    return must(leased_slice::of(memory_, std::size_t{number} * wanted_.bytes, wanted_.bytes));
  }
  task<void> begin() { (void)must(co_await qp_.send(stretch(1))); }
  task<void> bounce(std::uint32_t first) {
    const auto in = stretch(first);
    const auto out = stretch(first + 1);
    for (bool last = false; !last;) {
      last = must(co_await qp_.recv(in)).immediate() == kLast;
      if (last) break;
      last = !wanted_.serve && note_round();
      // GCC 12 takes the first of two co_await that a condition chooses from.
      if (last)
        (void)must(co_await qp_.send_with_immediate(out, kLast));
      else
        (void)must(co_await qp_.send(out));
    }
    loop_.stop();
  }
  /// Whether it was the last.
  bool note_round() {
    const auto now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - begun_).count();
    if (elapsed > wanted_.seconds / 10)  // until then it warms up
      microseconds_.push_back(std::chrono::duration<double, std::micro>(now - before_).count() / 2);
    before_ = now;
    return elapsed > wanted_.seconds;
  }

  Loop& loop_;
  verbs::async_queue_pair<rc> qp_;
  verbs::memory_region memory_;
  const Streams& wanted_;
  std::vector<double> microseconds_{};
  Clock::time_point begun_ = Clock::now();
  Clock::time_point before_ = begun_;
};

template <typename Loop>
void bounce(const Streams& wanted) {
  const auto ctx = must(verbs::context::open(""));
  const auto pd = must(ctx.alloc_pd());
  auto memory =
      must(pd.alloc_mr(std::size_t{kStretches} * wanted.bytes, verbs::access::local_write));
  auto completions = must(verbs::dispatcher::create(ctx));
  auto qp = must(pd.create_qp<rc>({.send_cq = completions.cq(), .recv_cq = completions.cq()}));
  const auto control = wanted.serve ? Control::serve(wanted.address, wanted.port)
                                    : Control::join(wanted.address, wanted.port);
  connect(qp, ctx, control);
  control.meet();

  const auto loop = must(Loop::create());
  must(loop->attach(completions));
  Bouncer<Loop> end(*loop, must(verbs::async_queue_pair<rc>::attach(completions, std::move(qp))),
                    std::move(memory), wanted);
  end.run();
  control.meet();  // what was sent last is acknowledged
  if (!wanted.serve) print_latencies(end.microseconds());
}

}  // namespace

void loop_latency(const Streams& wanted) {
  if (wanted.waiting == "epoll") return bounce<verbs::epoll_loop>(wanted);
  bounce<verbs::uring_loop>(wanted);
}

}  // namespace verbena::bench
