// SPDX-License-Identifier: Apache-2.0
#include "nic/slot_groups.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "link/local_address.h"
#include "link/udp_socket.h"
#include "wire/headers.h"

namespace verbena::nic {
namespace {

/// As a slot of the pool has.
constexpr int kReceiveBuffer = 4 << 20;

std::set<std::uint32_t> interfaces_of(const std::vector<wire::Address>& addresses) {
  std::set<std::uint32_t> interfaces;
  for (const wire::Address& address : addresses) {
    if (const auto local = link::find_local(address)) interfaces.insert(local->index);
  }
  return interfaces;
}

}  // namespace

Result<void> SlotGroups::join(const wire::Address& group) {
  const std::scoped_lock lock(mutex_);
  const std::set<std::uint32_t> interfaces = interfaces_of(addresses_);
  if (interfaces.empty())
    return fail(std::errc::no_such_device, "no interface lists an address of the port");
  for (const std::uint32_t interface : interfaces) {
    if (auto opened = open(group, interface); !opened) {
      std::erase_if(members_, [&](const Member& member) { return member.group == group; });
      return opened;
    }
  }
  groups_.insert(group);
  return {};
}

void SlotGroups::leave(const wire::Address& group) {
  const std::scoped_lock lock(mutex_);
  groups_.erase(group);
  std::erase_if(members_, [&](const Member& member) { return member.group == group; });
}

Result<void> SlotGroups::open(const wire::Address& group, std::uint32_t interface) {
  sys::OwnedFd fd =
      sys::move_high(VERBENA_TRY(link::open_group_socket(group, wire::kRoceUdpPort, interface)));
  link::set_receive_buffer(fd.get(), kReceiveBuffer);
  members_.push_back({.group = group,
                      .interface = interface,
                      .socket = std::make_shared<const LedgerFd>(ledger_, std::move(fd))});
  return {};
}

/// Leaves where no address is any more, and joins where one came.
void SlotGroups::follow_addresses() {
  const std::set<std::uint32_t> interfaces = interfaces_of(addresses_);
  std::erase_if(members_,
                [&](const Member& member) { return !interfaces.contains(member.interface); });
  for (const wire::Address& group : groups_) {
    for (const std::uint32_t interface : interfaces) {
      const bool member = std::ranges::any_of(members_, [&](const Member& each) {
        return each.group == group && each.interface == interface;
      });
      if (member) continue;
      if (const auto opened = open(group, interface); !opened)
        log(LogLevel::kError, "interface {}: {}", interface, opened.error().message);
    }
  }
}

SlotGroups::Routes SlotGroups::with_groups(Routes addresses) {
  const std::scoped_lock lock(mutex_);
  addresses_.clear();
  for (const auto& route : addresses) addresses_.push_back(route.address);
  if (!groups_.empty()) follow_addresses();
  for (const Member& member : members_)
    addresses.push_back(
        {.address = member.group, .socket = member.socket->get(), .keep = member.socket});
  return addresses;
}

}  // namespace verbena::nic
