// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbena/observer.h"

namespace verbena::verbs {

/// How many there were, since the observer was set.
struct object_counts {
  /// Of objects of one kind.
  struct of_kind {
    std::uint64_t created = 0;    ///< also those that are gone
    std::uint64_t destroyed = 0;  ///< by destructors
    std::uint64_t closed = 0;     ///< by `close()`
    /// Below zero where more went than came while it was set.
    [[nodiscard]] std::int64_t live() const noexcept {
      return static_cast<std::int64_t>(created - destroyed - closed);
    }
  };

  /// By `object_kind`.
  std::array<of_kind, object_kinds> kinds{};
  std::uint64_t lost = 0;         ///< objects that could not be destroyed: live still
  std::uint64_t failed = 0;       ///< calls
  std::uint64_t transitions = 0;  ///< of queue pairs
  std::uint64_t errors = 0;       ///< of these, those to ERR
  std::uint64_t phases = 0;       ///< new phases of what is not a queue pair

  /// Of that kind.
  [[nodiscard]] const of_kind& operator[](object_kind kind) const noexcept {
    return kinds.at(static_cast<std::size_t>(kind));
  }
};

/// Counts what it is told. Threads: any.
class counting_observer final : public observer {
 public:
  /// The counters one by one: of what happens meanwhile some may tell and others not.
  [[nodiscard]] object_counts counts() const noexcept;

  void created(const observed_object& what) noexcept override;
  void destroyed(const observed_object& what) noexcept override;
  void closed(const observed_object& what) noexcept override;
  void lost(const char* verb, std::error_code code) noexcept override;
  void state_changed(const observed_object& what, qp_state from, qp_state to) noexcept override;
  void failed(const char* verb, std::error_code code) noexcept override;
  void phase_changed(const observed_object& what, std::string_view phase) noexcept override;

 private:
  using counter = std::atomic<std::uint64_t>;
  struct of_kind {
    counter created;
    counter destroyed;
    counter closed;
  };
  [[nodiscard]] of_kind& of(const observed_object& what) noexcept {
    return kinds_.at(static_cast<std::size_t>(what.kind));
  }

  std::array<of_kind, object_kinds> kinds_{};
  counter lost_{0};
  counter failed_{0};
  counter transitions_{0};
  counter errors_{0};
  counter phases_{0};
};

}  // namespace verbena::verbs
