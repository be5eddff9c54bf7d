// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "nic/host.h"
#include "nic/nic.h"
#include "sim/network.h"
#include "sim/same_host.h"
#include "sim/scheduler.h"

namespace verbena::sim {

/// The simulator's side of the seam between a NIC and the world: the seed's entropy, virtual time,
/// the fake network, notifiers that are numbers, and waiting by giving way to other fibres. One
/// host serves all NICs of a run; a NIC belongs to the group (simulated process) of its address.
class SimHost final : public nic::Host, public Actor {
 public:
  /// Puts links on top of a NIC's own: faults, the wire's checker.
  using Stack =
      std::function<std::unique_ptr<link::Link>(Scheduler::Group, std::unique_ptr<link::Link>)>;
  /// `nap` is how long at most a NIC takes to notice that a packet came. With `rings` all NICs are
  /// on one machine, and connected queue pairs use memory that they share; with `share_memory`
  /// their programs' own, too.
  SimHost(Scheduler& scheduler, Network& network, Duration nap, std::uint64_t seed, Stack stack,
          SameHost* rings = nullptr, bool share_memory = false)
      : scheduler_(scheduler),
        network_(network),
        nap_(nap),
        random_(seed),
        stack_(std::move(stack)),
        rings_(rings),
        share_memory_(share_memory && rings != nullptr) {}

  /// Before its NIC is opened.
  void assign(const wire::Address& address, Scheduler::Group group) { groups_[address] = group; }
  /// As poll(2) on a channel's descriptor would: waits until it is readable. For fibres.
  [[nodiscard]] nic::Waited wait_readable(int descriptor);

  /// The process at an address vanished: its NIC neither sends nor receives from now on.
  void silence(const wire::Address& address);
  /// Nothing is under way between two addresses, nor waits at one of them.
  [[nodiscard]] bool quiet(const wire::Address& a, const wire::Address& b) const;
  /// Something arrived for the NIC at an address.
  void arrived(const wire::Address& address);

  /// WRITEs and READs of all NICs that were copied without packets.
  [[nodiscard]] std::uint64_t direct_requests() const;
  /// Packets whose payload was fetched from their sender.
  [[nodiscard]] std::uint64_t payloads_fetched() const;
  [[nodiscard]] std::size_t nics() const { return nics_.size(); }
  [[nodiscard]] std::size_t notifiers() const { return notifiers_.size(); }

  // nic::Host

  [[nodiscard]] Time now() override { return scheduler_.now(); }
  [[nodiscard]] std::uint64_t random() override { return random_.next(); }
  [[nodiscard]] Result<nic::Attachment> attach(const wire::Address& address) override;
  [[nodiscard]] Result<std::unique_ptr<nic::Notifier>> make_notifier() override;
  void adopt(nic::Nic& nic) override;
  void release(nic::Nic& nic) override;
  void wake(nic::Nic& nic) override;
  [[nodiscard]] std::optional<nic::OpenMemory> share_memory(Bytes memory,
                                                            std::uint32_t access) override;
  [[nodiscard]] nic::Waited wait(const std::function<bool()>& ready, nic::Notifier* notifier,
                                 nic::SelfDriven* driven) override;

  // Actor

  [[nodiscard]] std::optional<Time> next() override;
  void act(Time now) override;

 private:
  class SimNotifier;
  class SimMembership;
  struct Driven {
    nic::Nic* nic = nullptr;
    Scheduler::Group group = 0;
    std::optional<Time> due{};  ///< because of a packet or a wake-up
  };

  [[nodiscard]] std::optional<Time> due(const Driven& driven) const;

  Scheduler& scheduler_;
  Network& network_;
  Duration nap_;
  Random random_;
  Stack stack_;
  SameHost* rings_;
  bool share_memory_;
  std::vector<std::shared_ptr<const engine::Counters>> counted_;
  std::map<wire::Address, Scheduler::Group> groups_;
  std::map<wire::Address, Driven> nics_;
  std::map<int, SimNotifier*> notifiers_;
};

}  // namespace verbena::sim
