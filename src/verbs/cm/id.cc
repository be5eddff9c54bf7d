// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "verbena/cm_event.h"
#include "verbena/cm_id.h"
#include "verbena/shared_receive_queue.h"
#include "verbs/cm/state.h"

namespace verbena::verbs {
namespace detail {

template <>
observed_object seen_as(const rdma_cm_id* raw) {
  return {.kind = object_kind::cm_id,
          .native = raw,
          .number = ntohs(rdma_get_src_port(const_cast<rdma_cm_id*>(raw)))};
}

}  // namespace detail

namespace cm {
namespace {

using verbs::detail::access_to;
using verbs::detail::from_minus_one;
using verbs::detail::keep;

int destroy_qp(ibv_qp* qp) {
  auto* const owner = static_cast<rdma_cm_id*>(qp->qp_context);
  auto* const state = static_cast<verbs::detail::cm_id_state*>(owner->context);
  const auto channel = state->current_channel();
  const std::scoped_lock lock(channel->taking);
  rdma_destroy_qp(owner);
  return 0;
}

int give_back(rdma_cm_id* raw) {
  raw->context = static_cast<verbs::detail::cm_id_state*>(raw->context)->of_its_maker;
  return 0;
}

/// The devices that librdmacm has open. It closes one that was unplugged once nobody holds it.
Result<keep> hold_devices() {
  int count = 0;
  ibv_context** const all =
      VERBENA_TRY(verbs::detail::from_pointer(rdma_get_devices(&count), "rdma_get_devices"));
  return std::shared_ptr<ibv_context*>(all, &rdma_free_devices);
}

Result<> check_length(std::size_t length, std::size_t most, const char* verb) {
  if (length <= most) return {};
  return fail(std::errc::message_size, verb,
              fmt::format("{} bytes of private data; there is room for {}", length, most));
}

/// Of a message of the connection manager's. IBA 12.6 for the sizes; the rdma_cm's own header takes
/// 36 bytes of a request (IBA annex A11).
constexpr std::size_t kMostToConnect = 56;
constexpr std::size_t kMostToAccept = 196;
constexpr std::size_t kMostToReject = 148;
constexpr std::size_t kMostToResolve = 180;
constexpr std::size_t kMostToAnswer = 136;

rdma_conn_param native_of(const connection_parameters& from) {
  rdma_conn_param to{};
  to.private_data = from.private_data.data();
  to.private_data_len = static_cast<std::uint8_t>(from.private_data.size());
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.flow_control = from.flow_control ? 1 : 0;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  to.srq = from.has_srq ? 1 : 0;
  to.qp_num = from.number.value();
  return to;
}

bool is_datagram(const rdma_cm_id* raw) {
  return raw->ps == RDMA_PS_UDP || raw->ps == RDMA_PS_IPOIB;
}

int count(std::chrono::milliseconds time) {
  return static_cast<int>(std::clamp<std::int64_t>(time.count(), 0, INT32_MAX));
}

}  // namespace

id::id(rdma_cm_id* raw, std::shared_ptr<verbs::detail::cm_id_state> state, ownership whose)
    : handle(raw, whose == ownership::owned ? &rdma_destroy_id : &give_back, "rdma_destroy_id",
             {state}),
      state_(std::move(state)) {}

Result<id> id::create(const event_channel& channel, port_space space) {
  VERBENA_TRY(channel.check("id::create"));
  auto state =
      std::make_shared<verbs::detail::cm_id_state>(channel.state_, access_to::keep_of(channel));
  rdma_cm_id* made = nullptr;
  VERBENA_TRY(from_minus_one(
      rdma_create_id(channel.raw(), &made, state.get(), static_cast<rdma_port_space>(space)),
      "rdma_create_id"));
  return id(made, std::move(state));
}

Result<id> id::adopt(rdma_cm_id* raw, const event_channel& channel, ownership whose) {
  VERBENA_TRY(channel.check("adopt"));
  if (raw == nullptr || raw->channel != channel.raw())
    return fail(
        std::errc::invalid_argument, "adopt",
        raw == nullptr ? "there is no id at a null pointer" : "the id is of another channel");
  auto state =
      std::make_shared<verbs::detail::cm_id_state>(channel.state_, access_to::keep_of(channel));
  state->of_its_maker = std::exchange(raw->context, state.get());
  return id(raw, std::move(state), whose);
}

std::uint64_t id::number() const noexcept { return native() == nullptr ? 0 : state_->number; }

std::string id::describe() const {
  if (native() == nullptr) return "an empty rdma_cm id";
  std::string text = fmt::format("rdma_cm id {}", number());
  if (const socket_address ours = local_addr(); ours) text += " of " + ours.to_string();
  if (const socket_address peer = peer_addr(); peer) text += " to " + peer.to_string();
  if (const ibv_qp* const qp = raw()->qp; qp != nullptr)
    text += fmt::format(", queue pair {:#x} ({})", qp->qp_num,
                        name_of(static_cast<qp_state>(qp->state)));
  return text;
}

port_space id::space() const noexcept {
  return native() == nullptr ? port_space::tcp : static_cast<port_space>(raw()->ps);
}

Result<> id::set(int name, const void* value, std::size_t size) {
  VERBENA_TRY(check("rdma_set_option"));
  return from_minus_one(
      rdma_set_option(raw(), RDMA_OPTION_ID, name, const_cast<void*>(value), size),
      "rdma_set_option");
}

Result<> id::set_type_of_service(std::uint8_t tos) {
  return set(RDMA_OPTION_ID_TOS, &tos, sizeof tos);
}
Result<> id::set_reuse_address(bool on) {
  const int value = on ? 1 : 0;
  return set(RDMA_OPTION_ID_REUSEADDR, &value, sizeof value);
}
Result<> id::set_ipv6_only(bool on) {
  const int value = on ? 1 : 0;
  return set(RDMA_OPTION_ID_AFONLY, &value, sizeof value);
}
Result<> id::set_ack_timeout(ack_timeout timeout) {
  const std::uint8_t value = timeout.exponent();
  return set(RDMA_OPTION_ID_ACK_TIMEOUT, &value, sizeof value);
}

Result<> id::bind(const socket_address& to) {
  VERBENA_TRY(check("rdma_bind_addr"));
  if (!to) return fail(std::errc::invalid_argument, "rdma_bind_addr", "there is no address");
  if (rdma_bind_addr(raw(), to.native()) == 0) return {};
  const int error = errno;
  const std::string_view why = error == EADDRNOTAVAIL || error == ENODEV
                                   ? "is of no device of this machine"
                               : error == EADDRINUSE ? "is bound already"
                                                     : "cannot be bound";
  return std::unexpected(Error({error, verbs_category()}, "rdma_bind_addr",
                               fmt::format("{} {}", to.to_string(), why)));
}

Result<> id::resolve_address(const socket_address& peer, std::chrono::milliseconds timeout,
                             const std::optional<socket_address>& from) {
  VERBENA_TRY(check("rdma_resolve_addr"));
  if (!peer || (from && !*from))
    return fail(std::errc::invalid_argument, "rdma_resolve_addr", "there is no address");
  if (from && from->is_ipv4() != peer.is_ipv4())
    return fail(
        std::errc::invalid_argument, "rdma_resolve_addr",
        fmt::format("{} and {} are of two IP versions", from->to_string(), peer.to_string()));
  return from_minus_one(
      rdma_resolve_addr(raw(), from ? from->native() : nullptr, peer.native(), count(timeout)),
      "rdma_resolve_addr");
}

Result<> id::resolve_route(std::chrono::milliseconds timeout) {
  VERBENA_TRY(check("rdma_resolve_route"));
  return from_minus_one(rdma_resolve_route(raw(), count(timeout)), "rdma_resolve_route");
}

socket_address id::local_addr() const noexcept {
  return native() == nullptr ? socket_address()
                             : socket_address::from_native(rdma_get_local_addr(raw()));
}
socket_address id::peer_addr() const noexcept {
  return native() == nullptr ? socket_address()
                             : socket_address::from_native(rdma_get_peer_addr(raw()));
}

Result<route> id::route() const {
  VERBENA_TRY(check("id::route"));
  const rdma_route& from = raw()->route;
  cm::route to{.of = verbs::port(raw()->port_num),
               .source = gid(from.addr.addr.ibaddr.sgid),
               .destination = gid(from.addr.addr.ibaddr.dgid),
               .pkey = be16toh(from.addr.addr.ibaddr.pkey)};
  if (from.path_rec != nullptr) to.paths.assign(from.path_rec, from.path_rec + from.num_paths);
  return to;
}

Result<verbs::context> id::context() const {
  VERBENA_TRY(check("id::context"));
  if (raw()->verbs == nullptr)
    return fail(std::errc::not_connected, "id::context",
                "no device is chosen yet: bind it to an address of one, or resolve a peer's");
  return verbs::context::borrow(raw()->verbs, VERBENA_TRY(hold_devices()));
}

Result<verbs::detail::queue_pair_base> id::make_qp(const protection_domain& pd,
                                                   const verbs::detail::plain_qp_attributes& from) {
  constexpr const char* kVerb = "rdma_create_qp";
  VERBENA_TRY(check(kVerb));
  VERBENA_TRY(access_to::check(pd, kVerb));
  VERBENA_TRY(access_to::check(*from.send_cq, kVerb));
  VERBENA_TRY(access_to::check(*from.recv_cq, kVerb));
  if (raw()->qp != nullptr)
    return fail(std::errc::invalid_argument, kVerb, "the id has a queue pair already");
  if ((from.type == IBV_QPT_UD) != is_datagram(raw()))
    return fail(std::errc::invalid_argument, kVerb,
                "the UDP space is for UD queue pairs, and the others for those of connections");
  if (raw()->verbs == nullptr || pd.native()->context != raw()->verbs)
    return fail(std::errc::invalid_argument, kVerb,
                "the protection domain is of another context: make it of this id's context()");
  std::vector<keep> parents{held(), access_to::keep_of(pd), access_to::keep_of(*from.send_cq),
                            access_to::keep_of(*from.recv_cq)};
  ibv_qp_init_attr to{};
  if (from.srq != nullptr) {
    VERBENA_TRY(access_to::check(*from.srq, kVerb));
    parents.push_back(access_to::keep_of(*from.srq));
    to.srq = from.srq->native();
  }
  to.qp_context = raw();
  to.qp_type = from.type;
  to.send_cq = from.send_cq->native();
  to.recv_cq = from.recv_cq->native();
  to.sq_sig_all = from.signal_all ? 1 : 0;
  to.cap = {.max_send_wr = from.caps.max_send_wr,
            .max_recv_wr = from.srq != nullptr ? 0 : from.caps.max_recv_wr,
            .max_send_sge = from.caps.max_send_sge,
            .max_recv_sge = from.srq != nullptr ? 0 : from.caps.max_recv_sge,
            .max_inline_data = from.caps.max_inline_data};
  VERBENA_TRY(from_minus_one(rdma_create_qp(raw(), pd.native(), &to), kVerb));
  const qp_caps caps{.max_send_wr = to.cap.max_send_wr,
                     .max_recv_wr = to.cap.max_recv_wr,
                     .max_send_sge = to.cap.max_send_sge,
                     .max_recv_sge = to.cap.max_recv_sge,
                     .max_inline_data = to.cap.max_inline_data};
  return verbs::detail::qp_maker::make(raw()->qp, caps, &destroy_qp, "rdma_destroy_qp",
                                       std::move(parents));
}

bool id::made(const verbs::detail::queue_pair_base& qp) const noexcept {
  return native() != nullptr && qp.native() != nullptr && raw()->qp == qp.native();
}

Result<state_attributes> id::attributes_for(qp_state state) const {
  VERBENA_TRY(check("rdma_init_qp_attr"));
  state_attributes found;
  found.attributes.qp_state = static_cast<ibv_qp_state>(state);
  VERBENA_TRY(from_minus_one(rdma_init_qp_attr(raw(), &found.attributes, &found.mask),
                             "rdma_init_qp_attr"));
  return found;
}

Result<> id::connect(const connection_parameters& parameters) {
  VERBENA_TRY(check("rdma_connect"));
  VERBENA_TRY(check_length(parameters.private_data.size(),
                           is_datagram(raw()) ? kMostToResolve : kMostToConnect, "rdma_connect"));
  rdma_conn_param native = native_of(parameters);
  return from_minus_one(rdma_connect(raw(), &native), "rdma_connect");
}

Result<> id::establish() {
  VERBENA_TRY(check("rdma_establish"));
  return from_minus_one(rdma_establish(raw()), "rdma_establish");
}

Result<> id::listen(int backlog) {
  VERBENA_TRY(check("rdma_listen"));
  return from_minus_one(rdma_listen(raw(), backlog), "rdma_listen");
}

Result<> id::accept(const connection_parameters& parameters) {
  VERBENA_TRY(check("rdma_accept"));
  VERBENA_TRY(check_length(parameters.private_data.size(),
                           is_datagram(raw()) ? kMostToAnswer : kMostToAccept, "rdma_accept"));
  rdma_conn_param native = native_of(parameters);
  return from_minus_one(rdma_accept(raw(), &native), "rdma_accept");
}

Result<> id::reject(std::span<const std::byte> private_data) {
  VERBENA_TRY(check("rdma_reject"));
  VERBENA_TRY(check_length(private_data.size(), is_datagram(raw()) ? kMostToAnswer : kMostToReject,
                           "rdma_reject"));
  return from_minus_one(
      rdma_reject(raw(), private_data.data(), static_cast<std::uint8_t>(private_data.size())),
      "rdma_reject");
}

Result<> id::disconnect() {
  VERBENA_TRY(check("rdma_disconnect"));
  return from_minus_one(rdma_disconnect(raw()), "rdma_disconnect");
}

Result<> id::notify(ibv_event_type what) {
  VERBENA_TRY(check("rdma_notify"));
  return from_minus_one(rdma_notify(raw(), what), "rdma_notify");
}

Result<> id::join(const socket_address& group, std::uint64_t tag, bool send_only) {
  constexpr const char* kVerb = "rdma_join_multicast";
  VERBENA_TRY(check(kVerb));
  if (!group.is_multicast())
    return fail(std::errc::invalid_argument, kVerb,
                fmt::format("{} is not the address of a group", group.to_string()));
  auto* const context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(tag));
  if (!send_only) return from_minus_one(rdma_join_multicast(raw(), group.native(), context), kVerb);
  rdma_cm_join_mc_attr_ex attributes{};
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attributes.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  attributes.addr = group.native();
  return from_minus_one(rdma_join_multicast_ex(raw(), &attributes, context),
                        "rdma_join_multicast_ex");
}

Result<> id::leave(const socket_address& group) {
  VERBENA_TRY(check("rdma_leave_multicast"));
  return from_minus_one(rdma_leave_multicast(raw(), group.native()), "rdma_leave_multicast");
}

Result<> id::migrate(const event_channel& to) {
  VERBENA_TRY(check("rdma_migrate_id"));
  VERBENA_TRY(to.check("rdma_migrate_id"));
  // The one before must outlive the lock, and the call, which names it.
  const auto before = state_->current_channel();
  const std::scoped_lock taking(before->taking);
  VERBENA_TRY(from_minus_one(rdma_migrate_id(raw(), to.raw()), "rdma_migrate_id"));
  keep old = access_to::keep_of(to);
  const std::scoped_lock lock(state_->mutex);
  state_->channel = to.state_;
  std::swap(state_->core_of_channel, old);
  return {};
}

}  // namespace cm
}  // namespace verbena::verbs
