// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sys.h"

namespace verbena::link {

/// Where a capture's blocks go: a file, or a test's memory.
class CaptureSink {
 public:
  CaptureSink() = default;
  CaptureSink(const CaptureSink&) = delete;
  CaptureSink& operator=(const CaptureSink&) = delete;
  virtual ~CaptureSink() = default;
  /// Takes whole packet blocks. From any thread.
  virtual void write(ConstBytes blocks) = 0;
};

/// A pcapng file to which any number of processes may append at once: each writes whole blocks with
/// one O_APPEND write, and whoever comes first writes the header, under a record lock. All use the
/// same header, so a packet's block means the same wherever it stands.
class CaptureFile final : public CaptureSink {
 public:
  /// Opens or makes the file (mode 0600: it holds what programs send). invalid_argument when it
  /// holds something else than a capture of ours; else what the system says. Blocks that would make
  /// it larger than `limit` bytes are not written, said once.
  [[nodiscard]] static Result<std::shared_ptr<CaptureFile>> open(const std::string& path,
                                                                 std::uint64_t limit);

  void write(ConstBytes blocks) override;

 private:
  CaptureFile(sys::OwnedFd fd, std::string path, std::uint64_t limit);
  [[nodiscard]] Result<void> begin();
  [[nodiscard]] bool fits(std::size_t size);
  void stop(std::string_view why);

  sys::OwnedFd fd_;
  std::string path_;
  std::uint64_t limit_;
  bool regular_ = false;
  std::atomic<bool> stopped_{false};
};

}  // namespace verbena::link
