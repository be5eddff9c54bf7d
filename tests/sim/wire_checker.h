// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/link.h"
#include "sim/scheduler.h"
#include "sim/trace.h"
#include "wire/packet.h"
#include "wire/train.h"

namespace verbena::sim {

/// What both ends of a reliable connection agreed on, as one end sees it.
struct FlowSpec {
  wire::Address local{};
  std::uint32_t local_qp = 0;
  wire::Address peer{};
  std::uint32_t peer_qp = 0;
  std::uint32_t rq_psn = 0;  ///< first that we expect
  std::uint32_t sq_psn = 0;  ///< first that we send
  std::uint32_t mtu = 1024;
  std::uint32_t max_rd_atomic = 1;
  std::uint32_t rnr_retry = 7;  ///< 7 is for ever
  bool shares = false;          ///< our receives come from a shared queue
  bool extended = false;        ///< XRC: one end sends, the other's receives are numbered ones
};

/// Sits on top of every NIC's links and sees exactly what the NIC sends and gets. It knows the
/// transport's rules (engine.md) independently of the engine and checks what can be seen from
/// outside: PSNs leave without a gap; an ACK acknowledges only what came and counts messages right;
/// a gap is NAKed once, with the expected PSN; RNR NAKs name a packet that needs a receive, are
/// waited for and obeyed no more often than agreed; no more READs and atomics are under way than
/// agreed; what is acknowledged is not sent again.
///
/// What it assumes about receives is optimistic (every packet in sequence was accepted), so that it
/// never accuses a NIC that is right.
class WireChecker {
 public:
  using Fail = std::function<void(const std::string&)>;
  /// A UD or UC packet that reached a NIC whole.
  using OnDatagram =
      std::function<void(const wire::Address& at, const wire::Packet&, const wire::Segment&)>;

  WireChecker(Scheduler& scheduler, Fail fail, OnDatagram on_datagram)
      : scheduler_(scheduler), fail_(std::move(fail)), on_datagram_(std::move(on_datagram)) {}

  /// Puts the checker on a NIC's links.
  [[nodiscard]] std::unique_ptr<link::Link> wrap(const wire::Address& address,
                                                 std::unique_ptr<link::Link> below);

  /// From RTR on.
  void open(const FlowSpec& spec);
  void close(const wire::Address& local, std::uint32_t local_qp);
  /// The queue pair completed something that was posted at `posted`, so it was alive then.
  void alive(const wire::Address& local, std::uint32_t local_qp, Time posted);
  /// How often a packet that is not acknowledged was sent at most.
  [[nodiscard]] std::uint32_t transmissions(const wire::Address& local,
                                            std::uint32_t local_qp) const;
  /// One beyond the highest PSN that was sent.
  [[nodiscard]] std::uint32_t high_psn(const wire::Address& local, std::uint32_t local_qp) const;

  /// So many messages that take a receive have come at most, as far as that. `queue` is the number
  /// that they name, 0 where they name none.
  [[nodiscard]] std::uint64_t messages_begun(const wire::Address& local, std::uint32_t local_qp,
                                             std::uint32_t queue) const;

  [[nodiscard]] std::uint64_t corrupt() const { return corrupt_; }
  [[nodiscard]] std::uint64_t retransmitted() const { return retransmitted_; }
  [[nodiscard]] std::uint64_t naks() const { return naks_; }
  [[nodiscard]] std::uint64_t rnr_naks() const { return rnr_naks_; }
  [[nodiscard]] std::uint64_t shared_rnr_naks() const { return shared_rnr_naks_; }
  /// Acknowledgements that came in requests.
  [[nodiscard]] std::uint64_t piggybacks() const { return piggybacks_; }

 private:
  class Tap;
  struct ReadUnderWay {
    std::uint32_t first = 0;
    std::uint32_t end = 0;
  };
  struct Flow {
    FlowSpec spec{};
    // As requester.
    std::uint32_t high = 0;
    std::vector<ReadUnderWay> reads{};
    std::uint32_t unacked = 0;              ///< everything before it is acknowledged
    std::deque<ReadUnderWay> unanswered{};  ///< READs and atomics, from what did not come yet
    struct RnrWait {
      bool begun = false;  ///< and nothing was sent since
      Time until{};
      std::uint32_t rounds = 0;  ///< since there was progress
    } rnr{};
    struct Sent {
      std::uint32_t psn = ~0U;
      std::uint32_t times = 0;
    };
    std::vector<Sent> sent{};
    // As responder.
    std::uint32_t expected = 0;
    std::uint32_t furthest = 0;  ///< the highest that `expected` ever was
    std::uint32_t msn = 0;
    /// Messages that take a receive, up to where they take it, by the queue that they name.
    std::map<std::uint32_t, std::uint64_t> begun{};
    struct Accepted {
      std::uint32_t psn = ~0U;
      std::uint32_t msn = 0;
      bool needs_receive = false;
      std::uint32_t queue = 0;
    };
    std::vector<Accepted> accepted{};
    std::optional<std::uint32_t> nak_psn{};  ///< of the last NAK or RNR NAK
    std::uint32_t naks = 0;                  ///< so many times
    bool came_since_nak = false;
    std::vector<Sent> came{};  ///< how often a PSN came
    std::optional<Time> nak_due{};
  };
  using FlowKey = std::pair<wire::Address, std::uint32_t>;

  void sent(const wire::Address& from, const wire::Train& train);
  void sent_request(Flow& flow, const wire::Train& train);
  void check_going_back(Flow& flow, std::uint32_t psn);
  /// Whether all up to a PSN that is acknowledged has come.
  bool check_covered(const Flow& flow, std::uint32_t psn);
  void sent_response(Flow& flow, const wire::Packet& head);
  void sent_nak(Flow& flow, const wire::Packet& head);
  void received(const wire::Address& at, const wire::Segment& segment);
  void received_request(Flow& flow, const wire::Packet& packet);
  static void take_back(Flow& flow, std::uint32_t psn);
  void received_acknowledgement(Flow& flow, std::uint32_t psn);
  void received_response(Flow& flow, const wire::Packet& packet);
  bool acknowledge_before(Flow& flow, std::uint32_t end_psn);
  void await_receive(Flow& flow, const wire::Packet& packet);
  [[nodiscard]] Flow* towards(const wire::Address& from, const wire::Address& to,
                              std::uint32_t peer_qp);
  void accuse(const Flow& flow, const std::string& what);

  Scheduler& scheduler_;
  Fail fail_;
  OnDatagram on_datagram_;
  std::map<FlowKey, Flow> flows_;  ///< by local address and queue pair
  std::uint64_t corrupt_ = 0;
  std::uint64_t retransmitted_ = 0;
  std::uint64_t naks_ = 0;
  std::uint64_t rnr_naks_ = 0;
  std::uint64_t shared_rnr_naks_ = 0;
  std::uint64_t piggybacks_ = 0;
};

}  // namespace verbena::sim
