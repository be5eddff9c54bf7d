// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "verbena/cm_event.h"
#include "verbs/cm/state.h"

namespace verbena::verbs {
namespace detail {

template <>
observed_object seen_as(const rdma_event_channel* raw) {
  return {.kind = object_kind::cm_channel,
          .native = raw,
          .number = static_cast<std::uint32_t>(raw->fd)};
}

}  // namespace detail

namespace cm {
namespace {

using verbs::detail::cm_channel_state;
using verbs::detail::cm_id_state;

int destroy_channel(rdma_event_channel* channel) {
  rdma_destroy_event_channel(channel);
  return 0;
}

bool is_of_group(const rdma_cm_event& from) {
  return from.event == RDMA_CM_EVENT_MULTICAST_JOIN || from.event == RDMA_CM_EVENT_MULTICAST_ERROR;
}

std::vector<std::byte> copy_of(const void* data, std::size_t size) {
  const auto* const first = static_cast<const std::byte*>(data);
  return data == nullptr ? std::vector<std::byte>() : std::vector(first, first + size);
}

bool is_datagram(const rdma_cm_id& of) { return of.ps == RDMA_PS_UDP || of.ps == RDMA_PS_IPOIB; }

datagram_target target_of(const rdma_ud_param& from) {
  const ibv_ah_attr& way = from.ah_attr;
  return {.way = {.to = gid(way.grh.dgid),
                  .from = verbs::port(way.port_num),
                  .source = gid_index(way.grh.sgid_index),
                  .hop_limit = way.grh.hop_limit,
                  .traffic_class = way.grh.traffic_class,
                  .service_level = way.sl,
                  .flow_label = way.grh.flow_label,
                  .to_lid = lid(way.dlid),
                  .static_rate = way.static_rate},
          .to = qp_number(from.qp_num),
          .key = qkey(from.qkey)};
}

connection_parameters parameters_of(const rdma_conn_param& from) {
  return {.responder_resources = from.responder_resources,
          .initiator_depth = from.initiator_depth,
          .retry_count = from.retry_count,
          .rnr_retry_count = from.rnr_retry_count,
          .flow_control = from.flow_control != 0,
          .number = qp_number(from.qp_num),
          .has_srq = from.srq != 0};
}

std::uint64_t number_of(const rdma_cm_id* raw) {
  return static_cast<const cm_id_state*>(raw->context)->number;
}

/// The events that have no parameters leave the C struct's as they are.
bool has_parameters(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR: return true;
    default: return false;
  }
}

/// Readable once a token was asked to stop (eventfd(2)). Of one that never is there is none: -1.
class StopDescriptor {
 public:
  explicit StopDescriptor(const std::stop_token& stop) {
    if (!stop.stop_possible()) return;
    fd_ = ::eventfd(0, EFD_CLOEXEC);
    if (fd_ < 0)
      error_ = errno;
    else
      tell_.emplace(stop, Tell{fd_});
  }
  StopDescriptor(const StopDescriptor&) = delete;
  StopDescriptor& operator=(const StopDescriptor&) = delete;
  ~StopDescriptor() {
    tell_.reset();
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] Result<> check() const {
    if (error_ != 0) return verbs::detail::fail_with(error_, "eventfd");
    return {};
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  struct Tell {
    int fd;
    void operator()() const { (void)::eventfd_write(fd, 1); }
  };
  int fd_ = -1;
  int error_ = 0;
  std::optional<std::stop_callback<Tell>> tell_;
};

}  // namespace

event_channel::event_channel(rdma_event_channel* raw, std::shared_ptr<cm_channel_state> state,
                             ownership whose)
    : handle(raw, verbs::detail::destroyer_of(&destroy_channel, whose),
             "rdma_destroy_event_channel", {state}),
      state_(std::move(state)) {}

Result<event_channel> event_channel::create() {
  rdma_event_channel* const raw = rdma_create_event_channel();
  if (raw == nullptr) {
    const int error = errno != 0 ? errno : ENODEV;
    const char* const why = error == ENOENT || error == ENODEV
                                ? "the machine has no rdma_cm (verbena run PROGRAM gives a "
                                  "program one)"
                                : "";
    return std::unexpected(Error({error == ENOENT ? ENODEV : error, verbs_category()},
                                 "rdma_create_event_channel", why));
  }
  return adopt(raw, ownership::owned);
}

Result<event_channel> event_channel::adopt(rdma_event_channel* raw, ownership whose) {
  if (raw == nullptr)
    return fail(std::errc::invalid_argument, "adopt",
                "there is no event channel at a null pointer");
  event_channel made(raw, std::make_shared<cm_channel_state>(), whose);
  // Whoever takes an event holds a lock, and must not sleep with it: waiting is poll's.
  VERBENA_TRY(verbs::detail::set_blocking(raw->fd, false));
  return made;
}

Result<> event_channel::set_blocking(bool blocking) const {
  VERBENA_TRY(check("set_blocking"));
  state_->blocking = blocking;
  return {};
}

event event_channel::copy_out(const rdma_cm_event& from) const {
  event to;
  to.type_ = static_cast<event_type>(from.event);
  to.status_ = from.status;
  if (from.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    // It has the context of the one that listens until here.
    to.listener_ = number_of(from.listen_id);
    auto state = std::make_shared<cm_id_state>(state_, verbs::detail::access_to::keep_of(*this));
    from.id->context = state.get();
    to.request_ = id(from.id, std::move(state));
  }
  to.about_ = number_of(from.id);
  if (is_of_group(from)) {
    to.tag_ = reinterpret_cast<std::uintptr_t>(from.param.ud.private_data);
    if (from.event == RDMA_CM_EVENT_MULTICAST_JOIN) to.target_ = target_of(from.param.ud);
  } else if (!has_parameters(from.event)) {
    return to;
  } else if (is_datagram(*from.id)) {
    to.private_data_ = copy_of(from.param.ud.private_data, from.param.ud.private_data_len);
    if (from.event == RDMA_CM_EVENT_ESTABLISHED) to.target_ = target_of(from.param.ud);
  } else {
    to.private_data_ = copy_of(from.param.conn.private_data, from.param.conn.private_data_len);
    to.parameters_ = parameters_of(from.param.conn);
  }
  return to;
}

Result<event> event_channel::try_get_event() const {
  VERBENA_TRY(check("get_event"));
  const std::scoped_lock lock(state_->taking);
  rdma_cm_event* raw_event = nullptr;
  VERBENA_TRY(
      verbs::detail::from_minus_one(rdma_get_cm_event(raw(), &raw_event), "rdma_get_cm_event"));
  event taken = copy_out(*raw_event);
  VERBENA_TRY(verbs::detail::from_minus_one(rdma_ack_cm_event(raw_event), "rdma_ack_cm_event"));
  return taken;
}

Result<event> event_channel::get_event() const {
  while (true) {
    auto taken = try_get_event();
    if (taken || !taken.error().would_block() || !state_->blocking) return taken;
    VERBENA_TRY(wait(std::chrono::milliseconds::max()));
  }
}

Result<bool> event_channel::wait(std::chrono::milliseconds at_most,
                                 const std::stop_token& stop) const {
  VERBENA_TRY(check("wait"));
  const StopDescriptor stopped(stop);
  VERBENA_TRY(stopped.check());
  return verbs::detail::wait_readable(raw()->fd, at_most, stopped.fd());
}

}  // namespace cm
}  // namespace verbena::verbs
