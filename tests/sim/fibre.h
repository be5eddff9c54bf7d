// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <string>

namespace verbena::sim {

/// A thread of a simulated process: runs until it gives way, on a stack of its own, in the one
/// thread of the simulator. Sanitizers are told of every switch.
///
/// Ownership: the body must not throw. A fibre that is destroyed before its body returned takes
/// what is on its stack with it unreleased; only a run that failed does that.
class Fibre {
 public:
  Fibre(std::string name, std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// From the scheduler: goes on where the fibre gave way.
  void resume();
  /// From inside a fibre: back to the one who resumed it.
  static void give_way();
  /// The fibre that runs now; null in the scheduler.
  [[nodiscard]] static Fibre* current();

  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  static void enter(unsigned high, unsigned low);
  void switch_to(ucontext_t& from, const ucontext_t& to, bool into_fibre);

  std::string name_;
  std::function<void()> body_;
  std::byte* stack_;
  ucontext_t context_{};
  ucontext_t scheduler_{};
  bool done_ = false;
  // AddressSanitizer's notes of the stacks.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* scheduler_fake_stack_ = nullptr;
  [[maybe_unused]] const void* scheduler_bottom_ = nullptr;
  [[maybe_unused]] std::size_t scheduler_size_ = 0;
  // ThreadSanitizer's.
  [[maybe_unused]] void* tsan_fibre_ = nullptr;
  [[maybe_unused]] void* tsan_scheduler_ = nullptr;
};

}  // namespace verbena::sim
