// SPDX-License-Identifier: Apache-2.0
#include "verbena/counting_observer.h"

namespace verbena::verbs {
namespace {

void count(std::atomic<std::uint64_t>& one) { one.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

object_counts counting_observer::counts() const noexcept {
  object_counts to;
  for (std::size_t kind = 0; kind < object_kinds; ++kind) {
    const of_kind& from = kinds_.at(kind);
    to.kinds.at(kind) = {
        .created = from.created, .destroyed = from.destroyed, .closed = from.closed};
  }
  to.lost = lost_;
  to.failed = failed_;
  to.transitions = transitions_;
  to.errors = errors_;
  to.phases = phases_;
  return to;
}

void counting_observer::created(const observed_object& what) noexcept { count(of(what).created); }
void counting_observer::destroyed(const observed_object& what) noexcept {
  count(of(what).destroyed);
}
void counting_observer::closed(const observed_object& what) noexcept { count(of(what).closed); }
void counting_observer::lost(const char* /*verb*/, std::error_code /*code*/) noexcept {
  count(lost_);
}
void counting_observer::state_changed(const observed_object& /*what*/, qp_state /*from*/,
                                      qp_state to) noexcept {
  count(transitions_);
  if (to == qp_state::err) count(errors_);
}
void counting_observer::failed(const char* /*verb*/, std::error_code /*code*/) noexcept {
  count(failed_);
}
void counting_observer::phase_changed(const observed_object& /*what*/,
                                      std::string_view /*phase*/) noexcept {
  count(phases_);
}

}  // namespace verbena::verbs
