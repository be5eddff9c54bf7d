// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "sim/datagram_end.h"

// The multicast groups that a datagram end is attached to now and then, and sends to.

namespace verbena::sim {
namespace {

constexpr std::uint32_t kCommonQkey = 0x1234;

ibv_gid gid_of(const wire::Address& address) {
  ibv_gid gid{};
  std::memcpy(gid.raw, address.gid.data(), address.gid.size());
  return gid;
}

}  // namespace

/// Most have the Q_Key that sends to groups have.
void DatagramEnd::prepare_groups() {
  attached_.assign(world_.plan().groups, false);
  if (!attached_.empty() && world_.random().below(4) != 0) qkey_ = kCommonQkey;
}

void DatagramEnd::tend_groups() {
  Random& random = world_.random();
  if (attached_.empty() || random.below(32) != 0) return;
  if (random.below(16) == 0) try_wrong_groups();
  const std::size_t group = random.below(attached_.size());
  // More often in it than not.
  if (!attached_[group]) {
    attach(group);
  } else if (random.below(3) == 0) {
    detach(group);
  }
}

void DatagramEnd::attach(std::size_t group) {
  const wire::Address address = world_.group_address(group);
  const ibv_gid gid = gid_of(address);
  // A second time is as good as once.
  const std::uint64_t times = world_.random().between(1, 2);
  for (std::uint64_t i = 0; i < times; ++i) {
    if (const int status = ibv_attach_mcast(qp_, &gid, 0); status != 0) {
      return world_.fail(fmt::format("{}: ibv_attach_mcast: {}", name_, std::strerror(status)));
    }
  }
  attached_[group] = true;
  process_.join(address, *this);
  world_.trace().line(world_.now(), name_, "attached to group {}", group);
}

void DatagramEnd::detach(std::size_t group) {
  const wire::Address address = world_.group_address(group);
  const ibv_gid gid = gid_of(address);
  if (const int status = ibv_detach_mcast(qp_, &gid, 0); status != 0) {
    return world_.fail(fmt::format("{}: ibv_detach_mcast: {}", name_, std::strerror(status)));
  }
  attached_[group] = false;
  process_.leave(address, *this);
  world_.trace().line(world_.now(), name_, "detached from group {}", group);
}

void DatagramEnd::leave_groups() {
  for (std::size_t group = 0; group < attached_.size(); ++group) {
    if (!attached_[group]) continue;
    if (ibv_destroy_qp(qp_) != EBUSY) world_.fail(name_ + ": it is attached and was destroyed");
    detach(group);
  }
}

void DatagramEnd::try_wrong_groups() {
  const ibv_gid own = gid_of(process_.address());
  if (ibv_attach_mcast(qp_, &own, 0) != EINVAL) world_.fail(name_ + ": attached to no group");
  const ibv_gid strange = gid_of(world_.group_address(attached_.size()));
  if (ibv_detach_mcast(qp_, &strange, 0) != EINVAL) world_.fail(name_ + ": detached from nothing");
}

DatagramEnd::Target DatagramEnd::choose_group() {
  return {.address = world_.group_address(world_.random().below(attached_.size())),
          .number = wire::kMulticastQp,
          .qkey = kCommonQkey};
}

}  // namespace verbena::sim
