// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "verbena/handle.h"

/// What stands behind ids and channels beside the C objects.
namespace verbena::verbs::detail {

struct cm_channel_state {
  /// Held while an event is taken and acknowledged. librdmacm moves the queue pair of an event's
  /// id meanwhile, so whoever destroys one holds it, too.
  std::mutex taking;
  std::atomic<bool> blocking{true};
};

/// An rdma_cm_id's `context`, from its beginning to its end.
struct cm_id_state {
  explicit cm_id_state(std::shared_ptr<cm_channel_state> channel_state, keep channel_core)
      : channel(std::move(channel_state)), core_of_channel(std::move(channel_core)) {}

  [[nodiscard]] static std::uint64_t fresh_number() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
  [[nodiscard]] std::shared_ptr<cm_channel_state> current_channel() {
    const std::scoped_lock lock(mutex);
    return channel;
  }

  const std::uint64_t number = fresh_number();
  void* of_its_maker = nullptr;  ///< the `context` before, of an id that was adopted
  std::mutex mutex;              ///< of the two below, which migrating changes
  std::shared_ptr<cm_channel_state> channel;
  keep core_of_channel;
};

}  // namespace verbena::verbs::detail
