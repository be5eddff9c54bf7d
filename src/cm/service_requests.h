// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "cm/core.h"
#include "wire/address.h"
#include "wire/cm_message.h"

namespace verbena::cm {

/// Requests for the queue pair of a datagram service (SIDR), ours and peers'. An answer is kept for
/// a while and goes again when the request does; of kMostAnswers the oldest is forgotten first.
class ServiceRequests {
 public:
  explicit ServiceRequests(Core& core) : core_(core) {}

  [[nodiscard]] Result<ConnectionId> resolve(const wire::Path& path, wire::CmSidrReq request,
                                             Time now);
  [[nodiscard]] Result<void> answer(ConnectionId id, wire::CmSidrRep reply, Time now);
  /// Ours: forgotten. A peer's without an answer: refused.
  void abandon(ConnectionId id, Time now);
  /// Those that the program has not seen.
  void abandon_unseen(ListenerId listener, Time now);

  void handle_request(const wire::Path& path, const wire::CmMad& mad, Time now);
  void handle_reply(const wire::Path& path, const wire::CmMad& mad);
  void expire(ConnectionId id, Time now);
  [[nodiscard]] bool has(ConnectionId id) const { return requests_.contains(id); }
  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  /// Nothing is kept of any request.
  [[nodiscard]] bool empty() const { return requests_.empty() && by_remote_id_.empty(); }

 private:
  static constexpr std::size_t kMostAnswers = 1024;

  struct Request {
    wire::Path path{};
    ListenerId listener = 0;  ///< 0: ours
    bool answered = false;
    std::uint32_t remote_id = 0;
    std::uint64_t service_id = 0;
    std::uint64_t transaction = 0;
    Repeated sent{};
  };
  using Peer = std::pair<wire::Address, std::uint32_t>;

  void forget(ConnectionId id);

  Core& core_;
  std::map<ConnectionId, Request> requests_{};
  std::map<Peer, ConnectionId> by_remote_id_{};
  std::deque<ConnectionId> answered_{};  ///< oldest first; some may be gone
};

}  // namespace verbena::cm
