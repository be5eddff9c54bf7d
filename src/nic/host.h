// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "base/sys.h"
#include "base/time.h"
#include "engine/counters.h"
#include "engine/engine.h"
#include "link/link.h"
#include "nic/direct_paths.h"
#include "nic/membership.h"
#include "nic/open_memory.h"
#include "nic/port_state.h"
#include "nic/progress.h"
#include "nic/segment.h"
#include "wire/address.h"

namespace verbena::nic {

class GeneralServices;
class Nic;
struct NicConfig;

/// A counting semaphore that a program can also poll: what completion channels and asynchronous
/// events are made of. Threads: all calls are safe from any thread.
class Notifier {
 public:
  Notifier() = default;
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;
  virtual ~Notifier() = default;

  /// Readable while the count is above zero (live: an eventfd with EFD_SEMAPHORE and EFD_CLOEXEC).
  [[nodiscard]] virtual int descriptor() const = 0;
  virtual void signal() = 0;
  /// Takes one; false when the count is zero. Never blocks.
  [[nodiscard]] virtual bool take() = 0;
  /// False when the program made the descriptor non-blocking: a wait then returns at once.
  [[nodiscard]] virtual bool blocking() const = 0;
};

/// A place at an address: the shard's slot (its queue pair numbers are slot << 18 | n) and the link
/// that reaches it. Destroying the link gives the slot back, and with it the place of its counters.
struct Attachment {
  std::uint8_t slot = 0;
  std::unique_ptr<link::Link> link;
  std::shared_ptr<Membership> membership{};  ///< of the link; null: it receives no multicasts
  std::shared_ptr<engine::Counters> counters = std::make_shared<engine::Counters>();
  PortState port{};  ///< as it is now; GID 0 is the address, whatever stands here
  /// Bytes that the link's socket holds until they are received; 0 when nobody knows.
  std::size_t receive_buffer = 0;
  /// The channel to a queue pair that the path leads to, for `wire::Path::channel`; may be empty.
  /// Called without locks, and may block for a moment.
  std::function<std::uint16_t(const wire::Path& path, std::uint32_t destination_qp)> meet{};
  /// The memory of those peers, and ours for them; null: it is reached by packets.
  std::shared_ptr<DirectPaths> direct{};
};

/// A descriptor that somebody is called for; destroying it ends the calls and closes it.
class WatchedFd {
 public:
  WatchedFd() = default;
  WatchedFd(const WatchedFd&) = delete;
  WatchedFd& operator=(const WatchedFd&) = delete;
  virtual ~WatchedFd() = default;
  [[nodiscard]] virtual int get() const = 0;
};

/// A NIC that a waiting thread drives by itself, each time it asks whether what it waits for came.
struct SelfDriven {
  Nic& nic;
  /// As of the last time. kYes: the thread may sleep on the NIC's descriptors. Else it leaves them
  /// to whoever drives beside it: kBriefly, because somebody does; kNo, because too much comes.
  MaySleep may_sleep = MaySleep::kBriefly;
};

enum class Waited : std::uint8_t {
  kReady,
  kInterrupted,  ///< a signal handler ran (EINTR)
  kDeadlock,     ///< simulator only: nothing is pending anywhere, so this would wait for ever
};

/// The one seam between a NIC and the world: time, entropy, the way to other NICs, wake-ups and
/// waiting. There are two: LiveHost (`nic/live_host.h`), with a runner thread and sockets, and the
/// simulator's.
class Host {
 public:
  Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  virtual ~Host() = default;

  [[nodiscard]] virtual Time now() = 0;
  /// 64 bits nobody can guess (live: the kernel's CSPRNG), or the run's (simulator).
  [[nodiscard]] virtual std::uint64_t random() = 0;
  /// Takes a slot at a local address. address_in_use with a sentence that says by whom,
  /// permission_denied for an address that the settings do not open (loopback only by default),
  /// no_buffer_space when all slots are taken.
  [[nodiscard]] virtual Result<Attachment> attach(const wire::Address& address) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Notifier>> make_notifier() = 0;
  /// What is known of the port at an address, whether a NIC of this process is there or not. Where
  /// nobody is, it is as the first one will find it.
  [[nodiscard]] virtual PortReport port(const wire::Address& address) {
    return {.state = PortState::of(address)};
  }

  /// From adopt() to release() somebody calls nic.progress(): the runner, or the simulator's loop.
  /// A host whose ports can change tells the NIC of that with set_port() in adopt() and from then
  /// on.
  /// release() returns when no call is under way and none will follow.
  virtual void adopt(Nic& nic) = 0;
  virtual void release(Nic& nic) = 0;
  /// The NIC has something to do earlier than it said (a doorbell with nobody driving, a timer
  /// moved forward). Cheap when the runner is awake already.
  virtual void wake(Nic& nic) = 0;

  /// This process's part of queue pair 1 at the address of `config`, driven until it is destroyed,
  /// which nobody does who holds a lock that `notify` takes: see GeneralServices. As attach(), and
  /// operation_not_supported where there is none.
  [[nodiscard]] virtual Result<std::unique_ptr<GeneralServices>> open_general_services(
      const NicConfig& config, const std::function<void()>& notify);

  /// Calls `readable` in the runner's thread when there is something new to read from the
  /// descriptor: once, whatever is left to be read then. It must not destroy what this returns, nor
  /// wait for a lock that somebody holds who does. operation_not_supported where there is no
  /// runner.
  [[nodiscard]] virtual Result<std::unique_ptr<WatchedFd>> watch(
      sys::OwnedFd fd, const std::function<void()>& readable);

  /// What is known of peers beside their packets; null when nothing is. Lives as long as the host.
  [[nodiscard]] virtual engine::PeerWatch* peers() { return nullptr; }

  /// Memory is registered, until unshare_memory() with the same: which pages of it peers on this
  /// machine may have, those whom `access` gives remote rights. Nothing where they get none.
  [[nodiscard]] virtual std::optional<OpenMemory> share_memory(Bytes /*memory*/,
                                                               std::uint32_t /*access*/) {
    return std::nullopt;
  }
  virtual void unshare_memory(Bytes /*memory*/) {}
  /// Pages of it are given up, whoever uses them meanwhile: what a peer still writes there is not
  /// seen. `regions` have them, none of which peers may have any more.
  virtual void give_up_memory(Bytes /*pages*/, std::size_t /*regions*/) {}

  /// Whoever sends or receives raw packets asks for this first: the segment's way to others, where
  /// the host has one, is open from then on. Called without locks.
  [[nodiscard]] virtual Result<void> open_uplink() { return {}; }
  /// The Ethernet segment that the raw packets of this host's NICs go to.
  [[nodiscard]] Segment& segment() { return segment_; }

  /// Blocks the calling thread until ready() is true: every blocking verb waits here. ready() is
  /// called without locks, at once and then whenever `notifier` (if given) was signalled or
  /// something else happened. Where it drives a NIC (`driven`, if given), what comes for that wakes
  /// the thread as well, and need not wake others.
  [[nodiscard]] virtual Waited wait(const std::function<bool()>& ready, Notifier* notifier,
                                    SelfDriven* driven) = 0;

 private:
  Segment segment_;
};

}  // namespace verbena::nic
