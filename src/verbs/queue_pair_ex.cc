// SPDX-License-Identifier: Apache-2.0
#include "verbena/queue_pair_ex.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

namespace verbena::verbs::detail {
namespace {

/// A queue whose calls do nothing, and why.
struct Silent : ibv_qp_ex {
  explicit Silent(Error the_why) : ibv_qp_ex(silent_queue()), why(std::move(the_why)) {}
  Error why;
};

Error error_of(mistake what) {
  constexpr const char* kVerb = "wr_session";
  switch (what) {
    case mistake::empty: break;
    case mistake::setter_first:
      return {std::errc::invalid_argument, kVerb, "a setter comes behind its request"};
    case mistake::many_pieces:
      return {std::errc::argument_list_too_long, kVerb, "inline data have 16 pieces at most"};
    case mistake::no_address:
      return {std::errc::bad_file_descriptor, kVerb,
              "the address handle is empty: it was moved from or closed"};
  }
  return {std::errc::bad_file_descriptor, "wr_session::complete",
          "it was completed before, or its queue pair's handle is empty"};
}

}  // namespace

Error session_base::not_inline(std::size_t size, std::uint32_t most) {
  return {std::errc::message_size, "wr_session",
          fmt::format("{} bytes inline, where the queue pair takes {}", size, most)};
}

ibv_qp_ex* session_base::silence(ibv_qp_ex* before, ibv_qp_ex* qp, const Error& why) {
  if (before != nullptr) return before;
  if (qp != nullptr) ibv_wr_abort(qp);
  return new Silent(why);
}

ibv_qp_ex* session_base::silence(ibv_qp_ex* before, ibv_qp_ex* qp, mistake why) {
  return silence(before, qp, error_of(why));
}

void session_base::forget(ibv_qp_ex* silent) noexcept { delete static_cast<Silent*>(silent); }

std::unexpected<Error> session_base::not_completed(int error, ibv_qp_ex* silent) {
  const std::unique_ptr<Silent> owner(static_cast<Silent*>(silent));
  if (owner != nullptr) return std::unexpected(std::move(owner->why));
  if (error == EBADF) return std::unexpected(error_of(mistake::empty));
  auto failed = fail_returned(error, "ibv_wr_complete");
  if (failed.error() != std::errc::not_enough_memory) return failed;
  return fail(std::errc::resource_unavailable_try_again, "ibv_wr_complete",
              "the queue is full; nothing of the session was posted");
}

}  // namespace verbena::verbs::detail
