// SPDX-License-Identifier: Apache-2.0
#include "nic/fetching.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/direct_memory.h"
#include "wire/copy.h"

namespace verbena::nic {
namespace {

/// What is copied to find out what pays: more than a first cache holds, and less than a second one.
constexpr std::size_t kTrial = 256 << 10;
constexpr int kTrials = 3;
/// How much slower than a copy within a cache the kernel's may be: bytes that one processor puts
/// into a ring and another one takes out of it are handed from cache to cache. Where the kernel
/// takes twice as long as that copy (Sapphire Rapids), it beats the ring; where it takes four to
/// nine times (Zen 5), the ring is faster by half.
constexpr int kMostSlower = 3;

ssize_t read_memory(pid_t process, Bytes to, const std::byte* from) {
  const iovec local{.iov_base = to.data(), .iov_len = to.size()};
  const iovec remote{.iov_base = const_cast<std::byte*>(from), .iov_len = to.size()};  // NOLINT
  return sys::process_vm_readv(process, &local, 1, &remote, 1);
}

/// The shortest of some trials.
template <typename Copy>
std::chrono::nanoseconds time_of(Copy copy) {
  auto least = std::chrono::nanoseconds::max();
  for (int i = 0; i < kTrials; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    copy();
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - begin);
  }
  return least;
}

bool measure() {
  std::vector<std::byte> from(kTrial, std::byte{1});
  std::vector<std::byte> to(kTrial);
  bool fetched = true;
  const auto by_kernel =
      time_of([&] { fetched = read_memory(sys::getpid(), to, from.data()) == kTrial && fetched; });
  const auto by_hand = time_of([&] { wire::copy_bytes(to.data(), from.data(), kTrial); });
  const bool pays = fetched && by_kernel <= kMostSlower * by_hand;
  log(LogLevel::kDebug, "{} KiB are copied in {} us by the kernel, in {} us by hand: {}",
      kTrial >> 10, by_kernel.count() / 1000, by_hand.count() / 1000,
      pays ? "long messages are fetched" : "long messages go through rings");
  return pays;
}

}  // namespace

/// The kernel asks whether one may before it looks where.
bool may_fetch_from(pid_t process) {
  std::byte to{};
  return read_memory(process, Bytes(&to, 1), nullptr) < 0 && errno == EFAULT;
}

Fetched fetch(pid_t process, std::uint64_t address, std::span<const Bytes> to) {
  std::array<iovec, engine::DirectMemory::kMostPlaces> local;
  VERBENA_CHECK(to.size() <= local.size());
  std::size_t size = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    local[i] = {.iov_base = to[i].data(), .iov_len = to[i].size()};
    size += to[i].size();
  }
  const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = size};  // NOLINT
  const auto pieces = static_cast<unsigned>(to.size());
  const ssize_t copied = sys::process_vm_readv(process, local.data(), pieces, &remote, 1);
  if (copied == static_cast<ssize_t>(size)) return Fetched::kAll;
  return copied >= 0 || errno == EFAULT ? Fetched::kMissing : Fetched::kRefused;
}

bool fetching_pays() {
  static const bool pays = measure();
  return pays;
}

pid_t fetched_from(pid_t peer, Fetching wanted) {
  if (wanted == Fetching::kNever) return 0;
  if (peer == 0) {
    log(LogLevel::kInfo,
        "long messages of a process that cannot be seen from here are copied twice, and READs "
        "answered by it");
    return 0;
  }
  if (!may_fetch_from(peer)) {
    log(LogLevel::kInfo,
        "long messages of process {} are copied twice, and READs answered by it: its memory "
        "cannot be read ({})",
        peer, std::generic_category().message(errno));
    return 0;
  }
  return peer;
}

bool fetches_long(Fetching wanted) {
  return wanted == Fetching::kAlways || (wanted == Fetching::kAuto && fetching_pays());
}

}  // namespace verbena::nic
