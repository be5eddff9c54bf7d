// SPDX-License-Identifier: Apache-2.0
#include "compat/real.h"

#include <dlfcn.h>
#include <link.h>

#include <mutex>
#include <string_view>

namespace verbena::compat::real {
namespace {

// Of the initial-exec model: reading it never allocates, so that it may be read in a signal
// handler.
[[gnu::tls_model("initial-exec")]] thread_local int unredirected_depth = 0;

constexpr const char* kPlaces[] = {
#ifdef VERBENA_MULTIARCH
    "/usr/lib/" VERBENA_MULTIARCH "/libibverbs.so.1",
#endif
    "/usr/lib64/libibverbs.so.1",
    "/usr/lib/libibverbs.so.1",
    "/usr/local/lib/libibverbs.so.1",
};

// Our own second form carries this name, the system's library does not.
constexpr const char* kOursCarries = "verbena_second_form";

bool is_real(void* handle) { return handle != nullptr && dlsym(handle, kOursCarries) == nullptr; }

void* open_library() {
  const Unredirected guard;
  // The one that the program has loaded already comes first, wherever it lies.
  void* loaded = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (is_real(loaded)) return loaded;
  for (const char* place : kPlaces) {
    void* handle = dlopen(place, RTLD_LAZY | RTLD_LOCAL);
    if (is_real(handle)) return handle;
  }
  return nullptr;
}

}  // namespace

void* symbol(const char* name) {
  static std::once_flag once;
  static void* library = nullptr;
  std::call_once(once, [] { library = open_library(); });
  return library != nullptr ? dlsym(library, name) : nullptr;
}

Unredirected::Unredirected() { ++unredirected_depth; }
Unredirected::~Unredirected() { --unredirected_depth; }
bool unredirected() { return unredirected_depth > 0; }

}  // namespace verbena::compat::real
