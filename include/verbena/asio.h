// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "verbena/asio_error.h"
#include "verbena/async/queue_pair.h"
#include "verbena/async/shared_receive_queue.h"

/// Boost.Asio: queue pairs with completion tokens. Handlers get a `boost::system::error_code` and
/// the `work_completion`; they are posted to their associated executor, use their associated
/// allocator, and can be cancelled by their associated slot (terminal and partial: the request
/// itself goes on, and keeps its leases).
namespace verbena::verbs {

namespace detail {

/// Runs a dispatcher in an execution context, while operations wait in it.
class asio_pump : public std::enable_shared_from_this<asio_pump> {
 public:
  asio_pump(const boost::asio::any_io_executor& executor, dispatcher from, int fd)
      : inner(std::move(from)),
        strand_(boost::asio::make_strand(executor)),
        descriptor_(strand_, fd),
        timer_(strand_) {}

  void begin() {
    inner.on_wake(
        [weak = weak_from_this()] {
          if (const auto self = weak.lock()) self->kick();
        },
        true);
  }
  /// Handlers get `operation_aborted`. Any thread.
  void close() {
    inner.close();
    boost::asio::post(strand_, [self = shared_from_this()] {
      boost::system::error_code ignored;
      self->descriptor_.close(ignored);
      self->set_timer();
    });
  }

  dispatcher inner;

 private:
  void kick() {
    if (kicked_.exchange(true)) return;
    boost::asio::post(strand_, [self = shared_from_this()] {
      self->kicked_ = false;
      self->run();
    });
  }
  void run() {
    const auto done = inner.process();
    if (!done) inner.close(done.error());
    set_timer();
    if (done && done->more) {
      kick();
    } else if (inner.waiting() == 0) {
      // The context is not kept busy for nobody.
      boost::system::error_code ignored;
      if (waits_) descriptor_.cancel(ignored);
    } else if (!waits_ && descriptor_.is_open()) {
      waits_ = true;
      descriptor_.async_wait(
          boost::asio::posix::stream_descriptor::wait_read,
          [self = shared_from_this()](boost::system::error_code error) { self->waited(error); });
    }
  }
  /// Cancelled, somebody may have come meanwhile.
  void waited(boost::system::error_code error) {
    waits_ = false;
    if (!descriptor_.is_open()) return;
    if (error && error != boost::asio::error::operation_aborted)
      inner.close(Error(error, "async_wait"));
    else
      run();
  }

  /// For the deadlines of operations that are awaited in it as in another loop.
  void set_timer() {
    const auto due = inner.next_deadline();
    if (due == due_) return;
    due_ = due;
    if (!due) {
      timer_.cancel();
      return;
    }
    timer_.expires_at(*due);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (error) return;
      self->due_.reset();
      self->run();
    });
  }

  boost::asio::strand<boost::asio::any_io_executor> strand_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer timer_;
  std::optional<async_clock::time_point> due_;  // the strand's: when the timer ends
  bool waits_ = false;                          // the strand's
  std::atomic<bool> kicked_{false};
};

/// One request of a handler's. It is in memory of the handler's allocator until it ends.
template <typename State, typename Request, typename Handler>
class asio_operation final : public operation {
 public:
  asio_operation(State* state, pending_request<Request> what, Handler handler,
                 const boost::asio::any_io_executor& executor)
      : state_(state),
        what_(std::move(what)),
        handler_(std::move(handler)),
        work_(boost::asio::make_work_guard(handler_, executor)) {}
  ~asio_operation() override { withdraw(); }
  asio_operation(const asio_operation&) = delete;
  asio_operation& operator=(const asio_operation&) = delete;

  static void begin(State* state, pending_request<Request> what, Handler handler,
                    const boost::asio::any_io_executor& executor) {
    allocator of(boost::asio::get_associated_allocator(handler));
    asio_operation* const made = traits::allocate(of, 1);
    // Constructed in place: the base class cannot be moved.
    ::new (static_cast<void*>(made))
        asio_operation(state, std::move(what), std::move(handler), executor);
    made->start_now();
  }

 private:
  using allocator = typename std::allocator_traits<
      boost::asio::associated_allocator_t<Handler>>::template rebind_alloc<asio_operation>;
  using traits = std::allocator_traits<allocator>;
  /// A slot may emit while the operation ends in another thread.
  struct cancel_link {
    std::mutex mutex;
    asio_operation* of = nullptr;
  };

  void start_now() {
    if (state_ == nullptr) {
      finish(
          fail(std::errc::bad_file_descriptor, "operation", "what it is posted to was moved from"));
      return;
    }
    prepare(state_->core);
    if (auto slot = boost::asio::get_associated_cancellation_slot(handler_); slot.is_connected()) {
      link_ = std::make_shared<cancel_link>();
      link_->of = this;
      slot.assign([link = link_](boost::asio::cancellation_type type) {
        using boost::asio::cancellation_type;
        constexpr auto wanted = cancellation_type::terminal | cancellation_type::partial;
        if ((type & wanted) == cancellation_type::none) return;
        const std::scoped_lock lock(link->mutex);
        if (link->of != nullptr) link->of->cancel();
      });
    }
    // After a success it may be gone.
    auto started = start(what_.lane_of(*state_), std::move(what_.holds));
    if (!started) finish(std::unexpected(std::move(started).error()));
  }
  [[nodiscard]] Result<> post(std::uint64_t wr_id) override { return what_.post(*state_, wr_id); }
  void finish(Result<work_completion> how) noexcept override {
    if (link_ != nullptr) {
      const std::scoped_lock lock(link_->mutex);
      link_->of = nullptr;
    }
    boost::system::error_code code;
    work_completion wc;
    if (how) {
      wc = *how;
      if (const auto went = wc.result(); !went) code = to_asio(went.error());
    } else {
      code = to_asio(how.error());
    }
    auto work = std::move(work_);
    auto handler = std::move(handler_);
    allocator of(boost::asio::get_associated_allocator(handler));
    this->~asio_operation();
    traits::deallocate(of, this, 1);
    boost::asio::post(
        work.get_executor(),
        boost::asio::bind_allocator(of, [handler = std::move(handler), code, wc]() mutable {
          std::move(handler)(code, wc);
        }));
  }

  State* state_;
  pending_request<Request> what_;
  Handler handler_;
  boost::asio::executor_work_guard<
      boost::asio::associated_executor_t<Handler, boost::asio::any_io_executor>>
      work_;
  std::shared_ptr<cancel_link> link_;
};

/// A request by a completion token.
template <typename State, typename Request, typename Token>
auto begin_in_asio(State* state, const boost::asio::any_io_executor& executor,
                   pending_request<Request> what, Token&& token) {
  return boost::asio::async_initiate<Token, void(boost::system::error_code, work_completion)>(
      [state, executor](auto handler, pending_request<Request> request) {
        using made = asio_operation<State, Request, std::decay_t<decltype(handler)>>;
        made::begin(state, std::move(request), std::move(handler), executor);
      },
      token, std::move(what));
}

}  // namespace detail

/// A queue pair as an I/O object of Asio's. Its dispatcher and execution context outlive what waits
/// in it; destroying it aborts that.
///
/// Threads: operations are started in any, one at a time in those that share it with a destructor.
template <service S>
class asio_queue_pair {
 public:
  using executor_type = boost::asio::any_io_executor;  ///< any

  /// What waits goes on in that executor, where its handler has none of its own.
  asio_queue_pair(async_queue_pair<S> inner, executor_type executor) noexcept
      : inner_(std::move(inner)), executor_(std::move(executor)) {}
  /// Asio's name for it.
  [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }
  /// For what Asio's form does not have.
  [[nodiscard]] async_queue_pair<S>& inner() noexcept { return inner_; }

  /// @{
  /// As `async_queue_pair` has it, with a completion token. An Error comes as an error_code.
  template <typename Token>
  auto async_recv(const leased_slice& into, Token&& token)
    requires can_receive<S>
  {
    return begin(detail::single(recv_request(detail::one(into)), into), std::forward<Token>(token));
  }
  template <typename Token>
  auto async_send(const leased_slice& from, Token&& token)
    requires(can_send<S> && !is_addressed<S>)
  {
    return sending(send_request<S>::send(detail::one(from)), from, std::forward<Token>(token));
  }
  template <typename Token>
  auto async_send(const datagram_address& to, const leased_slice& from, Token&& token)
    requires is_addressed<S>
  {
    auto what = detail::single(send_request<S>::send(to, detail::one(from)), from);
    what.holds.add(detail::access_to::keep_of(to.ah));
    return begin(std::move(what), std::forward<Token>(token));
  }
  template <typename Token>
  auto async_send_with_immediate(const leased_slice& from, std::uint32_t immediate, Token&& token)
    requires can_write<S>
  {
    return sending(send_request<S>::send_with_immediate(detail::one(from), immediate), from,
                   std::forward<Token>(token));
  }
  template <typename Token>
  auto async_write_remote(const leased_slice& from, const remote_region& to, Token&& token)
    requires can_write<S>
  {
    return sending(send_request<S>::write(detail::one(from), to), from, std::forward<Token>(token));
  }
  template <typename Token>
  auto async_write_remote_with_immediate(const leased_slice& from, const remote_region& to,
                                         std::uint32_t immediate, Token&& token)
    requires can_write<S>
  {
    return sending(send_request<S>::write_with_immediate(detail::one(from), to, immediate), from,
                   std::forward<Token>(token));
  }
  template <typename Token>
  auto async_read_remote(const leased_slice& into, const remote_region& from, Token&& token)
    requires can_read<S>
  {
    return sending(send_request<S>::read(detail::one(into), from), into,
                   std::forward<Token>(token));
  }
  template <typename Token>
  auto async_fetch_add(const leased_slice& into, const remote_region& at, std::uint64_t add,
                       Token&& token)
    requires can_read<S>
  {
    return sending(send_request<S>::fetch_add(detail::one(into), at, add), into,
                   std::forward<Token>(token));
  }
  template <typename Token>
  auto async_compare_swap(const leased_slice& into, const remote_region& at, std::uint64_t expected,
                          std::uint64_t desired, Token&& token)
    requires can_read<S>
  {
    return sending(send_request<S>::compare_swap(detail::one(into), at, expected, desired), into,
                   std::forward<Token>(token));
  }
  /// @}
  /// As async_queue_pair::submit.
  template <typename Request, typename Token>
  auto async_submit(const Request& request, leases holds, Token&& token) {
    return begin(detail::pending_request<Request>{request, {}, false, std::move(holds)},
                 std::forward<Token>(token));
  }

 private:
  template <typename Token>
  auto sending(const send_request<S>& request, const leased_slice& memory, Token&& token) {
    return begin(detail::single(request, memory), std::forward<Token>(token));
  }
  template <typename Request, typename Token>
  auto begin(detail::pending_request<Request> what, Token&& token) {
    return detail::begin_in_asio(inner_.state(), executor_, std::move(what),
                                 std::forward<Token>(token));
  }

  async_queue_pair<S> inner_;
  executor_type executor_;
};

/// A shared receive queue as an I/O object of Asio's. As `asio_queue_pair`.
/// Threads: as there.
class asio_shared_receive_queue {
 public:
  using executor_type = boost::asio::any_io_executor;  ///< any

  /// What waits goes on in that executor, where its handler has none of its own.
  asio_shared_receive_queue(async_shared_receive_queue inner, executor_type executor) noexcept
      : inner_(std::move(inner)), executor_(std::move(executor)) {}
  /// Asio's name for it.
  [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }
  /// To make queue pairs with.
  [[nodiscard]] const async_shared_receive_queue& inner() const noexcept { return inner_; }

  /// As `async_shared_receive_queue::recv`, with a completion token.
  template <typename Token>
  auto async_recv(const leased_slice& into, Token&& token) {
    return detail::begin_in_asio(inner_.state(), executor_,
                                 detail::single(recv_request(detail::one(into)), into),
                                 std::forward<Token>(token));
  }

 private:
  async_shared_receive_queue inner_;
  executor_type executor_;
};

/// A dispatcher that runs in an execution context, which outlives it. It keeps the context busy
/// only while something waits. Destroying it ends all that waits with `operation_aborted`.
/// Threads: any attaches to it; moved and destroyed by one, whatever its executor runs meanwhile.
class asio_dispatcher {
 public:
  using executor_type = boost::asio::any_io_executor;  ///< any

  /// A dispatcher on that device, which runs in the executor from now on.
  [[nodiscard]] static Result<asio_dispatcher> create(
      const executor_type& executor, const context& on,
      const dispatcher_attributes& attributes = {}) {
    auto inner = VERBENA_TRY(dispatcher::create(on, attributes));
    // Asio closes what it waits for; the channel's is the channel's.
    const int fd = ::dup(inner.fd());
    VERBENA_TRY(detail::from_minus_one(fd, "dup"));
    auto pump = std::make_shared<detail::asio_pump>(executor, std::move(inner), fd);
    pump->begin();
    return asio_dispatcher(executor, std::move(pump));
  }
  asio_dispatcher(const asio_dispatcher&) = delete;
  asio_dispatcher& operator=(const asio_dispatcher&) = delete;
  asio_dispatcher(asio_dispatcher&&) noexcept = default;
  asio_dispatcher& operator=(asio_dispatcher&&) = delete;
  ~asio_dispatcher() {
    if (pump_ != nullptr) pump_->close();
  }

  /// Asio's name for it.
  [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }
  /// Only of one that was not moved from.
  [[nodiscard]] const dispatcher& inner() const noexcept { return pump_->inner; }
  /// To make queue pairs with.
  [[nodiscard]] const completion_queue& cq() const noexcept { return pump_->inner.cq(); }
  /// As async_queue_pair::attach.
  template <service S>
  [[nodiscard]] Result<asio_queue_pair<S>> attach(queue_pair<S> qp) const {
    VERBENA_TRY(check_open());
    return asio_queue_pair<S>(VERBENA_TRY(async_queue_pair<S>::attach(pump_->inner, std::move(qp))),
                              executor_);
  }
  /// As async_shared_receive_queue::attach.
  [[nodiscard]] Result<asio_shared_receive_queue> attach(shared_receive_queue srq) const {
    VERBENA_TRY(check_open());
    return asio_shared_receive_queue(
        VERBENA_TRY(async_shared_receive_queue::attach(pump_->inner, std::move(srq))), executor_);
  }

 private:
  [[nodiscard]] Result<> check_open() const {
    if (pump_ != nullptr) return {};
    return fail(std::errc::bad_file_descriptor, "attach",
                "the dispatcher is empty: it was moved from");
  }
  asio_dispatcher(executor_type executor, std::shared_ptr<detail::asio_pump> pump) noexcept
      : executor_(std::move(executor)), pump_(std::move(pump)) {}
  executor_type executor_;
  std::shared_ptr<detail::asio_pump> pump_;
};

}  // namespace verbena::verbs
