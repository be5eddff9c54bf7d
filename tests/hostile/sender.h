// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/sys.h"
#include "hostile/forge.h"

namespace verbena::hostile {

/// Datagrams of one size, which one system call sends.
class Run {
 public:
  [[nodiscard]] bool takes(const Datagram& datagram) const;
  /// `path` is the one that they will take.
  void add(const Datagram& datagram, const wire::Path& path);
  void clear();

  [[nodiscard]] ConstBytes bytes() const { return bytes_; }
  [[nodiscard]] std::uint16_t segment() const { return segment_; }  ///< bytes of each
  [[nodiscard]] std::uint16_t count() const { return count_; }

 private:
  std::vector<std::byte> bytes_{};
  std::uint16_t segment_ = 0;
  std::uint16_t count_ = 0;
};

/// Sends forged datagrams from a socket of its own, as many in one system call as the kernel takes,
/// and counts what the victim answers.
///
/// Threads: one.
class Sender {
 public:
  struct Counts {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint64_t answers = 0;
    std::uint64_t answer_bytes = 0;
  };

  /// Answers go to the RoCE port of the path's source. Where somebody else has that (a forged
  /// source), they are not counted.
  [[nodiscard]] static Result<Sender> create(const wire::Path& path);

  /// What runs are made for.
  [[nodiscard]] const wire::Path& path() const { return path_; }

  /// Equal sizes travel together; flush() sends what waits for company.
  void send(const Datagram& datagram);
  void flush();
  void send(const Run& run);
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  Sender(const wire::Path& path, sys::OwnedFd socket, sys::OwnedFd answers);
  void count_answers();

  wire::Path path_;
  sys::OwnedFd socket_;
  sys::OwnedFd answers_;  ///< where the answers come, if they do
  Run waiting_{};
  Counts counts_{};
};

}  // namespace verbena::hostile
