// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "wire/address.h"

namespace verbena::nic {

/// What a NIC may hold: reported by ibv_query_device and enforced. All can be set
/// (`docs/settings.md`).
struct Limits {
  std::uint32_t max_qp = 4096;
  std::uint32_t max_cq = 8192;
  std::uint32_t max_mr = 65536;
  std::uint32_t max_mw = 65536;
  std::uint32_t max_pd = 4096;
  std::uint32_t max_ah = 65536;
  std::uint32_t max_cqe = 1u << 20;
  std::uint32_t max_qp_wr = 1u << 15;
  std::uint32_t max_srq = 4096;
  std::uint32_t max_srq_wr = 1u << 15;
  std::uint32_t max_sge = 32;
  std::uint32_t max_inline = 1024;
  std::uint8_t max_rd_atomic = 16;
  std::uint32_t max_mcast_grp = 64;         ///< each costs a socket
  std::uint32_t max_mcast_qp_attach = 256;  ///< to one group
  std::uint64_t max_mr_size = ~std::uint64_t{0} >> 1;
  std::uint64_t max_dm_size = 1 << 20;
};

struct NicConfig {
  std::string name = "vrb0";
  wire::Address address{};            ///< GID index 0
  bool roce_v1 = false;               ///< RoCEv1 on the interface's Ethernet in place of UDP
  std::string interface{};            ///< the network interface that has the address, if known
  std::uint32_t interface_index = 0;  ///< its number for the kernel
  std::uint32_t max_mtu = 4096;       ///< largest path MTU, bytes: what fits into the interface's
  std::uint64_t guid = 0;             ///< node GUID, host order
  Limits limits{};
  engine::EngineConfig engine{};
  enum class Icrc : std::uint8_t { kStrict, kSolve, kOff };
  Icrc icrc = Icrc::kSolve;  ///< what to do about an IPv4 identification that a socket cannot see
};

}  // namespace verbena::nic
