// SPDX-License-Identifier: Apache-2.0
//
// What every rule includes. It is precompiled as a file of its own, which has no #pragma once.
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "verbena/async/dispatcher.h"
#include "verbena/cm.h"
#include "verbena/context.h"
#include "verbena/counted.h"
#include "verbena/memory_window.h"
#include "verbena/protection_domain.h"
#include "verbena/queue_pair_ex.h"
#include "verbena/stream.h"
#include "verbena/xrc.h"

using namespace verbena::verbs;
