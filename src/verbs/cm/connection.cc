// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verbena/cm_connection.h"
#include "verbena/cm_listener.h"
#include "verbs/cm/waiting.h"

namespace verbena::verbs::cm {
namespace {

Result<> check_made(const cm::id& by, const queue_pair<rc>& qp, const char* operation) {
  if (!by) return fail(std::errc::bad_file_descriptor, operation, "it was moved from");
  if (by.made(qp)) return {};
  return fail(std::errc::invalid_argument, operation,
              "the queue pair is of another connection: make it with create_qp() of this one");
}

void tell(const cm::id& of, std::string_view phase) {
  if (verbs::detail::observed() && of)
    verbs::detail::tell_phase(verbs::detail::seen_as(of.native()), phase);
}

}  // namespace

// --- connector

Result<connector> connector::begin(detail::end end, const socket_address& peer,
                                   const resolve_options& options) {
  VERBENA_TRY(start_resolving(end.one, peer, options));
  return connector(std::move(end), options.timeout);
}

Result<connector> connector::start(const event_channel& channel, const socket_address& peer,
                                   const resolve_options& options) {
  auto end = VERBENA_TRY(make_end(channel, port_space::tcp));
  return begin(std::move(end), peer, options);
}

Result<connector> connector::start(const socket_address& peer, const resolve_options& options) {
  auto end = VERBENA_TRY(make_end(port_space::tcp));
  return begin(std::move(end), peer, options);
}

Result<resolved> connector::resolve(const socket_address& peer, const resolve_options& options) {
  connector one = VERBENA_TRY(start(peer, options));
  // The rdma_cm has a time for each of the two steps; this is for a device that forgets one.
  const auto each = std::min(options.timeout, std::chrono::milliseconds::max() / 4);
  const auto most = 2 * each + std::chrono::seconds(1);
  const event_channel& channel = *VERBENA_TRY(one.end_.own_channel("connector::resolve"));
  return wait_for_next<resolved>(
      channel, most, "connector::resolve",
      [&](const event& happened) { return one.handle(happened); }, options.stop);
}

Result<std::optional<resolved>> connector::handle(const event& happened) {
  if (!happened.is_of(end_.one)) return std::nullopt;
  const auto done = go_on_resolving(end_.one, happened, timeout_);
  if (done && !*done) return std::nullopt;
  detail::end end = std::move(end_);
  if (!done) return std::unexpected(done.error());
  tell(end.one, "resolved");
  return resolved(std::move(end));
}

Result<std::optional<resolved>> connector::handle_waiting() {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("connector::handle_waiting"));
  return take_waiting(channel, [&](const event& happened) { return handle(happened); });
}

// --- resolved

Result<connecting> resolved::start_connect(queue_pair<rc> qp,
                                           const connection_parameters& parameters) && {
  VERBENA_TRY(check_made(end_.one, qp, "resolved::connect"));
  VERBENA_TRY(end_.one.connect(parameters));
  return connecting(std::move(end_), std::move(qp), {});
}

Result<connection> resolved::connect(queue_pair<rc> qp, const connection_parameters& parameters,
                                     std::chrono::milliseconds at_most,
                                     const std::stop_token& stop) && {
  VERBENA_TRY(end_.own_channel("resolved::connect"));
  connecting next = VERBENA_TRY(std::move(*this).start_connect(std::move(qp), parameters));
  return std::move(next).wait(at_most, stop);
}

// --- connecting

Result<std::optional<connection>> connecting::handle(const event& happened) {
  if (!happened.is_of(end_.one)) return std::nullopt;
  const bool established = happened.type() == event_type::established;
  if (!established && !happened.is_failure()) return std::nullopt;
  // What is left behind is empty, so an event that comes twice finds nothing.
  detail::end end = std::move(end_);
  queue_pair<rc> qp = std::move(qp_);
  if (!established) return std::unexpected(happened.failure());
  tell(end.one, "established");
  if (private_data_.empty()) private_data_ = happened.private_data();
  return connection(std::move(end), std::move(qp), std::move(private_data_));
}

Result<std::optional<connection>> connecting::handle_waiting() {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("connecting::handle_waiting"));
  return take_waiting(channel, [&](const event& happened) { return handle(happened); });
}

Result<connection> connecting::wait(std::chrono::milliseconds at_most,
                                    const std::stop_token& stop) && {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("connecting::wait"));
  return wait_for_next<connection>(
      channel, at_most, "connecting::wait", [&](const event& happened) { return handle(happened); },
      stop);
}

// --- connection

connection& connection::operator=(connection&& from) noexcept {
  if (this == &from) return *this;
  // By way of one that is destroyed, so what was here disconnects.
  connection before(std::move(*this));
  end_ = std::move(from.end_);
  qp_ = std::move(from.qp_);
  private_data_ = std::move(from.private_data_);
  asked_ = from.asked_;
  over_ = from.over_;
  return *this;
}

connection::~connection() {
  // Its queue pair may be held elsewhere, and with it the id, which would tell the peer nothing.
  if (end_.one && !asked_) (void)end_.one.disconnect();
}

std::string connection::describe() const {
  return fmt::format("{}{}", end_.one.describe(), over_ ? ", disconnected" : "");
}

Result<> connection::disconnect() {
  if (asked_ && end_.one) return {};
  VERBENA_TRY(end_.one.disconnect());
  asked_ = true;
  return {};
}

Result<bool> connection::handle(const event& happened) {
  if (!happened.is_of(end_.one)) return false;
  // Rejected: a peer that had accepted is gone, and its REJ and our RTU have crossed.
  const bool ends = happened.type() == event_type::disconnected ||
                    happened.type() == event_type::device_removal ||
                    happened.type() == event_type::rejected;
  if (!ends || over_) return true;
  over_ = true;
  tell(end_.one, "disconnected");
  // Until it is answered the peer asks again. It may be beyond that: then there is no one to tell.
  if (!asked_) (void)end_.one.disconnect();
  asked_ = true;
  return true;
}

Result<> connection::wait_disconnected(std::chrono::milliseconds at_most) {
  if (over_ && end_.one) return {};
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("connection::wait_disconnected"));
  const auto step = [&](const event& happened) -> Result<bool> {
    VERBENA_TRY(handle(happened));
    return over_;
  };
  VERBENA_TRY(wait_for(channel, after(at_most), "connection::wait_disconnected", step));
  return {};
}

Result<> connection::handle_waiting() {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("connection::handle_waiting"));
  while (true) {
    const auto happened = channel.try_get_event();
    if (!happened && happened.error().would_block()) return {};
    if (!happened) return std::unexpected(happened.error());
    VERBENA_TRY(handle(*happened));
  }
}

Result<> connection::migrate(const event_channel& to) {
  VERBENA_TRY(end_.one.migrate(to));
  end_.own.reset();
  return {};
}

}  // namespace verbena::verbs::cm
