// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "verbena/handle.h"
#include "verbena/types.h"

namespace verbena::verbs {

template <service S>
class queue_pair;

/// What a datagram to a group is sent to, with `address_handle` of the group's GID. IBA 10.5.2.
inline constexpr qp_number multicast_qp{0xFFFFFF};

/// A UD queue pair's membership in a group, as long as the handle is there. It holds the queue
/// pair. That the network brings the group's datagrams here is a matter of its own (on InfiniBand
/// of the subnet manager's, elsewhere of IGMP; rdma_cm sees to it).
///
/// Threads: any. Source: ibv_attach_mcast(3), IBA 10.5.2.
class multicast_attachment {
 public:
  multicast_attachment(multicast_attachment&&) noexcept;
  multicast_attachment& operator=(multicast_attachment&&) noexcept;
  multicast_attachment(const multicast_attachment&) = delete;
  multicast_attachment& operator=(const multicast_attachment&) = delete;
  ~multicast_attachment();

  /// Not after a move or `detach()`.
  [[nodiscard]] explicit operator bool() const noexcept { return joined_ != nullptr; }
  [[nodiscard]] gid group() const noexcept;  ///< zero where it has left
  /// Leaves now. `bad_file_descriptor` when it has left already.
  [[nodiscard]] Result<> detach();

 private:
  template <service S>
  friend class queue_pair;
  struct membership;
  explicit multicast_attachment(std::unique_ptr<membership> joined) noexcept;
  [[nodiscard]] static Result<multicast_attachment> attach(ibv_qp* qp, detail::keep parent,
                                                           const gid& group, lid group_lid);
  std::unique_ptr<membership> joined_;
};

}  // namespace verbena::verbs
