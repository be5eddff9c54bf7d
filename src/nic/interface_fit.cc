// SPDX-License-Identifier: Apache-2.0
#include "nic/interface_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "link/local_address.h"
#include "link/udp_socket.h"
#include "wire/headers.h"
#include "wire/ip_udp.h"

namespace verbena::nic {
namespace {

constexpr std::uint32_t kSmallestMtu = 256;
constexpr std::uint32_t kLargestMtu = 4096;
/// Of packets with payload the one that carries most: BTH, XRC, RETH and immediate (a WRITE ONLY).
constexpr std::size_t kMostHeaders =
    wire::Bth::kSize + wire::XrcEth::kSize + wire::Reth::kSize + wire::ImmDt::kSize;

}  // namespace

std::uint32_t path_mtu_within(std::uint32_t interface_mtu, bool ipv4) {
  const std::size_t ip = ipv4 ? wire::kIpv4Size : wire::kIpv6Size;
  const std::size_t around = ip + wire::kUdpSize + kMostHeaders + wire::kIcrcSize;
  for (std::uint32_t mtu = kLargestMtu; mtu >= kSmallestMtu; mtu /= 2)
    if (mtu + around <= interface_mtu) return mtu;
  return 0;
}

Result<void> check_is_local(const wire::Address& address) {
  if (address.is_loopback() || link::find_local(address)) return {};
  // The kernel has the last word: there may be a route for a whole network of own addresses.
  // Link-local addresses are bound with their interface, so who has none is told otherwise.
  const auto socket = link::open_udp_socket(address, 0, link::Sharing::kExclusive);
  if (socket ||
      (socket.error().condition != std::errc::address_not_available && !address.is_link_local()))
    return {};
  return fail(std::errc::address_not_available,
              fmt::format("{} is not an address of this machine, which has {}",
                          wire::to_string(address), link::describe_local_addresses()));
}

Result<void> fit_to_interface(NicConfig& config) {
  const auto local = link::find_local(config.address);
  if (!local) return {};
  config.interface = local->interface;
  config.interface_index = local->index;
  const std::uint32_t room = VERBENA_TRY(link::interface_mtu(local->interface));
  const std::uint32_t fitting = path_mtu_within(room, config.address.is_ipv4());
  if (fitting == 0)
    return fail(
        std::errc::message_size,
        fmt::format("the MTU of {} is {}: too small for RoCE's smallest packets of {} bytes",
                    local->interface, room, kSmallestMtu));
  config.max_mtu = std::min(config.max_mtu, fitting);
  return {};
}

}  // namespace verbena::nic
