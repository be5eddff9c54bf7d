// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/streams/streams.h"
#include "bench/support/control.h"
#include "verbena/context.h"
#include "verbena/queue_pair.h"
#include "verbena/stream.h"

namespace verbena::bench {

/// The two sides meet, and have a stream with room for messages of the wanted size.
[[nodiscard]] verbs::stream connect_ends(const Streams& wanted);
/// The queue pair is connected with that of the other side. What comes before its receive is posted
/// is sent again soon.
void connect(verbs::queue_pair<verbs::rc>& qp, const verbs::context& of, const Control& control);

}  // namespace verbena::bench
