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

  /// Equal sizes travel together; flush() sends what waits for company.
  void send(const Datagram& datagram);
  void flush();
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  Sender(const wire::Path& path, sys::OwnedFd socket, sys::OwnedFd answers);
  void count_answers();

  wire::Path path_;
  sys::OwnedFd socket_;
  sys::OwnedFd answers_;  ///< where the answers come, if they do
  std::vector<std::byte> staging_;
  std::size_t staged_ = 0;
  std::size_t segment_ = 0;  ///< bytes of each
  std::uint16_t count_ = 0;
  Counts counts_{};
};

}  // namespace verbena::hostile
