// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/time.h"
#include "link/fetch_choice.h"
#include "link/link.h"
#include "link/shm.h"
#include "nic/direct_paths.h"
#include "sim/network.h"
#include "sim/scheduler.h"
#include "sim/trace.h"
#include "wire/address.h"

namespace verbena::sim {

/// The rings between the NICs of a run whose processes share a machine, as nic::SameHost makes them
/// live. What goes by ring is there at once; Network::cut() cuts the rings between two addresses,
/// too, and a process that vanished leaves its own as they are.
class SameHost {
 public:
  /// `arrived` is called for the address at which something waits. Where they lend, packets from
  /// the middle of messages leave their payload with the sender, and READs fetch what is not
  /// shared.
  SameHost(const Network& network, const Scheduler& scheduler, Trace& trace, bool lends,
           std::function<void(const wire::Address& at)> arrived)
      : network_(network),
        scheduler_(scheduler),
        trace_(trace),
        lends_(lends),
        arrived_(std::move(arrived)) {}

  /// Puts the rings of the NIC at an address beside its way into the network, until that is
  /// destroyed.
  [[nodiscard]] std::unique_ptr<link::Link> attach(const wire::Address& address,
                                                   std::unique_ptr<link::Link> port);
  /// The ways from the NIC at an address, which is attached, to its peers' memory: to what they
  /// share, if this one `shares`, too, and where they lend to the rest; null for none.
  [[nodiscard]] std::shared_ptr<nic::DirectPaths> open_memory(const wire::Address& address,
                                                              bool shares);
  /// The channel from one address to another, for `wire::Path::channel`; 0 when nobody is there.
  [[nodiscard]] std::uint16_t meet(const wire::Address& own, const wire::Address& peer);
  /// The process at an address vanished: it neither reads nor writes from now on.
  void silence(const wire::Address& address);
  /// Something waits for the NIC at an address.
  [[nodiscard]] bool waiting(const wire::Address& address) const;

  [[nodiscard]] std::uint64_t packets() const { return packets_; }
  [[nodiscard]] std::uint64_t reads_fetched() const { return reads_fetched_; }

 private:
  class Near;
  struct Place {
    Near* link = nullptr;
    std::shared_ptr<link::ShmChannels> channels{};
    std::shared_ptr<nic::DirectPaths> paths{};  ///< null: it opens no memory
    bool shares = false;
  };
  using Pair = std::pair<wire::Address, wire::Address>;

  void forget(const wire::Address& address);
  void open_path(const wire::Address& own, const wire::Address& peer, std::uint16_t channel,
                 std::shared_ptr<link::FetchChoice> choice);
  [[nodiscard]] std::shared_ptr<link::FetchChoice> make_choice();

  const Network& network_;
  const Scheduler& scheduler_;
  Trace& trace_;
  const bool lends_;
  std::function<void(const wire::Address&)> arrived_;
  std::map<wire::Address, Place> places_;
  std::map<Pair, std::uint16_t> met_;
  std::uint64_t packets_ = 0;
  std::uint64_t reads_fetched_ = 0;  ///< or parts of them
  std::uint64_t jumps_ = 1;          ///< of the clock by which ways are chosen
  std::uint32_t times_ = 0;          ///< that it was read
  Time wandering_{};
};

}  // namespace verbena::sim
