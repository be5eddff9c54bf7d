// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <atomic>

#include "compat/real.h"

namespace verbena::compat::interpose {

/// The function of that name behind ours: another preload's or the C library's. Looked up once;
/// null when there is none.
template <real::Name kName, typename Signature>
Signature* next() {
  static std::atomic<Signature*> known{nullptr};
  Signature* function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    void* found = ::dlsym(RTLD_NEXT, kName.text);
    if (found == nullptr) found = ::dlsym(RTLD_DEFAULT, kName.text);
    function = reinterpret_cast<Signature*>(found);
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace verbena::compat::interpose
