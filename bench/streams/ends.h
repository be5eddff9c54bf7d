// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/streams/streams.h"
#include "verbena/stream.h"

namespace verbena::bench {

/// The two sides meet, and have a stream with room for messages of the wanted size.
[[nodiscard]] verbs::stream connect_ends(const Streams& wanted);

}  // namespace verbena::bench
