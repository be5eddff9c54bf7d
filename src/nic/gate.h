// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::nic {

/// A doorbell: something was posted to its owner, whom `owner` names to the one who serves it.
template <template <typename> typename Atomic>
struct BasicDoorbell {
  explicit BasicDoorbell(void* belongs_to = nullptr) : owner(belongs_to) {}
  BasicDoorbell(const BasicDoorbell&) = delete;
  BasicDoorbell& operator=(const BasicDoorbell&) = delete;

  void* const owner;
  Atomic<bool> rung{false};       ///< it is in a gate's list
  BasicDoorbell* next = nullptr;  ///< of the list's holder
};

/// A shard's lock together with the doorbells that wait for its holder. Threads that post ring and
/// only *try* to enter, so that nobody ever waits for somebody who moves packets.
///
/// No doorbell is lost. Every operation below is sequentially consistent, so they have one order S:
///   poster: P1 puts the bell on the list    P2 tries to enter
///   holder: H1 leaves (state becomes free)  H2 looks at the list
/// If P2 enters, the poster serves the bell itself. If P2 fails, it saw the gate held (or saw
/// somebody wait for it, who will hold it later): that holder's H1 comes after P2 in S, so P1 < P2
/// < H1 < H2, and H2 finds the bell, or finds that a still later holder took it off. H2 finding it,
/// leave() enters again (or fails to, and the argument repeats with the one who is inside). Hence
/// the last one to leave always finds an empty list. A bell that is rung again before it is served
/// is not put on the list twice; ring() and take() then meet in `rung`: take() clears it with an
/// exchange *before* its owner's queue is looked at, so a ring that found it set came before that
/// exchange, and what was posted before the ring is seen.
///
/// Holders are served by barging, but one who waits in enter() is let in before those who only try.
///
/// `Atomic` is std::atomic, or in gate_test.cc one whose every operation is a point where the test
/// may let another thread run: since all operations are sequentially consistent, trying the
/// interleavings tries everything that can happen.
template <template <typename> typename Atomic>
class BasicGate {
 public:
  using Doorbell = BasicDoorbell<Atomic>;

  BasicGate() = default;
  BasicGate(const BasicGate&) = delete;
  BasicGate& operator=(const BasicGate&) = delete;

  /// Enters when nobody is inside and nobody waits.
  [[nodiscard]] bool try_enter() {
    if (waiting_.load() != 0) return false;
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld);
  }

  /// Waits until it can enter. The caller holds no lock that a holder may take.
  void enter() {
    std::uint32_t expected = kFree;
    if (state_.compare_exchange_strong(expected, kHeld)) return;
    waiting_.fetch_add(1);
    // The three-state futex lock (Drepper, "Futexes are tricky", 2011): whoever had to wait marks
    // the gate as awaited, since it cannot know whether others wait too.
    while (state_.exchange(kHeldAndAwaited) != kFree) state_.wait(kHeldAndAwaited);
    waiting_.fetch_sub(1);
  }

  /// Leaves. True when bells are on the list and the caller is inside again: it serves them and
  /// leaves once more.
  [[nodiscard]] bool leave() {
    release();
    return rung() && try_enter();
  }

  /// Leaves whatever is on the list; true when something was. The caller makes somebody else look.
  [[nodiscard]] bool leave_for_good() {
    release();
    return rung();
  }

  /// Puts a bell on the list unless it is there. No need to be inside; the caller then tries to
  /// enter.
  void ring(Doorbell& bell) {
    if (bell.rung.exchange(true)) return;
    Doorbell* head = bells_.load();
    do {
      bell.next = head;
    } while (!bells_.compare_exchange_weak(head, &bell));
  }

  /// The bells that were rung, oldest first, linked by `next`; inside only. Read `next` before
  /// answer().
  [[nodiscard]] Doorbell* take() {
    if (!rung()) return nullptr;
    Doorbell* newest = bells_.exchange(nullptr);
    Doorbell* oldest = nullptr;
    while (newest != nullptr) {
      Doorbell* const next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

  /// To be called for each bell taken, before looking at what its owner was given.
  static void answer(Doorbell& bell) { bell.rung.exchange(false); }

  [[nodiscard]] bool rung() const { return bells_.load() != nullptr; }

 private:
  enum State : std::uint32_t { kFree = 0, kHeld = 1, kHeldAndAwaited = 2 };

  void release() {
    if (state_.exchange(kFree) == kHeldAndAwaited) state_.notify_one();
  }

  Atomic<std::uint32_t> state_{kFree};
  Atomic<std::uint32_t> waiting_{0};
  Atomic<Doorbell*> bells_{nullptr};
};

/// std::atomic as a template of one parameter.
template <typename T>
using StandardAtomic = std::atomic<T>;

using Gate = BasicGate<StandardAtomic>;
using Doorbell = Gate::Doorbell;

}  // namespace verbena::nic
