// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "verbena/error.h"

/// Coroutines without a runtime of their own.
namespace verbena::verbs {

template <typename T>
class task;

namespace detail {

template <typename T>
inline constexpr bool is_result = false;
template <typename T>
inline constexpr bool is_result<std::expected<T, Error>> = true;

/// What all promises of tasks have: whom to go on with at the end.
struct task_promise_base {
  std::coroutine_handle<> next = std::noop_coroutine();

  struct at_end {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      return ended.promise().next;
    }
    void await_resume() const noexcept {}
  };
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] at_end final_suspend() const noexcept { return {}; }
  /// Errors are values: what is thrown here is nobody's.
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
};

template <typename T>
struct task_promise : task_promise_base {
  std::optional<T> value;
  task<T> get_return_object() noexcept;
  template <std::convertible_to<T> U>
  void return_value(U&& from) {
    value.emplace(std::forward<U>(from));
  }
  T take() {
    if (!value) std::terminate();  // asked before its end
    return std::move(*value);
  }
};
template <>
struct task_promise<void> : task_promise_base {
  task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const noexcept {}
};

/// Ends the coroutine with the error, if there is one.
template <typename T>
class or_return_awaiter {
 public:
  explicit or_return_awaiter(Result<T> from) noexcept : from_(std::move(from)) {}
  [[nodiscard]] bool await_ready() const noexcept { return from_.has_value(); }
  /// The frame stays as it is until its task goes, which is with the expression that waits for it.
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> within) {
    within.promise().return_value(std::unexpected(std::move(from_).error()));
    return within.promise().next;
  }
  T await_resume() {
    if constexpr (!std::is_void_v<T>) return std::move(*from_);
  }

 private:
  Result<T> from_;
};

}  // namespace detail

/// A coroutine that begins when it is awaited, and whose frame goes with this object, wherever it
/// has come to: so a task that is destroyed is cancelled. `T` is a Result where it can fail.
///
/// Threads: one at a time.
template <typename T = void>
class [[nodiscard]] task {
 public:
  using promise_type = detail::task_promise<T>;  ///< for the compiler

  task(task&& from) noexcept : frame_(std::exchange(from.frame_, nullptr)) {}
  task& operator=(task&& from) noexcept {
    if (this == &from) return *this;
    if (frame_) frame_.destroy();
    frame_ = std::exchange(from.frame_, nullptr);
    return *this;
  }
  task(const task&) = delete;
  task& operator=(const task&) = delete;
  ~task() {
    if (frame_) frame_.destroy();
  }
  /// Not after a move.
  [[nodiscard]] explicit operator bool() const noexcept { return frame_ != nullptr; }

  /// Once, of a task that is there. It goes on in whichever thread ends the task.
  auto operator co_await() && noexcept {
    struct awaiter {
      std::coroutine_handle<promise_type> frame;
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> next) const noexcept {
        frame.promise().next = next;
        return frame;
      }
      T await_resume() const { return frame.promise().take(); }
    };
    return awaiter{frame_};
  }

 private:
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

template <typename T>
task<T> detail::task_promise<T>::get_return_object() noexcept {
  return task<T>(std::coroutine_handle<task_promise<T>>::from_promise(*this));
}
inline task<void> detail::task_promise<void>::get_return_object() noexcept {
  return task<void>(std::coroutine_handle<task_promise<void>>::from_promise(*this));
}

/// VERBENA_TRY for coroutines that return a task of a Result: the value, or the coroutine ends with
/// the error. `auto wc = co_await or_return(co_await qp.recv(slice));`
template <typename T>
[[nodiscard]] auto or_return(Result<T> from) noexcept {
  return detail::or_return_awaiter<T>(std::move(from));
}

}  // namespace verbena::verbs
