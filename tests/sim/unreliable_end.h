// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "sim/process.h"
#include "sim/work.h"
#include "sim/world.h"
#include "wire/packet.h"

namespace verbena::sim {

class UnreliableEnd;

/// An unreliable connection between two ends, over its epochs.
struct UnreliablePair {
  std::array<UnreliableEnd*, 2> ends{};
  bool ending = false;  ///< both queue pairs go
  Time calm_at{};       ///< nothing of it is under way from then on
};

/// One end of an unreliable connection. Which packets reach the NIC is the network's affair and is
/// seen there (the wire's checker); from then on it is determined what is placed, to the byte, and
/// which receive gets which message: one of which a packet is missing is dropped as a whole, though
/// not what it had placed.
class UnreliableEnd {
 public:
  UnreliableEnd(World& world, Process& process, UnreliablePair& pair, int which);
  UnreliableEnd(const UnreliableEnd&) = delete;
  UnreliableEnd& operator=(const UnreliableEnd&) = delete;

  void meet(UnreliableEnd& peer) { peer_ = &peer; }
  bool step();
  void complete(const ibv_wc& completion);
  /// A packet for this queue pair reached the NIC.
  void arrived(const wire::Packet& packet, const wire::Segment& segment);
  /// The process vanishes: nothing is checked.
  void crash();
  /// At the end: a queue pair that waited in RESET for another epoch goes.
  void destroy();
  [[nodiscard]] bool down() const { return state_ == State::kDown; }
  [[nodiscard]] bool ready() const { return state_ == State::kReady; }
  [[nodiscard]] std::uint32_t number() const { return qp_number_; }
  [[nodiscard]] Process& process() const { return process_; }
  [[nodiscard]] const UnreliableEnd& peer() const { return *peer_; }
  [[nodiscard]] std::uint32_t expected_psn() const { return expected_psn_; }

 private:
  enum class State : std::uint8_t { kDown, kInit, kReady };
  enum class Fault : std::uint8_t { kNone, kRemoteKey, kTooLong, kLocalKey };

  /// A message of ours, until its epoch ends.
  struct Outgoing {
    std::uint64_t id = 0;
    Kind kind = Kind::kSend;
    Fault fault = Fault::kNone;
    bool signaled = false;
    std::uint32_t first_psn = 0;
    std::uint32_t psn_count = 1;
    std::uint32_t immediate = 0;
    std::uint32_t target = 0;  ///< WRITE: where, in the peer's arena
    Data data{};
    bool arrived = false;  ///< as a whole, and was taken
    bool unready = false;  ///< there was no receive for it
  };
  /// A message, or the beginning of one, that was placed into a receive.
  struct Attempt {
    Data data{};
    std::uint32_t size = 0;
  };
  /// A completion that must come.
  struct Expected {
    const Outgoing* message = nullptr;
    std::vector<Attempt> attempts{};
  };
  struct Send {
    std::uint64_t id = 0;
    bool signaled = false;
    Fault fault = Fault::kNone;
    BufferPtr buffer{};
  };

  // Life.
  void begin();
  void create();
  void connect();
  void modify(ibv_qp_attr& attr, int mask, const char* what);
  [[nodiscard]] bool may_end() const;
  void end();
  void forget();

  // Traffic.
  bool traffic();
  void post_receive();
  void post_send();
  [[nodiscard]] std::uint32_t choose_length();
  void recover();

  // What comes in.
  [[nodiscard]] Outgoing* find(std::uint32_t psn);
  void check_packet(const wire::Packet& packet, const Outgoing& message, std::uint32_t index);
  void follow(const wire::Packet& packet, Outgoing& message, std::uint32_t index);
  [[nodiscard]] bool has_receive() const { return receives_.size() > expected_.size(); }
  void complete_send(const ibv_wc& completion);
  void complete_receive(const ibv_wc& completion);
  void settle(const ReceiveWork& work, std::uint32_t from, const std::vector<Attempt>& attempts);

  [[noreturn]] void fail(const std::string& why);
  [[nodiscard]] Random& random() { return world_.random(); }

  World& world_;
  Process& process_;
  UnreliablePair& pair_;
  std::string name_;
  UnreliableEnd* peer_ = nullptr;

  State state_ = State::kDown;
  ibv_qp* qp_ = nullptr;
  std::uint32_t qp_number_ = 0;
  bool reuse_ = false;  ///< the queue pair is in RESET and will serve the next epoch
  BufferPtr zone_{};    ///< where the peer's WRITEs go
  ibv_mr* zone_mr_ = nullptr;
  std::uint32_t path_mtu_ = 1024;
  std::uint32_t mtu_ = 1024;  ///< payload of a packet
  std::uint32_t sq_psn_ = 0;
  std::uint32_t receive_size_ = 4096;
  std::uint32_t depth_ = 8;

  // As sender.
  std::uint32_t next_psn_ = 0;
  std::uint32_t posted_ = 0;  ///< messages in this epoch
  std::deque<Outgoing> outgoing_;
  std::deque<Send> sends_;
  bool in_send_error_ = false;  ///< SQE, or about to be

  // As receiver.
  bool accepting_ = false;  ///< RTR and on
  std::uint32_t expected_psn_ = 0;
  Outgoing* current_ = nullptr;    ///< that is coming in, and of which nothing is missing
  std::vector<Attempt> attempts_;  ///< at the receive that was taken and has no message yet
  bool held_ = false;              ///< there is such a receive
  std::deque<ReceiveWork> receives_;
  std::deque<Expected> expected_;  ///< of receives_, from the front
};

}  // namespace verbena::sim
