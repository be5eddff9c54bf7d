// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <initializer_list>
#include <optional>
#include <utility>

#include "verbena/error.h"

namespace verbena::verbs::streams {

/// A descriptor of this process, closed with it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& from) noexcept {
    std::swap(fd_, from.fd_);
    return *this;
  }
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

/// Readable while it is set (eventfd(2)).
class Flag {
 public:
  [[nodiscard]] static Result<Flag> make();
  void set();
  void clear();
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit Flag(Descriptor fd) : fd_(std::move(fd)) {}
  Descriptor fd_;
  bool set_ = false;
};

/// Readable from a moment on (timerfd(2)), until it is set anew.
class Alarm {
 public:
  using Time = std::chrono::steady_clock::time_point;
  [[nodiscard]] static Result<Alarm> make();
  /// At `when`, or never. It may ring too early, where it was set for earlier and has not rung yet.
  void set(std::optional<Time> when, Time now);
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit Alarm(Descriptor fd) : fd_(std::move(fd)) {}
  Descriptor fd_;
  std::optional<Time> set_for_;
};

/// Readable while one of them is (epoll(7)); a negative one is left out.
[[nodiscard]] Result<Descriptor> any_of(std::initializer_list<int> fds);

}  // namespace verbena::verbs::streams
