// SPDX-License-Identifier: Apache-2.0
#include "link/capture_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "base/log.h"
#include "link/pcapng.h"

namespace verbena::link {
namespace {

constexpr mode_t kMode = 0600;

std::unexpected<Error> failure(int error, const std::string& path) {
  return fail(static_cast<std::errc>(error),
              fmt::format("the capture file {} cannot be used: {}", path,
                          std::generic_category().message(error)));
}

struct stat status_of(int fd) {
  struct stat status{};
  if (::syscall(SYS_fstat, fd, &status) != 0) status = {};
  return status;
}

}  // namespace

CaptureFile::CaptureFile(sys::OwnedFd fd, std::string path, std::uint64_t limit)
    : fd_(std::move(fd)), path_(std::move(path)), limit_(limit) {}

Result<std::shared_ptr<CaptureFile>> CaptureFile::open(const std::string& path,
                                                       std::uint64_t limit) {
  // For reading too: to look at what is there, and because a pipe's open would wait for a reader.
  sys::OwnedFd fd = sys::move_high(
      sys::OwnedFd(sys::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode)));
  if (!fd) return failure(errno, path);
  std::shared_ptr<CaptureFile> file(new CaptureFile(std::move(fd), path, limit));
  VERBENA_TRY(file->begin());
  return file;
}

Result<void> CaptureFile::begin() {
  regular_ = S_ISREG(status_of(fd_.get()).st_mode);
  const auto header = pcapng_header();
  if (!regular_) {
    write(header);
    return {};
  }
  // The open file's, not the process's: threads open it too. Released when it is unlocked below or
  // the process ends, whichever comes first.
  struct flock lock{};
  lock.l_type = F_WRLCK;
  if (sys::fcntl(fd_.get(), F_OFD_SETLKW, &lock) != 0) return failure(errno, path_);
  std::array<std::byte, kPcapngHeaderSize> there{};
  const long size =
      ::syscall(SYS_pread64, fd_.get(), there.data(), there.size(), static_cast<off_t>(0));
  if (size == 0 && sys::write(fd_.get(), header.data(), header.size()) < 0)
    return failure(errno, path_);
  lock.l_type = F_UNLCK;
  sys::fcntl(fd_.get(), F_OFD_SETLK, &lock);
  if (size != 0 && (size != static_cast<long>(header.size()) || there != header))
    return fail(std::errc::invalid_argument,
                fmt::format("{} is there and is no capture of Verbena's: remove it or name another "
                            "file",
                            path_));
  return {};
}

bool CaptureFile::fits(std::size_t size) {
  if (!regular_) return true;
  const auto now = static_cast<std::uint64_t>(std::max<off_t>(status_of(fd_.get()).st_size, 0));
  return now + size <= limit_;
}

void CaptureFile::stop(std::string_view why) {
  if (!stopped_.exchange(true)) log(LogLevel::kWarning, "the capture {} ends here: {}", path_, why);
}

void CaptureFile::write(ConstBytes blocks) {
  if (stopped_.load(std::memory_order_relaxed)) return;
  if (!fits(blocks.size())) {
    stop(fmt::format("it has reached its limit of {} bytes", limit_));
    return;
  }
  const ssize_t size = sys::write(fd_.get(), blocks.data(), blocks.size());
  // A disk that fills up in the midst of a block leaves a cut file, which Wireshark still opens.
  if (size != static_cast<ssize_t>(blocks.size()))
    stop(size < 0 ? std::generic_category().message(errno) : "the disk is full");
}

}  // namespace verbena::link
