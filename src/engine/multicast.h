// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <vector>

#include "wire/address.h"

namespace verbena::engine {

class QueuePair;

/// Which queue pairs of an engine are attached to which multicast groups, in the order in which
/// they were.
class MulticastGroups {
 public:
  /// Once more is as good as once.
  void attach(QueuePair& qp, const wire::Address& group);
  void detach(QueuePair& qp, const wire::Address& group);
  void detach_from_all(QueuePair& qp);
  [[nodiscard]] std::span<QueuePair* const> members(const wire::Address& group) const;

 private:
  std::map<wire::Address, std::vector<QueuePair*>> groups_;  ///< those that have members
};

}  // namespace verbena::engine
