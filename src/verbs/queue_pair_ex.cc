// SPDX-License-Identifier: Apache-2.0
#include "verbena/queue_pair_ex.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace verbena::verbs::detail {
namespace {

struct Operation {
  send_ops operation;
  const char* name;
};
constexpr std::array kOperations{
    Operation{send_ops::send, "send"},
    Operation{send_ops::send_with_immediate, "send_with_immediate"},
    Operation{send_ops::send_with_invalidate, "send_with_invalidate"},
    Operation{send_ops::write, "write"},
    Operation{send_ops::write_with_immediate, "write_with_immediate"},
    Operation{send_ops::read, "read"},
    Operation{send_ops::fetch_add, "fetch_add"},
    Operation{send_ops::compare_swap, "compare_swap"},
    Operation{send_ops::invalidate, "invalidate"},
    Operation{send_ops::bind, "bind"},
    Operation{send_ops::atomic_write, "atomic_write"},
};

const char* name_of(send_ops operation) {
  for (const Operation& one : kOperations)
    if (one.operation == operation) return one.name;
  return "this operation";
}

}  // namespace

session_base::session_base(ibv_qp_ex* qp, send_ops allowed, std::uint32_t max_inline_data) noexcept
    : qp_(qp), allowed_(allowed), max_inline_data_(max_inline_data) {
  if (qp_ != nullptr) ibv_wr_start(qp_);
}

void session_base::refuse(Error why) {
  if (!failure_) failure_ = std::move(why);
}

void session_base::refuse_operation(send_ops operation) {
  refuse(Error(std::errc::operation_not_permitted, "wr_session",
               fmt::format("the queue pair was made without send_ops::{}", name_of(operation))));
}

void session_base::refuse_inline(std::size_t size) {
  refuse(
      Error(std::errc::message_size, "wr_session",
            fmt::format("{} bytes inline, where the queue pair takes {}", size, max_inline_data_)));
}

Result<> session_base::finish() {
  ibv_qp_ex* const qp = std::exchange(qp_, nullptr);
  if (qp == nullptr)
    return fail(std::errc::bad_file_descriptor, "wr_session::complete",
                "it was completed before, or its queue pair's handle is empty");
  if (failure_) {
    ibv_wr_abort(qp);
    return std::unexpected(*failure_);
  }
  const auto posted = from_errno(ibv_wr_complete(qp), "ibv_wr_complete");
  if (!posted && posted.error() == std::errc::not_enough_memory)
    return fail(std::errc::resource_unavailable_try_again, "ibv_wr_complete",
                "the queue is full; nothing of the session was posted");
  return posted;
}

}  // namespace verbena::verbs::detail
