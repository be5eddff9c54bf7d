// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/process.h"
#include "sim/shared_receives.h"
#include "sim/work.h"
#include "sim/world.h"
#include "wire/packet.h"

namespace verbena::sim {

/// A UD queue pair. Which datagrams reach the NIC is the network's affair and is seen there (the
/// wire's checker); from then on it is determined which receive gets which. Only what others leave
/// in a shared queue is not always known.
class DatagramEnd final : public ReceiveTaker {
 public:
  DatagramEnd(World& world, Process& process, std::size_t index);
  DatagramEnd(const DatagramEnd&) = delete;
  DatagramEnd& operator=(const DatagramEnd&) = delete;

  void open();
  bool step();
  void complete(const ibv_wc& completion);
  /// A datagram for this queue pair reached the NIC.
  void arrived(const wire::Packet& packet, const wire::Segment& segment);
  /// Nothing posted is to complete but receives. Unsignalled sends at the end never do.
  [[nodiscard]] bool idle() const;
  /// `crashed`: nothing is checked any more.
  void close(bool crashed);
  [[nodiscard]] std::uint32_t number() const { return qp_number_; }
  [[nodiscard]] std::uint32_t qkey() const { return qkey_; }
  /// Gets none of the multicasts that it sends.
  [[nodiscard]] bool blocks_own() const { return blocks_own_; }
  [[nodiscard]] std::size_t may_hold(const SharedReceives&) const override {
    return expected_.size();
  }
  [[nodiscard]] std::size_t must_hold() const override;

 private:
  struct Send {
    std::uint64_t id = 0;
    bool signaled = false;
    bool too_long = false;
    bool dead = false;  ///< behind one that is too long
    std::vector<BufferPtr> buffers{};
  };
  struct Expected {
    std::vector<std::byte> payload{};
    wire::Path path{};
    std::uint32_t source_qp = 0;
    std::uint32_t immediate = 0;
    bool with_immediate = false;
    bool perhaps = false;  ///< others may have taken the last receive
  };

  /// What a send is for.
  struct Target {
    wire::Address address{};
    std::uint32_t number = 0;
    std::uint32_t qkey = 0;
  };

  [[nodiscard]] ibv_qp* make_queue_pair();
  void post_receive();
  bool post_receives();
  [[nodiscard]] bool fits(std::size_t size, bool& perhaps) const;
  [[nodiscard]] ReceiveWork take_receive(std::uint64_t id);
  [[nodiscard]] std::optional<Expected> take_expected(const ibv_wc& completion,
                                                      const ReceiveWork& work);
  [[nodiscard]] bool matches(const Expected& expected, const ibv_wc& completion,
                             const ReceiveWork& work) const;
  void post_send();
  void check_content(const Expected& expected, const ReceiveWork& work);
  void recover();
  [[nodiscard]] ibv_ah* handle_to(const wire::Address& address);
  [[nodiscard]] Target choose_target();

  // datagram_groups.cc
  void prepare_groups();
  void tend_groups();
  void leave_groups();
  void attach(std::size_t group);
  void detach(std::size_t group);
  void try_wrong_groups();
  [[nodiscard]] Target choose_group();

  World& world_;
  Process& process_;
  std::string name_;
  ibv_qp* qp_ = nullptr;
  std::uint32_t qp_number_ = 0;
  std::uint32_t qkey_ = 0;
  std::uint32_t depth_ = 16;
  SharedReceives* shared_ = nullptr;  ///< where receives come from, if not from its own queue
  bool blocks_own_ = false;
  std::vector<bool> attached_;  ///< to which multicast group
  std::map<wire::Address, ibv_ah*> handles_;
  std::deque<Send> sends_;
  std::deque<ReceiveWork> receives_;
  std::deque<Expected> expected_;  ///< of receives_, from the front
  bool in_send_error_ = false;     ///< SQE, or about to be
};

}  // namespace verbena::sim
