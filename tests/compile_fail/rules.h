// SPDX-License-Identifier: Apache-2.0
//
// What every rule includes. It is precompiled as a file of its own, which has no #pragma once.
#include <span>
#include <utility>

#include "verbena/context.h"
#include "verbena/counted.h"
#include "verbena/memory_window.h"
#include "verbena/protection_domain.h"
#include "verbena/queue_pair_ex.h"
#include "verbena/xrc.h"

using namespace verbena::verbs;
