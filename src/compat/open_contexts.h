// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "compat/objects.h"

/// The contexts that are open, for what happens to the process as a whole: forks and its end.
namespace verbena::compat {

void enter_context(Context& context);
/// Its objects go to another context of the same NIC when there is one; false when it was the last.
[[nodiscard]] bool leave_context(Context& context);

/// What a context that is imported has in common with the one that it comes from.
struct Origin {
  Device* device = nullptr;
  std::shared_ptr<nic::Nic> nic{};
};
/// The open device that a command file stands for: io_error when this process has it from the one
/// that forked it, operation_not_supported when another process opened it.
[[nodiscard]] Result<Origin> find_origin(const FileIdentity& identity);

/// Calls `visit` for each context with the same NIC, no object of which comes or goes meanwhile,
/// until it says true.
void for_sharing(const Context& context, const std::function<bool(Context&)>& visit);

/// Something of the process's got a second C object. Before that there is nothing to look for
/// among what may be thousands.
void note_import();
[[nodiscard]] bool has_imported();

/// Takes something of the NIC's that is gone out of all C objects that stand for it: of an original
/// and what was imported from it, one is destroyed, and the others only unimported.
template <typename Object, typename Thing>
void forget(const Context& context, std::list<Object*> Context::* list, Thing* Object::* member,
            const Thing* gone) {
  if (!has_imported()) return;
  for_sharing(context, [&](Context& sharing) {
    for (Object* object : sharing.*list) {
      if (object->*member == gone) object->*member = nullptr;
    }
    return false;
  });
}

/// At exit: acknowledgements that were held back leave, so that no peer waits for them.
void flush_contexts();

void lock_contexts();
void unlock_contexts();

}  // namespace verbena::compat
