// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

extern "C" {

/// Where each symbol of verbs_symbols.txt leads, in its order; the second form jumps through it.
__attribute__((visibility("default"))) extern void* verbena_entry_points[];
__attribute__((visibility("hidden"))) extern const char* const verbena_entry_names[];

/// Puts the system's function into a slot and returns it. Called by the slot's first use, with all
/// argument registers saved.
__attribute__((visibility("hidden"), used)) void* verbena_resolve_forward(std::uint64_t slot);

}  // extern "C"
