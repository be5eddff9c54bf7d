// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/dispatcher.h"

#include <utility>

#include "verbs/async/dispatch_core.h"

namespace verbena::verbs {
namespace {

std::unexpected<Error> nothing(const char* operation) {
  return fail(std::errc::bad_file_descriptor, operation, "the dispatcher is empty: moved from");
}

struct Nothing : completion_queue {};

}  // namespace

Result<dispatcher> dispatcher::create(const context& on, const dispatcher_attributes& attributes) {
  if (attributes.budget == 0)
    return fail(std::errc::invalid_argument, "dispatcher::create",
                "a budget of 0 takes no completion");
  auto channel = VERBENA_TRY(on.create_channel());
  VERBENA_TRY(channel.set_blocking(false));
  auto cq = VERBENA_TRY(
      on.create_cq({.depth = attributes.depth, .channel = &channel, .vector = attributes.vector}));
  return dispatcher(
      std::make_shared<detail::dispatch_core>(std::move(channel), std::move(cq), attributes));
}

dispatcher& dispatcher::operator=(dispatcher&& from) noexcept {
  if (this == &from) return *this;
  close();
  core_ = std::move(from.core_);
  return *this;
}

dispatcher::~dispatcher() { close(); }

const completion_queue& dispatcher::cq() const noexcept {
  static const Nothing none;
  if (core_ == nullptr) return none;
  return core_->cq;
}

int dispatcher::fd() const noexcept { return core_ == nullptr ? -1 : core_->channel.fd(); }

Result<dispatched> dispatcher::process() {
  if (core_ == nullptr) return nothing("process");
  return core_->turn(true);
}

Result<dispatched> dispatcher::poll() {
  if (core_ == nullptr) return nothing("poll");
  return core_->turn(false);
}

std::optional<async_clock::time_point> dispatcher::next_deadline() const {
  return core_ == nullptr ? std::nullopt : core_->next_deadline();
}

std::size_t dispatcher::waiting() const { return core_ == nullptr ? 0 : core_->waiting(); }

std::size_t dispatcher::posted() const { return core_ == nullptr ? 0 : core_->posted(); }

void dispatcher::on_wake(std::function<void()> call, bool at_start) {
  if (core_ != nullptr) core_->on_wake(std::move(call), at_start);
}

void dispatcher::on_foreign(std::function<void(const work_completion&)> call) {
  if (core_ != nullptr) core_->on_foreign(std::move(call));
}

void dispatcher::close() {
  close(Error(std::errc::operation_canceled, "dispatcher", "the dispatcher was closed"));
}

void dispatcher::close(const Error& why) {
  if (core_ == nullptr) return;
  core_->close(why);
  core_->wake_last();
}

namespace detail {

Result<> attachment::join(const dispatcher& to, const ibv_qp& qp, std::uint32_t max_send,
                          std::uint32_t max_recv) {
  if (to.core() == nullptr) return nothing("attach");
  const ibv_cq* const cq = to.cq().native();
  if (qp.send_cq != cq || qp.recv_cq != cq)
    return fail(std::errc::invalid_argument, "attach",
                "the queue pair completes elsewhere: create it with the dispatcher's cq()");
  return join(to, max_send, max_recv);
}

Result<> attachment::join(const dispatcher& to, std::uint32_t max_send, std::uint32_t max_recv) {
  if (to.core() == nullptr) return nothing("attach");
  const std::size_t depth = std::size_t{max_send} + max_recv;
  VERBENA_TRY(to.core()->reserve(depth));
  core = to.core();
  sends.free = max_send;
  receives.free = max_recv;
  depth_ = depth;
  return {};
}

void attachment::leave() noexcept {
  if (core != nullptr) core->leave(*this, depth_);
}

void attachment::gone() noexcept {
  if (core != nullptr) core->gone(*this);
}

void attachment::abandon() noexcept {
  if (core != nullptr) core->abandon(*this);
}

}  // namespace detail
}  // namespace verbena::verbs
