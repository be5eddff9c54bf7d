// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

/// What the kernel says of this process (proc(5)).
namespace verbena::nic {

/// A line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string_view rights;  ///< "rw-p"
  std::uint64_t offset = 0;
  std::uint64_t device = 0;  ///< as in struct stat
  std::uint64_t inode = 0;
  std::string_view name;
};

/// Calls `visit(const Mapping&)` for each mapping, lowest first, until it returns false. False when
/// the map could not be read to its end or to where `visit` had enough. Allocates nothing.
template <typename Visit>
[[nodiscard]] bool visit_mappings(Visit&& visit);

/// How many threads the process has; 0 when that cannot be known.
[[nodiscard]] unsigned count_threads();

namespace detail {
using VisitMapping = bool (*)(void* visit, const Mapping& mapping);
[[nodiscard]] bool visit_mappings(VisitMapping call, void* visit);
}  // namespace detail

template <typename Visit>
bool visit_mappings(Visit&& visit) {
  return detail::visit_mappings(
      [](void* what, const Mapping& mapping) {
        return (*static_cast<std::remove_reference_t<Visit>*>(what))(mapping);
      },
      &visit);
}

}  // namespace verbena::nic
