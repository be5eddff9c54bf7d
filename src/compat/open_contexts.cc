// SPDX-License-Identifier: Apache-2.0
#include "compat/open_contexts.h"

#include <algorithm>
#include <atomic>
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
constinit std::atomic<bool> imported{false};

}  // namespace

void enter_context(Context& context) {
  OpenContexts& open = open_contexts();
  const std::scoped_lock lock(open.lock);
  open.contexts.push_back(&context);
}

bool leave_context(Context& context) {
  OpenContexts& open = open_contexts();
  const std::scoped_lock lock(open.lock);
  std::erase(open.contexts, &context);
  if (is_dead(context.generation)) return false;
  const auto heir = std::ranges::find(open.contexts, context.nic, &Context::nic);
  if (heir == open.contexts.end()) return false;
  const std::scoped_lock objects((*heir)->objects_lock, context.objects_lock);
  const auto bequeath = [&](auto Context::* list) {
    ((*heir)->*list).splice(((*heir)->*list).end(), context.*list);
  };
  bequeath(&Context::pds);
  bequeath(&Context::mrs);
  bequeath(&Context::mws);
  bequeath(&Context::dms);
  bequeath(&Context::ahs);
  bequeath(&Context::channels);
  bequeath(&Context::cqs);
  bequeath(&Context::srqs);
  bequeath(&Context::qps);
  bequeath(&Context::xrcds);
  bequeath(&Context::flows);
  bequeath(&Context::wqs);
  bequeath(&Context::tables);
  return true;
}

Result<Origin> find_origin(const FileIdentity& identity) {
  OpenContexts& open = open_contexts();
  const std::scoped_lock lock(open.lock);
  const auto found = std::ranges::find(open.contexts, identity, &Context::identity);
  if (found == open.contexts.end()) {
    return fail(std::errc::operation_not_supported,
                "the device was opened by another process, whose memory is out of reach");
  }
  static_cast<void>(VERBENA_TRY(alive((*found)->plain())));
  return Origin{.device = (*found)->device, .nic = (*found)->nic};
}

void for_sharing(const Context& context, const std::function<bool(Context&)>& visit) {
  OpenContexts& open = open_contexts();
  const std::scoped_lock lock(open.lock);
  for (Context* sharing : open.contexts) {
    if (sharing->nic != context.nic) continue;
    const std::scoped_lock objects(sharing->objects_lock);
    if (visit(*sharing)) return;
  }
}

void note_import() { imported.store(true); }
bool has_imported() { return imported.load(); }

void flush_contexts() {
  OpenContexts& open = open_contexts();
  // A process that exits inside one of our calls must not hang here.
  const std::unique_lock lock(open.lock, std::try_to_lock);
  if (!lock) return;
  for (Context* context : open.contexts) {
    if (!is_dead(context->generation))
      context->nic->finish(context->nic->host().now(), kFlushBudget);
  }
}

void lock_contexts() { open_contexts().lock.lock(); }
void unlock_contexts() { open_contexts().lock.unlock(); }

}  // namespace verbena::compat
