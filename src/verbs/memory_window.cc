// SPDX-License-Identifier: Apache-2.0
#include "verbena/memory_window.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace verbena::verbs::detail {
namespace {

constexpr access kRemote = access::remote_write | access::remote_read | access::remote_atomic;
constexpr access kChanges = access::remote_write | access::remote_atomic;

bool any(access rights, access of) { return (rights & of) != access::none; }

Result<> check_rights(const window_range& range, const char* operation) {
  const auto superfluous =
      static_cast<unsigned>(range.rights) & ~static_cast<unsigned>(kRemote | access::zero_based);
  if (!any(range.rights, kRemote) || superfluous != 0)
    return fail(std::errc::invalid_argument, operation,
                "a window's rights are remote_read, remote_write and remote_atomic, one at least, "
                "and zero_based");
  if (!has(range.of.rights(), access::mw_bind))
    return fail(std::errc::permission_denied, operation,
                "the region was registered without mw_bind");
  if (any(range.rights, kChanges) && !has(range.of.rights(), access::local_write))
    return fail(std::errc::permission_denied, operation,
                "remote_write and remote_atomic need a region with local_write");
  return {};
}

}  // namespace

window_base::window_base(ibv_mw* raw, std::vector<keep> parents, std::vector<keep>* held)
    : handle(raw, &ibv_dealloc_mw, "ibv_dealloc_mw", std::move(parents)), held_(held) {}

Result<window_base> window_base::alloc(ibv_pd* pd, window_type type, keep parent) {
  auto regions = std::make_shared<std::vector<keep>>();
  std::vector<keep>* const held = regions.get();
  ibv_mw* const mw =
      VERBENA_TRY(from_pointer(ibv_alloc_mw(pd, static_cast<ibv_mw_type>(type)), "ibv_alloc_mw"));
  return window_base(mw, {std::move(parent), std::move(regions)}, held);
}

Result<remote_region> window_base::remote() const {
  VERBENA_TRY(check("memory_window::remote"));
  if (open_.rkey() == 0)
    return fail(std::errc::not_connected, "memory_window::remote", "the window is not bound");
  return open_;
}

Result<ibv_mw_bind_info> window_base::checked(const window_range& range,
                                              const char* operation) const {
  VERBENA_TRY(check(operation));
  VERBENA_TRY(access_to::check(range.of, operation));
  VERBENA_TRY(check_rights(range, operation));
  if (range.length == 0 || range.offset > range.of.size() ||
      range.length > range.of.size() - range.offset)
    return fail(std::errc::result_out_of_range, operation,
                fmt::format("{} bytes from {} on are none, or not within {} bytes", range.length,
                            range.offset, range.of.size()));
  return ibv_mw_bind_info{.mr = range.of.native(),
                          .addr = VERBENA_TRY(range.of.slice(range.offset, 0)).address(),
                          .length = range.length,
                          .mw_access_flags = static_cast<unsigned>(range.rights)};
}

Result<> window_base::bind_now(ibv_qp* qp, const ibv_mw_bind_info& info, posting how) {
  ibv_mw_bind to{
      .wr_id = how.wr_id, .send_flags = static_cast<unsigned>(how.flags), .bind_info = info};
  // It posts a request: a full queue is no error of the window's.
  auto bound = from_errno(ibv_bind_mw(qp, raw(), &to), "ibv_bind_mw");
  if (!bound && bound.error() == std::errc::not_enough_memory)
    return fail(std::errc::resource_unavailable_try_again, "ibv_bind_mw", "the queue is full");
  return bound;
}

void window_base::note_bound(const window_range& range, std::uint64_t start, std::uint32_t rkey) {
  settled();
  held_->push_back(range.of.lease());
  open_ = remote_region(has(range.rights, access::zero_based) ? 0 : start, range.length, rkey);
  rkey_ = rkey;
}

void window_base::note_void() noexcept { open_ = remote_region(); }

void window_base::settled() noexcept {
  if (native() == nullptr || held_->empty()) return;
  const bool bound = open_.rkey() != 0;
  held_->erase(held_->begin(), held_->end() - (bound ? 1 : 0));
}

}  // namespace verbena::verbs::detail
