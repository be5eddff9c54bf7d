// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "compat/objects.h"
#include "compat/rdma_cm/cm_id.h"
#include "compat/rdma_cm/file.h"
#include "compat/rdma_cm/kernel_device.h"
#include "compat/rdma_cm/numbered.h"
#include "nic/general_services.h"

namespace verbena::compat::rdma_cm {

/// A device of ours that ids are bound to, and this process's part of its queue pair 1.
struct Port {
  Device* device = nullptr;
  std::unique_ptr<nic::GeneralServices> services{};
  std::map<cm::ListenerId, Id*> listeners{};
  std::map<cm::ConnectionId, Id*> connections{};
  nic::GidTable gids{};  ///< as they were when last looked at
  bool removed = false;  ///< the device is broken, and ids were told
};

/// The connection manager's agent: what `ucma.c` and `cma.c` are in the kernel. It knows who has
/// which id, asks the managers of the devices, and queues what they tell.
///
/// Threads: everything is under its lock, which is taken before a GeneralServices' own and the
/// device table's. The program is never called with it. Who drives a device's services does not
/// wait for it (who holds it may be asking the host for something), but leaves events to whoever
/// holds it.
class Agent {
 public:
  void lock() { mutex_.lock(); }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  void unlock();
  /// There are events somewhere. From any thread that does not hold a lock of a GeneralServices.
  void notify();
  /// There is more than was taken; with the lock held.
  void come_again() { notified_.store(true); }
  /// In a forked child, whose only thread has the parent's lock.
  void unlock_in_child() { mutex_.unlock(); }

  std::uint32_t generation = 0;                  ///< of the process that all of it belongs to
  std::map<int, std::shared_ptr<File>> files{};  ///< by descriptor; duplicates have the same one
  Numbered<Id> ids{};
  Numbered<Multicast> multicasts{};
  std::vector<std::unique_ptr<Port>> ports{};
  /// While ids of ours have twins at the kernel's device, or might have had.
  std::unique_ptr<KernelDevice> kernel{};
  Random random{0};

 private:
  std::mutex mutex_;
  std::atomic<bool> notified_{false};
};

/// The process's, which is never destroyed.
[[nodiscard]] Agent& agent();

// With the lock held, but where it says without.

/// no_such_file_or_directory when there is no such id, or the program does not know of it yet;
/// invalid_argument when it is another file's.
[[nodiscard]] Result<Id*> find_any_id(const Agent& agent, const File& file, std::uint32_t number);
/// The same, whose device is there: else io_error.
[[nodiscard]] Result<Id*> find_id(const Agent& agent, const File& file, std::uint32_t number);
/// The same, bound to a device: else invalid_argument.
[[nodiscard]] Result<Id*> find_bound_id(const Agent& agent, const File& file, std::uint32_t number);
[[nodiscard]] Result<Id*> add_id(Agent& agent, File& file, wire::PortSpace space, ibv_qp_type type);
/// With its events, groups and what it listens for; its connection is ended in order. Returns how
/// many of its events the program has taken.
std::uint32_t destroy_id(Agent& agent, Id& id);
/// All that the managers have to tell.
void take_events(Agent& agent);

/// In a forked child all that the parent had is left as it is.
void renew_after_fork(Agent& agent);
/// At the process's end, as the kernel closes the device then: peers hear that it is over, and what
/// comes for other processes is left to them. Nothing when somebody keeps the lock, who may be the
/// one that exits. Without the lock.
void leave();
/// For tests: closes the devices' services, when no file is open. Without the lock.
void close_services();

/// What a manager is asked for something with: `work(manager, now)`.
template <typename Work>
auto ask(const Port& port, Work&& work) {
  return port.services->ask(std::forward<Work>(work));
}

}  // namespace verbena::compat::rdma_cm
