// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <cstddef>

#include "base/bytes.h"
#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "wire/cm_message.h"

/// Paths in the four forms that they are told in: path records as structs and as the subnet
/// administrator's messages have them, address vectors, and what the wire needs.
namespace verbena::compat::rdma_cm {

/// The local ACK delay that ibv_query_device reports: 4.096 us * 2^15.
inline constexpr std::uint8_t kAckDelay = 15;
/// A packet's longest way, as cma.c has it for Ethernet.
inline constexpr std::uint8_t kPacketLifetime = 16;

/// How long to wait for an acknowledgement, as cm.c: a way there and back and the peer's delay.
[[nodiscard]] std::uint8_t ack_timeout(std::uint8_t ack_delay, std::uint8_t packet_lifetime);

/// From the id's address to its destination, as resolving it finds.
[[nodiscard]] Route make_route(const Id& id);
/// As a peer's request has it, turned around.
[[nodiscard]] Route route_of(const wire::CmReq& request, const wire::Path& path);

[[nodiscard]] wire::Path to_path(const Route& route);
[[nodiscard]] ib_user_path_rec to_record(const Route& route);
/// The address vector of that path on the id's device.
[[nodiscard]] ib_uverbs_ah_attr to_address_vector(const Id& id, const Route& route);

/// A path record as a MAD has it: the struct ib_path_rec_data's.
using PackedRecord = std::array<std::byte, sizeof(ib_path_rec_data::path_rec)>;
[[nodiscard]] PackedRecord pack(const Route& route);
/// invalid_argument for an MTU that the device does not have. The addresses stay the id's.
[[nodiscard]] Result<Route> unpack(const Id& id, const PackedRecord& record);

}  // namespace verbena::compat::rdma_cm
