// SPDX-License-Identifier: Apache-2.0
#include "compat/open_contexts.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace verbena::compat {
namespace {

struct OpenContexts {
  std::mutex lock;
  std::vector<Context*> contexts;
};

OpenContexts& open_contexts() {
  static auto* const leaked = new OpenContexts;
  return *leaked;
}

constexpr std::uint32_t kFlushBudget = 64;

}  // namespace

void enter_context(Context& context) {
  OpenContexts& open = open_contexts();
  const std::scoped_lock lock(open.lock);
  open.contexts.push_back(&context);
}

void leave_context(Context& context) {
  OpenContexts& open = open_contexts();
  const std::scoped_lock lock(open.lock);
  std::erase(open.contexts, &context);
}

void flush_contexts() {
  OpenContexts& open = open_contexts();
  // A process that exits inside one of our calls must not hang here.
  const std::unique_lock lock(open.lock, std::try_to_lock);
  if (!lock) return;
  for (Context* context : open.contexts) {
    if (!is_dead(context->generation))
      context->nic->progress(context->nic->host().now(), kFlushBudget);
  }
}

void lock_contexts() { open_contexts().lock.lock(); }
void unlock_contexts() { open_contexts().lock.unlock(); }

}  // namespace verbena::compat
