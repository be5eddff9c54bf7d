// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "verbena/stream.h"
#include "verbena/stream_listener.h"
#include "verbs/stream/acceptor.h"
#include "verbs/stream/handshake.h"

namespace verbena::verbs {
namespace {

std::unexpected<Error> nothing(const char* operation) {
  return fail(std::errc::bad_file_descriptor, operation, "it is empty: it was moved from");
}

}  // namespace

// --- Who connects

Result<stream> stream_builder::connect(const cm::socket_address& peer,
                                       const stream_connect_options& how) const {
  VERBENA_TRY(streams::check_options(options_));
  auto found = VERBENA_TRY(
      cm::connector::resolve(peer, {.from = how.from, .timeout = how.timeout, .stop = how.stop}));
  return stream(VERBENA_TRY(streams::connect(std::move(found), *this, how)));
}

Result<stream> stream_builder::connect(std::string_view peer,
                                       std::chrono::milliseconds at_most) const {
  return connect(VERBENA_TRY(cm::socket_address::from_string(peer)), at_most);
}

Result<stream_connecting> stream_builder::start_connect(const cm::socket_address& peer,
                                                        std::chrono::milliseconds at_most) const {
  return stream_connecting(VERBENA_TRY(streams::connecting::start(peer, *this, at_most)));
}

stream_connecting::stream_connecting(std::unique_ptr<streams::connecting> state) noexcept
    : state_(std::move(state)) {}
stream_connecting::stream_connecting(stream_connecting&&) noexcept = default;
stream_connecting& stream_connecting::operator=(stream_connecting&&) noexcept = default;
stream_connecting::~stream_connecting() = default;

int stream_connecting::fd() const { return state_ == nullptr ? -1 : state_->fd(); }

Result<stream> stream_connecting::try_finish() {
  if (state_ == nullptr) return nothing("stream_connecting::try_finish");
  auto made = state_->try_finish();
  if (made || !made.error().would_block()) state_.reset();
  return stream(VERBENA_TRY(std::move(made)));
}

// --- Who listens

listener::listener(std::unique_ptr<streams::acceptor> state) noexcept : state_(std::move(state)) {}
listener::listener(listener&&) noexcept = default;
listener& listener::operator=(listener&&) noexcept = default;
listener::~listener() = default;

Result<listener> listener::bind(const cm::socket_address& to, const stream_builder& sizes,
                                const cm::listen_options& options) {
  VERBENA_TRY(streams::check_options(sizes.options()));
  auto bound = VERBENA_TRY(cm::listener::bind(to, options));
  return listener(VERBENA_TRY(streams::acceptor::make(std::move(bound), sizes)));
}

Result<listener> listener::bind(std::string_view to, const stream_builder& sizes,
                                const cm::listen_options& options) {
  return bind(VERBENA_TRY(cm::socket_address::from_string(to)), sizes, options);
}

Result<stream> listener::accept() { return accept(std::chrono::milliseconds::max()); }

Result<stream> listener::accept(std::chrono::milliseconds at_most) {
  if (state_ == nullptr) return nothing("listener::accept");
  return stream(VERBENA_TRY(state_->accept(at_most)));
}

Result<stream> listener::try_accept() {
  if (state_ == nullptr) return nothing("listener::try_accept");
  return stream(VERBENA_TRY(state_->try_accept()));
}

int listener::fd() const noexcept { return state_ == nullptr ? -1 : state_->fd(); }

cm::socket_address listener::local_addr() const noexcept {
  return state_ == nullptr ? cm::socket_address() : state_->local_addr();
}

}  // namespace verbena::verbs
