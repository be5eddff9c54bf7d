// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "verbena/asio.h"
#include "verbena/cm_connection.h"
#include "verbena/cm_datagram.h"
#include "verbena/cm_listener.h"

/// Boost.Asio: the rdma_cm's phases with completion tokens. Handlers get a
/// `boost::system::error_code` and the next phase, which is there where the code is none. Terminal
/// cancellation ends a step and destroys its phase: no id and no queue pair stays behind.
/// What is taken by reference outlives its step.
namespace verbena::verbs::cm {

namespace detail {

/// What a handler gets of the answers of a step's `look`: nothing more where they only say that it
/// has ended.
template <typename Answer>
struct asio_handler {
  using signature = void(boost::system::error_code, Answer);
};
template <>
struct asio_handler<bool> {
  using signature = void(boost::system::error_code);
};

/// Waits for a step: its `look` gives something, nothing yet, or an error, and its `fd` is readable
/// when it is to look again.
template <typename Step>
class asio_step {
 public:
  asio_step(boost::asio::any_io_executor executor, Result<Step> started)
      : executor_(std::move(executor)), step_(std::move(started)) {}

  template <typename Self>
  void operator()(Self& self, boost::system::error_code error = {}) {
    // No handler is called within the call that begins.
    if (!std::exchange(begun_, true)) return boost::asio::post(executor_, std::move(self));
    if (self.cancelled() != boost::asio::cancellation_type::none)
      error = boost::asio::error::operation_aborted;
    if (error) return end(self, error, {});
    if (!step_) return end(self, to_asio(step_.error()), {});
    auto next = step_->look();
    if (!next) return end(self, to_asio(next.error()), {});
    if (*next) return end(self, {}, std::move(*next));
    if (descriptor_ == nullptr) {
      // Asio closes what it waits for; the channel's is the channel's.
      const int fd = ::dup(step_->fd());
      if (fd < 0) return end(self, {errno, boost::system::system_category()}, {});
      descriptor_ = std::make_unique<boost::asio::posix::stream_descriptor>(executor_, fd);
    }
    auto& descriptor = *descriptor_;
    descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read, std::move(self));
  }

 private:
  template <typename Self>
  void end(Self& self, boost::system::error_code error, typename Step::answer next) {
    descriptor_.reset();
    step_ = fail(std::errc::operation_canceled, "asio_step");  // the phase goes first
    if constexpr (std::is_same_v<typename Step::answer, bool>)
      self.complete(error);
    else
      self.complete(error, std::move(next));
  }

  boost::asio::any_io_executor executor_;
  Result<Step> step_;
  std::unique_ptr<boost::asio::posix::stream_descriptor> descriptor_;
  bool begun_ = false;
};

/// A phase that leads to `Next`.
template <typename Next, typename Phase>
struct asio_phase {
  using answer = std::optional<Next>;
  [[nodiscard]] Result<answer> look() { return phase.handle_waiting(); }
  [[nodiscard]] int fd() const { return phase.event_fd(); }
  Phase phase;
};
/// Whoever asks a listener next.
template <typename Request, typename Listener>
struct asio_request {
  using answer = std::optional<Request>;
  [[nodiscard]] Result<answer> look() const {
    auto who = at->try_accept();
    if (!who && who.error().would_block()) return std::nullopt;
    if (!who) return std::unexpected(std::move(who).error());
    return std::move(*who);
  }
  [[nodiscard]] int fd() const { return at->fd(); }
  Listener* at;
};
/// The end of a connection, which leads to nothing.
struct asio_ending {
  using answer = bool;
  [[nodiscard]] Result<answer> look() const {
    if (of->is_connected()) VERBENA_TRY(of->handle_waiting());
    return !of->is_connected();
  }
  [[nodiscard]] int fd() const { return of->event_fd(); }
  connection* of;
};
[[nodiscard]] inline Result<asio_ending> end_of(connection& of, bool disconnects) {
  if (disconnects) VERBENA_TRY(of.disconnect());
  return asio_ending{&of};
}

template <typename Step, typename Token>
auto take_step(const boost::asio::any_io_executor& executor, Result<Step> started, Token&& token) {
  using signature = typename asio_handler<typename Step::answer>::signature;
  return boost::asio::async_compose<Token, signature>(asio_step<Step>(executor, std::move(started)),
                                                      token, executor);
}
template <typename Next, typename Phase>
[[nodiscard]] Result<asio_phase<Next, Phase>> first_step(Result<Phase> started) {
  return asio_phase<Next, Phase>{VERBENA_TRY(std::move(started))};
}

}  // namespace detail

/// As `connector::resolve`.
template <typename Token>
auto async_resolve(const boost::asio::any_io_executor& executor, const socket_address& peer,
                   const resolve_options& options, Token&& token) {
  return detail::take_step(executor, detail::first_step<resolved>(connector::start(peer, options)),
                           std::forward<Token>(token));
}

/// As `resolved::connect`. The peer is asked before this returns.
template <typename Token>
auto async_connect(const boost::asio::any_io_executor& executor, resolved peer, queue_pair<rc> qp,
                   const connection_parameters& parameters, Token&& token) {
  return detail::take_step(
      executor,
      detail::first_step<connection>(std::move(peer).start_connect(std::move(qp), parameters)),
      std::forward<Token>(token));
}

/// The next who asks. The listener outlives the step and has its channel to itself.
template <typename Token>
auto async_accept(const boost::asio::any_io_executor& executor, listener& at, Token&& token) {
  using step = detail::asio_request<incoming, listener>;
  return detail::take_step(executor, Result<step>(step{&at}), std::forward<Token>(token));
}

/// As `incoming::accept`.
template <typename Token>
auto async_accept(const boost::asio::any_io_executor& executor, incoming who, queue_pair<rc> qp,
                  const connection_parameters& parameters, Token&& token) {
  return detail::take_step(
      executor,
      detail::first_step<connection>(std::move(who).start_accept(std::move(qp), parameters)),
      std::forward<Token>(token));
}

/// Waits until one of the ends has disconnected, in a handler that gets the code alone. The
/// connection has its channel to itself, and stays what it is when the wait is cancelled.
template <typename Token>
auto async_disconnected(const boost::asio::any_io_executor& executor, connection& of,
                        Token&& token) {
  return detail::take_step(executor, detail::end_of(of, false), std::forward<Token>(token));
}
/// Disconnects before this returns, and waits likewise until the peer has answered.
template <typename Token>
auto async_disconnect(const boost::asio::any_io_executor& executor, connection& of, Token&& token) {
  return detail::take_step(executor, detail::end_of(of, true), std::forward<Token>(token));
}

// --- Datagrams

/// As `datagram_resolver::resolve`.
template <typename Token>
auto async_resolve_datagram(const boost::asio::any_io_executor& executor,
                            const socket_address& peer, std::span<const std::byte> private_data,
                            const resolve_options& options, Token&& token) {
  return detail::take_step(
      executor,
      detail::first_step<datagram_peer>(datagram_resolver::start(peer, private_data, options)),
      std::forward<Token>(token));
}

/// The next who asks for the service. The listener has its channel to itself.
template <typename Token>
auto async_accept(const boost::asio::any_io_executor& executor, datagram_listener& at,
                  Token&& token) {
  using step = detail::asio_request<datagram_request, datagram_listener>;
  return detail::take_step(executor, Result<step>(step{&at}), std::forward<Token>(token));
}

/// As `multicast_socket::join`.
template <typename Token>
auto async_join(const boost::asio::any_io_executor& executor, multicast_socket socket,
                queue_pair<ud> qp, const socket_address& group, Token&& token) {
  return detail::take_step(
      executor,
      detail::first_step<multicast_group>(std::move(socket).start_join(std::move(qp), group)),
      std::forward<Token>(token));
}

}  // namespace verbena::verbs::cm
