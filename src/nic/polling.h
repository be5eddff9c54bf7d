// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "nic/completion_queue.h"
#include "nic/nic.h"

namespace verbena::nic {

/// As Nic::poll(), but each of at most `most` completions is shown where it lies, by
/// visit(completion, time), in place of being copied: see CompletionQueue::take_each().
template <typename Visit>
[[nodiscard]] Result<std::uint32_t> poll(Nic& nic, CompletionQueue& cq, std::size_t most,
                                         Visit&& visit) {
  std::uint32_t taken = cq.take_each(most, visit);
  if (taken != 0 && nic.goes_undriven(cq)) return taken;
  nic.drive(cq);
  taken += cq.take_each(most - taken, visit);
  if (taken == 0 && cq.ended()) [[unlikely]]
    return fail(std::errc::io_error, "the completion queue overflowed");
  return taken;
}

}  // namespace verbena::nic
