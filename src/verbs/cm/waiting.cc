// SPDX-License-Identifier: Apache-2.0
#include "verbs/cm/waiting.h"

namespace verbena::verbs::cm {
namespace detail {

Result<const event_channel*> end::own_channel(const char* operation) const {
  if (one && own) return &*own;
  if (!one) return fail(std::errc::bad_file_descriptor, operation, "it was moved from");
  return fail(std::errc::operation_not_permitted, operation,
              "the event channel is shared: waiting here would take the events of others; give "
              "them to handle()");
}

}  // namespace detail

Result<detail::end> make_end(port_space space) {
  auto channel = VERBENA_TRY(event_channel::create());
  auto one = VERBENA_TRY(cm::id::create(channel, space));
  return detail::end{std::move(one), std::move(channel)};
}

Result<detail::end> make_end(const event_channel& channel, port_space space) {
  auto one = VERBENA_TRY(cm::id::create(channel, space));
  return detail::end{std::move(one)};
}

Result<detail::end> make_end(cm::id request, bool own_channel) {
  if (!own_channel) return detail::end{std::move(request)};
  auto channel = VERBENA_TRY(event_channel::create());
  VERBENA_TRY(request.migrate(channel));
  return detail::end{std::move(request), std::move(channel)};
}

Result<> start_resolving(cm::id& one, const socket_address& peer, const resolve_options& options) {
  if (options.type_of_service) VERBENA_TRY(one.set_type_of_service(*options.type_of_service));
  if (options.ack_timeout) VERBENA_TRY(one.set_ack_timeout(*options.ack_timeout));
  return one.resolve_address(peer, options.timeout, options.from);
}

Result<bool> go_on_resolving(cm::id& one, const event& happened,
                             std::chrono::milliseconds timeout) {
  if (happened.is_failure()) return std::unexpected(happened.failure());
  if (happened.type() == event_type::address_resolved) VERBENA_TRY(one.resolve_route(timeout));
  return happened.type() == event_type::route_resolved;
}

}  // namespace verbena::verbs::cm
