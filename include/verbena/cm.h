// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All of the rdma_cm. Programs that use it are linked with librdmacm (`verbena::cm`).
#include "verbena/cm_connection.h"   // IWYU pragma: export
#include "verbena/cm_datagram.h"     // IWYU pragma: export
#include "verbena/cm_event.h"        // IWYU pragma: export
#include "verbena/cm_id.h"           // IWYU pragma: export
#include "verbena/cm_listener.h"     // IWYU pragma: export
#include "verbena/socket_address.h"  // IWYU pragma: export
