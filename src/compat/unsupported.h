// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compat/abi.h"

/// Verbs that this NIC does not have yet and that programs call through a context's table without
/// asking whether they are there. The exported ones are in `unsupported.cc` alone.
namespace verbena::compat {

int bind_mw(ibv_qp* qp, ibv_mw* window, ibv_mw_bind* bind) noexcept;
int dealloc_mw(ibv_mw* window) noexcept;

}  // namespace verbena::compat
