// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/device_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/sys.h"
#include "compat/device_table.h"
#include "compat/errno.h"
#include "compat/fault_signals.h"
#include "compat/process.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/commands.h"

namespace verbena::compat {
namespace {

using rdma_cm::Agent;
using rdma_cm::File;

/// Which descriptors are ours, a bit for each, so that asking takes no lock. Pages of it that
/// nobody touches cost nothing.
constexpr std::size_t kMostDescriptors = std::size_t{1} << 20;
constexpr std::size_t kBits = 64;
constinit std::array<std::atomic<std::uint64_t>, kMostDescriptors / kBits> marks{};
constinit std::atomic<std::uint32_t> marked{0};

bool can_mark(int fd) { return fd >= 0 && static_cast<std::size_t>(fd) < kMostDescriptors; }

void mark(int fd, bool ours) {
  const auto number = static_cast<std::size_t>(fd);
  const std::uint64_t bit = std::uint64_t{1} << (number % kBits);
  if (ours) {
    marks[number / kBits].fetch_or(bit);
    marked.fetch_add(1);
  } else {
    marks[number / kBits].fetch_and(~bit);
    marked.fetch_sub(1);
  }
}

std::shared_ptr<File> find_file(Agent& agent, int fd) {
  const std::scoped_lock lock(agent);
  rdma_cm::renew_after_fork(agent);
  const auto found = agent.files.find(fd);
  return found == agent.files.end() ? nullptr : found->second;
}

/// An eventfd as `flags` of open(2) want it.
Result<std::unique_ptr<nic::EventfdNotifier>> make_notifier(int flags) {
  auto made = VERBENA_TRY(nic::EventfdNotifier::create());
  const int fd = made->descriptor();
  if ((flags & O_CLOEXEC) == 0) sys::fcntl(fd, F_SETFD, 0L);
  if ((flags & O_NONBLOCK) != 0) sys::fcntl(fd, F_SETFL, sys::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return std::unique_ptr<nic::EventfdNotifier>(static_cast<nic::EventfdNotifier*>(made.release()));
}

void close_file(Agent& agent, File& file) {
  if (file.generation != agent.generation) return;
  // Ids that the program does not know of go with who listens for them.
  const auto wanted = [&](const rdma_cm::Id& id) { return id.file == &file && id.seen; };
  for (rdma_cm::Id* const id : agent.ids.select(wanted)) rdma_cm::destroy_id(agent, *id);
}

/// The descriptor is nobody's any more, and the caller's to close. Returns its opening when that is
/// closed with it.
std::shared_ptr<File> let_go(Agent& agent, int fd) {
  const auto found = agent.files.find(fd);
  if (found == agent.files.end()) return nullptr;
  std::shared_ptr<File> file = found->second;
  agent.files.erase(found);
  mark(fd, false);
  const auto other =
      std::ranges::find(agent.files, file, [](const auto& one) { return one.second; });
  if (other != agent.files.end()) {
    file->notifier->stand_at(other->first);
    return nullptr;
  }
  close_file(agent, *file);
  file->closed = true;
  file->notifier->leave_open();
  return file;
}

void enter(Agent& agent, int fd, const std::shared_ptr<File>& file) {
  // A program that closed the descriptor past us has its ids still.
  static_cast<void>(let_go(agent, fd));
  agent.files[fd] = file;
  mark(fd, true);
}

}  // namespace

Result<int> open_rdma_cm(int flags) {
  const std::span<Device* const> all = VERBENA_TRY(devices());
  if (all.empty()) return fail(std::errc::no_such_device, "there is no device");
  watch_faults();
  auto notifier = VERBENA_TRY(make_notifier(flags));
  const int fd = notifier->descriptor();
  if (!can_mark(fd)) return fail(std::errc::too_many_files_open);
  Agent& agent = rdma_cm::agent();
  const std::scoped_lock lock(agent);
  rdma_cm::renew_after_fork(agent);
  agent.random = Random(all.front()->host->random());
  enter(agent, fd,
        std::make_shared<File>(std::move(notifier), *all.front()->host, agent.generation));
  return fd;
}

Result<void> share_rdma_cm(int fd, int duplicate) {
  if (!can_mark(duplicate)) return fail(std::errc::too_many_files_open);
  Agent& agent = rdma_cm::agent();
  const std::scoped_lock lock(agent);
  rdma_cm::renew_after_fork(agent);
  const auto found = agent.files.find(fd);
  if (found == agent.files.end()) return {};  // closed meanwhile
  const std::shared_ptr<File> file = found->second;
  enter(agent, duplicate, file);
  return {};
}

bool is_rdma_cm(int fd) {
  if (marked.load(std::memory_order_relaxed) == 0 || !can_mark(fd)) return false;
  const auto number = static_cast<std::size_t>(fd);
  return (marks[number / kBits].load() >> (number % kBits) & 1) != 0;
}

ssize_t write_rdma_cm(int fd, const void* data, std::size_t size) {
  Agent& agent = rdma_cm::agent();
  const int status = minus_one_after_waiting("rdma_cm", [&]() -> Result<void> {
    const std::shared_ptr<File> file = find_file(agent, fd);
    if (file == nullptr) return fail(std::errc::bad_file_descriptor);
    if (is_dead(file->generation))
      return fail(std::errc::io_error, "the channel was opened by the parent process");
    return rdma_cm::run_command(agent, file, data, size);
  });
  return status == 0 ? static_cast<ssize_t>(size) : -1;
}

void close_rdma_cm(int fd) {
  Agent& agent = rdma_cm::agent();
  const std::scoped_lock lock(agent);
  rdma_cm::renew_after_fork(agent);
  const std::shared_ptr<File> closed = let_go(agent, fd);
  if (closed == nullptr) return;
  if (agent.files.empty()) agent.kernel.reset();
  // Whoever waits there hears of it.
  if (!is_dead(closed->generation)) closed->notifier->signal();
}

bool has_datagram_ids() {
  if (marked.load() == 0) return false;
  Agent& agent = rdma_cm::agent();
  const std::scoped_lock lock(agent);
  const auto is_one = [&](const rdma_cm::Id& id) {
    return id.space == wire::PortSpace::kUdp && id.port != nullptr;
  };
  return !agent.ids.select(is_one).empty();
}

}  // namespace verbena::compat
