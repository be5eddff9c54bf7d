// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "verbena/cm_listener.h"
#include "verbs/cm/waiting.h"

namespace verbena::verbs::cm {

// --- incoming

incoming::incoming(detail::end end, event& request)
    : end_(std::move(end)),
      private_data_(request.private_data()),
      parameters_(request.parameters()) {}

incoming& incoming::operator=(incoming&& from) noexcept {
  if (this == &from) return *this;
  const incoming before(std::move(*this));
  end_ = std::move(from.end_);
  private_data_ = std::move(from.private_data_);
  parameters_ = from.parameters_;
  return *this;
}

incoming::~incoming() {
  // A queue pair of it may be held elsewhere, and with it the id, which would keep the peer
  // waiting.
  if (end_.one) (void)end_.one.reject();
}

Result<connecting> incoming::start_accept(queue_pair<rc> qp,
                                          const connection_parameters& parameters) && {
  if (end_.one && !end_.one.made(qp))
    return fail(std::errc::invalid_argument, "incoming::accept",
                "the queue pair is of another connection: make it with create_qp() of this one");
  VERBENA_TRY(end_.one.accept(parameters));
  return connecting(std::move(end_), std::move(qp), std::move(private_data_));
}

Result<connection> incoming::accept(queue_pair<rc> qp, const connection_parameters& parameters,
                                    std::chrono::milliseconds at_most) && {
  VERBENA_TRY(end_.own_channel("incoming::accept"));
  connecting next = VERBENA_TRY(std::move(*this).start_accept(std::move(qp), parameters));
  return std::move(next).wait(at_most);
}

Result<> incoming::reject(std::span<const std::byte> private_data) && {
  VERBENA_TRY(end_.one.reject(private_data));
  const detail::end done = std::move(end_);
  return {};
}

// --- listener

Result<listener> listener::begin(detail::end end, const socket_address& to,
                                 const listen_options& options) {
  if (options.reuse_address) VERBENA_TRY(end.one.set_reuse_address(true));
  if (options.ipv6_only) VERBENA_TRY(end.one.set_ipv6_only(true));
  if (options.type_of_service) VERBENA_TRY(end.one.set_type_of_service(*options.type_of_service));
  VERBENA_TRY(end.one.bind(to));
  VERBENA_TRY(end.one.listen(options.backlog));
  return listener(std::move(end));
}

Result<listener> listener::bind(const socket_address& to, const listen_options& options) {
  auto end = VERBENA_TRY(make_end(port_space::tcp));
  return begin(std::move(end), to, options);
}

Result<listener> listener::bind(const event_channel& channel, const socket_address& to,
                                const listen_options& options) {
  auto end = VERBENA_TRY(make_end(channel, port_space::tcp));
  return begin(std::move(end), to, options);
}

Result<std::optional<incoming>> listener::handle(event& happened) {
  const bool asked = happened.type() == event_type::connect_request && end_.one &&
                     happened.listener() == end_.one.number();
  if (asked) {
    auto request = happened.take_request();
    if (!request) return std::nullopt;
    auto end = VERBENA_TRY(make_end(std::move(*request), end_.own.has_value()));
    return incoming(std::move(end), happened);
  }
  if (happened.is_of(end_.one) && happened.is_failure()) return std::unexpected(happened.failure());
  return std::nullopt;
}

Result<incoming> listener::accept(std::chrono::milliseconds at_most) {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("listener::accept"));
  return wait_for_next<incoming>(channel, at_most, "listener::accept",
                                 [&](event& happened) { return handle(happened); });
}

Result<incoming> listener::accept() { return accept(std::chrono::milliseconds::max()); }

Result<incoming> listener::try_accept() {
  const event_channel& channel = *VERBENA_TRY(end_.own_channel("listener::try_accept"));
  return take_next<incoming>(channel, [this](event& happened) { return handle(happened); });
}

}  // namespace verbena::verbs::cm
