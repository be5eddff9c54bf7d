// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "wire/address.h"

namespace verbena::nic {

/// The multicast groups whose datagrams a link receives. What changes here counts from the link's
/// next refresh() on.
///
/// Threads: all calls from any thread.
class Membership {
 public:
  Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  virtual ~Membership() = default;

  /// For a group that was not joined. What the kernel says when it cannot be received here; nothing
  /// has changed then.
  [[nodiscard]] virtual Result<void> join(const wire::Address& group) = 0;
  virtual void leave(const wire::Address& group) = 0;
};

}  // namespace verbena::nic
