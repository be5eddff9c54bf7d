// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace verbena {

/// In builds with VERBENA_MUTANTS: the place among `names` of the fault that the environment
/// variable asks for, 0 when it is not set. A name that is none ends the process.
[[nodiscard]] std::size_t chosen_mutant(const char* variable,
                                        std::span<const std::string_view> names);

}  // namespace verbena
