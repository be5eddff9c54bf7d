// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compat/objects.h"

/// The contexts that are open, for what happens to the process as a whole: forks and its end.
namespace verbena::compat {

void enter_context(Context& context);
void leave_context(Context& context);

/// At exit: acknowledgements that were held back leave, so that no peer waits for them.
void flush_contexts();

void lock_contexts();
void unlock_contexts();

}  // namespace verbena::compat
