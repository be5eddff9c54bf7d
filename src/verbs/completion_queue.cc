// SPDX-License-Identifier: Apache-2.0
#include "verbena/completion_queue.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "verbena/context.h"
#include "verbena/protection_domain.h"

namespace verbena::verbs {
namespace {

Result<> check_depth(const char* operation, std::size_t depth) {
  if (depth > 0 && depth <= static_cast<std::size_t>(INT32_MAX)) return {};
  return fail(std::errc::invalid_argument, operation, "the depth is 0, or more than an int holds");
}

}  // namespace

namespace detail {

Result<> set_blocking(int fd, bool blocking) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return fail_with(errno, "fcntl");
  const int wanted = blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
  return from_minus_one(fcntl(fd, F_SETFL, wanted), "fcntl");
}

Result<bool> wait_readable(int fd, std::chrono::milliseconds at_most, int beside) {
  using std::chrono::milliseconds;
  std::array<pollfd, 2> fds{
      {{.fd = fd, .events = POLLIN, .revents = 0}, {.fd = beside, .events = POLLIN, .revents = 0}}};
  const auto time = std::clamp(at_most, milliseconds(0), milliseconds(INT32_MAX));
  const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(time.count()));
  if (ready < 0 && errno != EINTR) return fail_with(errno, "poll");
  return ready > 0 && fds[0].revents != 0;
}

}  // namespace detail

completion_channel::completion_channel(ibv_comp_channel* raw, detail::keep parent)
    : handle(raw, &ibv_destroy_comp_channel, "ibv_destroy_comp_channel", {std::move(parent)}) {}

Result<> completion_channel::set_blocking(bool blocking) const {
  VERBENA_TRY(check("set_blocking"));
  return detail::set_blocking(raw()->fd, blocking);
}

Result<cq_event> completion_channel::get_event() const {
  VERBENA_TRY(check("get_event"));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  VERBENA_TRY(detail::from_minus_one(ibv_get_cq_event(raw(), &cq, &context), "ibv_get_cq_event"));
  // A lock each time, and worth it: the queue may be being destroyed, which waits for this.
  ibv_ack_cq_events(cq, 1);
  return cq_event{cq};
}

Result<bool> completion_channel::wait(std::chrono::milliseconds at_most) const {
  VERBENA_TRY(check("wait"));
  return detail::wait_readable(raw()->fd, at_most);
}

Result<completion_channel> context::create_channel() const {
  VERBENA_TRY(check("create_channel"));
  return completion_channel(
      VERBENA_TRY(detail::from_pointer(ibv_create_comp_channel(raw()), "ibv_create_comp_channel")),
      held());
}

completion_queue::completion_queue(ibv_cq* raw, std::vector<detail::keep> parents)
    : handle(raw, &ibv_destroy_cq, "ibv_destroy_cq", std::move(parents)) {}
completion_queue::completion_queue(ibv_cq* raw, ownership whose)
    : handle(raw, detail::destroyer_of(&ibv_destroy_cq, whose), "ibv_destroy_cq", {}) {}

Result<completion_queue> completion_queue::adopt(ibv_cq* raw, ownership whose) {
  if (raw != nullptr) return completion_queue(raw, whose);
  return fail(std::errc::invalid_argument, "adopt",
              "there is no completion queue at a null pointer");
}

Result<completion_queue_ex> completion_queue_ex::adopt(ibv_cq_ex* raw, ownership whose) {
  if (raw != nullptr) return completion_queue_ex(ibv_cq_ex_to_cq(raw), whose);
  return fail(std::errc::invalid_argument, "adopt",
              "there is no completion queue at a null pointer");
}

Result<completion_queue> context::create_cq(const cq_attributes& attributes) const {
  VERBENA_TRY(check("create_cq"));
  VERBENA_TRY(check_depth("create_cq", attributes.depth));
  std::vector<detail::keep> parents{held()};
  ibv_comp_channel* channel = nullptr;
  if (attributes.channel != nullptr) {
    VERBENA_TRY(detail::access_to::check(*attributes.channel, "create_cq"));
    channel = detail::access_to::raw_of(*attributes.channel);
    parents.push_back(detail::access_to::keep_of(*attributes.channel));
  }
  ibv_cq* const cq =
      ibv_create_cq(raw(), static_cast<int>(attributes.depth), nullptr, channel, attributes.vector);
  VERBENA_TRY(detail::from_pointer(cq, "ibv_create_cq"));
  return completion_queue(cq, std::move(parents));
}

Result<completion_queue_ex> context::create_cq_ex(const cq_ex_attributes& attributes) const {
  VERBENA_TRY(check("create_cq_ex"));
  VERBENA_TRY(check_depth("create_cq_ex", attributes.depth));
  std::vector<detail::keep> parents{held()};
  ibv_cq_init_attr_ex from{};
  from.cqe = static_cast<std::uint32_t>(attributes.depth);
  from.comp_vector = static_cast<std::uint32_t>(attributes.vector);
  from.wc_flags = static_cast<std::uint64_t>(attributes.fields);
  if (attributes.channel != nullptr) {
    VERBENA_TRY(detail::access_to::check(*attributes.channel, "create_cq_ex"));
    from.channel = detail::access_to::raw_of(*attributes.channel);
    parents.push_back(detail::access_to::keep_of(*attributes.channel));
  }
  if (attributes.parent_domain != nullptr) {
    VERBENA_TRY(detail::access_to::check(*attributes.parent_domain, "create_cq_ex"));
    from.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
    from.parent_domain = detail::access_to::raw_of(*attributes.parent_domain);
    parents.push_back(detail::access_to::keep_of(*attributes.parent_domain));
  }
  if (attributes.single_threaded) {
    from.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
    from.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  }
  ibv_cq_ex* const cq =
      VERBENA_TRY(detail::from_pointer(ibv_create_cq_ex(raw(), &from), "ibv_create_cq_ex"));
  return completion_queue_ex(ibv_cq_ex_to_cq(cq), std::move(parents));
}

namespace {

std::unexpected<Error> empty_handle(const char* operation) {
  return fail(std::errc::bad_file_descriptor, operation,
              "the handle is empty: it was moved from or closed");
}

}  // namespace

Result<> poll_guard::begun() const {
  if (error_ == 0 || error_ == ENOENT) return {};
  if (error_ == EBADF) return empty_handle("start_poll");
  return detail::fail_with(error_, "ibv_start_poll");
}

std::unexpected<Error> completion_queue::poll_failed(int returned) {
  if (returned == -EBADF) return empty_handle("poll");
  return std::unexpected(detail::from_count(returned, "ibv_poll_cq").error());
}

Result<> completion_queue::resize(std::size_t depth) const {
  VERBENA_TRY(check("resize"));
  VERBENA_TRY(check_depth("resize", depth));
  return detail::from_errno(ibv_resize_cq(raw(), static_cast<int>(depth)), "ibv_resize_cq");
}

std::optional<std::uint32_t> poll_guard::immediate() const {
  if ((ibv_wc_read_wc_flags(cq_) & IBV_WC_WITH_IMM) == 0) return std::nullopt;
  return be32toh(ibv_wc_read_imm_data(cq_));
}

Result<> poll_guard::result() const {
  if (ok()) return {};
  // A queue that was made without the field may have no function for it.
  const std::uint32_t number = cq_->read_qp_num == nullptr ? 0 : qp_num().value();
  return std::unexpected(Error(completion_failure{
      .status = status(), .vendor_err = vendor_err(), .wr_id = wr_id(), .qp_num = number}));
}

Result<> completion_queue_ex::moderate(std::uint16_t count,
                                       std::chrono::microseconds period) const {
  VERBENA_TRY(check("moderate"));
  if (period.count() < 0 || period.count() > UINT16_MAX)
    return fail(std::errc::invalid_argument, "moderate", "a period is 0 to 65535 microseconds");
  ibv_modify_cq_attr attributes{};
  attributes.attr_mask = IBV_CQ_ATTR_MODERATE;
  attributes.moderate.cq_count = count;
  attributes.moderate.cq_period = static_cast<std::uint16_t>(period.count());
  return detail::from_errno(ibv_modify_cq(raw(), &attributes), "ibv_modify_cq");
}

std::optional<std::uint32_t> work_completion::immediate() const noexcept {
  if ((wc_.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
  return be32toh(wc_.imm_data);
}

std::optional<std::uint32_t> work_completion::invalidated_rkey() const noexcept {
  if ((wc_.wc_flags & IBV_WC_WITH_INV) == 0) return std::nullopt;
  return wc_.invalidated_rkey;
}

std::unexpected<Error> work_completion::failure() const {
  return std::unexpected(Error(completion_failure{.status = wc_.status,
                                                  .vendor_err = wc_.vendor_err,
                                                  .wr_id = wc_.wr_id,
                                                  .qp_num = wc_.qp_num}));
}

}  // namespace verbena::verbs
