// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <type_traits>

/// The system's libibverbs, for the real devices beside ours. It is opened by its absolute name and
/// asked by symbol: RTLD_NEXT finds nothing when a plug-in loaded libibverbs for itself.
namespace verbena::compat::real {

/// The symbol in the system's libibverbs; null when there is no such library or symbol. Opens the
/// library at first use.
[[nodiscard]] void* symbol(const char* name);

/// While one lives, file redirection leaves this thread alone: the real library, and whoever wants
/// to see what is really there.
class Unredirected {
 public:
  Unredirected();
  ~Unredirected();
  Unredirected(const Unredirected&) = delete;
  Unredirected& operator=(const Unredirected&) = delete;
};
[[nodiscard]] bool unredirected();

template <std::size_t kSize>
struct Name {
  char text[kSize];
  // NOLINTNEXTLINE(google-explicit-constructor): written as a literal
  constexpr Name(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
};

/// Calls the real library's function of that name, whose type is `entry`'s. Only for objects that
/// came from it; without it, the answer is EOPNOTSUPP in the form that the type has.
template <Name kName, typename R, typename... P>
R call(R (*entry)(P...), std::type_identity_t<P>... arguments) {
  static_cast<void>(entry);
  static std::atomic<R (*)(P...)> known{nullptr};
  auto* function = known.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = reinterpret_cast<R (*)(P...)>(symbol(kName.text));
    known.store(function, std::memory_order_release);
  }
  if (function != nullptr) return function(arguments...);
  errno = EOPNOTSUPP;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else if constexpr (!std::is_void_v<R>) {
    return static_cast<R>(EOPNOTSUPP);
  }
}

}  // namespace verbena::compat::real
