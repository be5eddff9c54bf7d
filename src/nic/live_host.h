// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "nic/fetching.h"
#include "nic/host.h"
#include "wire/address.h"

namespace verbena::nic {

struct LiveHostOptions {
  /// Addresses beside loopback (127.0.0.0/8, ::1) at which NICs may be; the machine has them.
  std::vector<wire::Address> open_addresses{};
  /// Every packet goes into this pcapng file, behind what is in it; empty for none.
  std::string capture_file{};
  /// No more packets are written when the file has reached this size.
  std::uint64_t capture_limit = std::uint64_t{4} << 30;
  /// A fault plan in the words of `link/fault.h`; empty for none. Each attachment runs the plan
  /// with its slot added to the seed.
  std::string faults{};
  /// Packets go in frames of the addresses' interfaces, as RoCEv1 (`link/roce_v1.h`).
  bool roce_v1 = false;
  /// Packets to processes of this user on this machine go through shared memory, unless they are
  /// to be captured or disturbed.
  bool same_host = false;
  /// And they share memory that is registered, too (`nic/shared_pages.h`).
  bool share_memory = false;
  Fetching fetching = Fetching::kAuto;
  /// The interface that raw packets go to; empty for the machine's own segment.
  std::string ethernet{};
};

/// The real world: the monotonic clock, the kernel's entropy, UDP sockets that the processes of a
/// user share at an address, eventfds, ppoll, and the runner's thread, which starts with the first
/// attach().
///
/// Threads: all calls from any thread. NICs are closed before their host is destroyed. One host a
/// process: a second one is refused at an address where the first is.
///
/// Forks: the child has no runner, and descriptors that must not live on in it. pthread_atfork's
/// child handler calls mark_forked(); the child then makes a host of its own, and everything opened
/// with the old one, which may be leaked or destroyed, is dead: attach() fails, wait() returns.
class LiveHost final : public Host {
 public:
  /// invalid_argument for a fault plan that is none; for a capture file what the system says.
  [[nodiscard]] static Result<std::unique_ptr<LiveHost>> create(const LiveHostOptions& options);
  ~LiveHost() override;

  /// Where a user's NIC is when nothing else was said: `usual` when it is free or this user's
  /// already, else an address in 127.128.0.0/9 made from the user's number.
  [[nodiscard]] static wire::Address default_address(
      const wire::Address& usual = wire::Address::from_ipv4(0x7F000001));

  /// The lowest descriptor of the host's own, from `from` on; -1 when there is none or this is
  /// another process. Async-signal-safe.
  [[nodiscard]] int next_descriptor(int from) const;

  // Around fork(3); the last one in the child, before anything else of this class.

  void before_fork();
  void after_fork_in_parent();
  void mark_forked();

  [[nodiscard]] Time now() override;
  [[nodiscard]] std::uint64_t random() override;
  [[nodiscard]] Result<Attachment> attach(const wire::Address& address) override;
  [[nodiscard]] Result<std::unique_ptr<Notifier>> make_notifier() override;
  /// Asks the processes there when this one has no NIC at the address: 50 ms for a stopped one.
  [[nodiscard]] PortReport port(const wire::Address& address) override;
  /// Not over RoCEv1: operation_not_supported.
  [[nodiscard]] Result<std::unique_ptr<GeneralServices>> open_general_services(
      const NicConfig& config, const std::function<void()>& notify) override;
  [[nodiscard]] Result<std::unique_ptr<WatchedFd>> watch(
      sys::OwnedFd fd, const std::function<void()>& readable) override;
  void adopt(Nic& nic) override;
  void release(Nic& nic) override;
  void wake(Nic& nic) override;
  /// Knows of this machine's addresses whether a process of this user holds the queue pair's slot.
  [[nodiscard]] engine::PeerWatch* peers() override;
  [[nodiscard]] std::optional<OpenMemory> share_memory(Bytes memory, std::uint32_t access) override;
  void unshare_memory(Bytes memory) override;
  void give_up_memory(Bytes pages, std::size_t regions) override;
  /// As link::PacketLink::open(); never fails for the machine's own segment, but frames stay in the
  /// process when the kernel refuses it.
  [[nodiscard]] Result<void> open_uplink() override;
  /// With a notifier, ready() takes from it: a count that ready() leaves makes the thread spin.
  /// Without one ready() is asked every now and then, at most 2 ms apart. With one the thread may
  /// be cancelled here (pthread_cancel(3)), which unwinds its stack. Who drives a NIC has one.
  [[nodiscard]] Waited wait(const std::function<bool()>& ready, Notifier* notifier,
                            SelfDriven* driven) override;

 private:
  struct Impl;
  explicit LiveHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena::nic
