// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "verbena/error.h"
#include "verbena/observer.h"

/// What all handles have in common. A handle is moved, never copied; behind it is a counted core
/// that its children hold too. So handles may be destroyed in any order: what stands behind one is
/// destroyed when the last child is. Moving from a handle leaves one that reports
/// `bad_file_descriptor` from every call.
///
/// Threads: different handles of one object's children may be used and destroyed in different
/// threads. One handle is moved, closed and destroyed by one thread at a time.
namespace verbena::verbs {

/// Called when a destructor could not destroy: a destructor cannot return it, and what the provider
/// refuses (EBUSY, mostly) would else be lost. `verb` is the C function. Any thread; must not
/// throw.
using lost_hook = std::function<void(const char* verb, std::error_code code)>;
/// Replaces the hook, which writes one line to standard error until then; an empty one is silence.
void on_lost(lost_hook hook);

/// Who destroys a C object that this API did not make and is to work with.
enum class ownership {
  borrowed,  ///< its maker, once no handle is left of it
  owned,     ///< the handle, as one that it has made
};

namespace detail {

/// `error` as a destroyer has returned it.
void report_lost(const char* verb, int error) noexcept;
/// For a descriptor of the provider's.
[[nodiscard]] Result<> set_blocking(int fd, bool blocking);
/// False where the time was over first, a negative one is none; or where `beside` became readable
/// alone.
[[nodiscard]] Result<bool> wait_readable(int fd, std::chrono::milliseconds at_most,
                                         int beside = -1);

/// Something that a core must not outlive.
using keep = std::shared_ptr<const void>;

/// A verbs object and what it must not outlive. Destroys it, then lets go of that.
template <typename T>
class core {
 public:
  using destroyer = int (*)(T*);  ///< returns an errno, or -1 and sets it

  core(T* raw, destroyer destroy, const char* verb, std::vector<keep> parents)
      : parents_(std::move(parents)), raw_(raw), destroy_(destroy), verb_(verb) {
    if (observed()) [[unlikely]]
      tell(&observer::created, seen_as(raw_));
  }
  core(const core&) = delete;
  core& operator=(const core&) = delete;
  ~core() {
    if (raw_ == nullptr) return;
    if (observed()) [[unlikely]]
      destroy_observed();
    else if (const int error = destroy_(raw_); error != 0)
      report_lost(verb_, error);
  }

  [[nodiscard]] T* raw() const noexcept { return raw_; }
  /// Refused by the provider, it stays as it is.
  [[nodiscard]] Result<> close() {
    const auto seen = observed() ? seen_as(raw_) : observed_object();
    VERBENA_TRY(from_errno(destroy_(raw_), verb_));
    if (seen.native != nullptr) tell(&observer::closed, seen);
    raw_ = nullptr;
    parents_.clear();
    return {};
  }

 private:
  [[gnu::cold]] void destroy_observed() {
    const observed_object seen = seen_as(raw_);
    if (const int error = destroy_(raw_); error != 0)
      report_lost(verb_, error);
    else
      tell(&observer::destroyed, seen);
  }

  std::vector<keep> parents_;
  T* raw_;
  destroyer destroy_;
  const char* verb_;
};

/// The data path's object for handles that were moved from: its calls return EBADF. Null where a
/// kind has none, and its calls look.
template <typename T>
[[nodiscard]] T* closed() noexcept {
  return nullptr;
}
template <>
[[nodiscard]] ibv_qp* closed<ibv_qp>() noexcept;
template <>
[[nodiscard]] ibv_cq* closed<ibv_cq>() noexcept;
template <>
[[nodiscard]] ibv_srq* closed<ibv_srq>() noexcept;
/// A queue whose sessions do nothing, and fail with EBADF when they are completed.
[[nodiscard]] ibv_qp_ex silent_queue() noexcept;
/// Of polls that were moved from, whose completion is none.
template <>
[[nodiscard]] ibv_cq_ex* closed<ibv_cq_ex>() noexcept;

/// What a handle does at its end with what it was given.
template <typename T>
[[nodiscard]] constexpr typename core<T>::destroyer destroyer_of(int (*destroy)(T*),
                                                                 ownership whose) noexcept {
  return whose == ownership::owned ? destroy : [](T* /*raw*/) { return 0; };
}

template <typename T>
class handle {
 public:
  handle(const handle&) = delete;
  handle& operator=(const handle&) = delete;
  handle(handle&& from) noexcept
      : raw_(std::exchange(from.raw_, closed<T>())), core_(std::move(from.core_)) {}
  handle& operator=(handle&& from) noexcept {
    if (this == &from) return *this;
    raw_ = std::exchange(from.raw_, closed<T>());
    core_ = std::move(from.core_);
    return *this;
  }

  /// Whether there is something behind it: not after a move or `close()`.
  [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }
  /// The C object, for calls that this API does not have. Valid while this handle or a child is.
  [[nodiscard]] T* native() const noexcept { return core_ == nullptr ? nullptr : raw_; }

  /// Destroys it now. `device_or_resource_busy` while children hold it, or when the provider says
  /// so; the handle is then as before. `bad_file_descriptor` when nothing is behind it.
  [[nodiscard]] Result<> close() {
    VERBENA_TRY(check("close"));
    if (core_.use_count() > 1)
      return fail(std::errc::device_or_resource_busy, "close",
                  "objects that were made of it remain");
    VERBENA_TRY(core_->close());
    core_.reset();
    raw_ = closed<T>();
    return {};
  }

 protected:
  handle() noexcept : raw_(closed<T>()) {}
  handle(T* raw, typename core<T>::destroyer destroy, const char* verb, std::vector<keep> parents)
      : raw_(raw), core_(std::make_shared<core<T>>(raw, destroy, verb, std::move(parents))) {}
  ~handle() = default;

  [[nodiscard]] Result<> check(const char* operation) const {
    if (core_ != nullptr) [[likely]]
      return {};
    return fail(std::errc::bad_file_descriptor, operation,
                "the handle is empty: it was moved from or closed");
  }
  [[nodiscard]] T* raw() const noexcept { return raw_; }
  [[nodiscard]] keep held() const noexcept { return core_; }

 private:
  friend struct access_to;
  T* raw_;
  std::shared_ptr<core<T>> core_;
};

/// For the other classes of this library: what a child holds of a handle.
struct access_to {
  template <typename T>
  [[nodiscard]] static keep keep_of(const handle<T>& of) noexcept {
    return of.core_;
  }
  template <typename T>
  [[nodiscard]] static T* raw_of(const handle<T>& of) noexcept {
    return of.raw_;
  }
  template <typename T>
  [[nodiscard]] static Result<> check(const handle<T>& of, const char* operation) {
    return of.check(operation);
  }
};

}  // namespace detail
}  // namespace verbena::verbs
