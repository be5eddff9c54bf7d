// SPDX-License-Identifier: Apache-2.0
#include "verbena/counted.h"

namespace verbena::verbs {

using detail::add;
using detail::read;

Result<std::span<work_completion>> counted_completion_queue::poll(std::span<work_completion> into) {
  auto got = cq_.poll(into);
  add(polls_, 1);
  if (!got) {
    add(failed_, 1);
    return got;
  }
  if (got->empty()) add(empty_, 1);
  for (const work_completion& one : *got) {
    add(by_status_.at(completion_counts::index_of(one.status())), 1);
    if (one.ok() && one.is_receive()) add(received_bytes_, one.byte_len());
  }
  return got;
}

completion_counts counted_completion_queue::counts() const noexcept {
  completion_counts to;
  for (std::size_t i = 0; i < completion_counts::statuses; ++i)
    to.by_status.at(i) = read(by_status_.at(i));
  to.polls = read(polls_);
  to.empty_polls = read(empty_);
  to.failed_polls = read(failed_);
  to.received_bytes = read(received_bytes_);
  return to;
}

}  // namespace verbena::verbs
