// SPDX-License-Identifier: Apache-2.0
// ibv_fork_init(3), ibv_is_fork_initialized(3): a device that copies through the process's own
// mappings needs no page kept out of a child, so there is nothing to prepare.
#include "compat/abi.h"

namespace verbena::compat {

VERBENA_EXPORT int ibv_fork_init(void) { return 0; }
VERBENA_EXPORT ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
VERBENA_EXPORT int ibv_dontfork_range(void* /*base*/, size_t /*size*/) { return 0; }
VERBENA_EXPORT int ibv_dofork_range(void* /*base*/, size_t /*size*/) { return 0; }

}  // namespace verbena::compat
