// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "compat/abi.h"

/// What our devices say of themselves, in calls and in files alike.
namespace verbena::compat {

inline constexpr std::string_view kFirmwareVersion = VERBENA_VERSION;
/// A locally administered OUI (IEEE 802, bit 1 of the first octet): nobody's, so that no program
/// has a special case.
inline constexpr std::uint32_t kVendorId = 0x565242;
inline constexpr std::uint32_t kVendorPartId = 1;

inline constexpr std::uint8_t kPort = 1;  ///< the only one
inline constexpr std::uint16_t kPkeyTableLength = 1;
inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;
inline constexpr std::uint32_t kMaxMessage = 1u << 31;  ///< C9-94
inline constexpr std::uint64_t kClockKilohertz =
    1'000'000;  ///< completions are stamped in nanoseconds
inline constexpr std::uint32_t kMaxRateLimit = 1'000'000'000;  ///< kbit/s: above any line
/// Whatever sends requests can be held to a rate.
inline constexpr std::uint32_t kRateLimited =
    1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD | 1u << IBV_QPT_XRC_SEND;

// A port must name a width and a speed of the InfiniBand tables; 4X QDR, 40 Gb/s, is the order of
// what a core moves.
inline constexpr std::uint8_t kWidth4x = 2;
inline constexpr std::uint8_t kSpeedQdr = 4;
inline constexpr std::string_view kRate = "40 Gb/sec (4X QDR)";
inline constexpr std::uint8_t kLinkUp = 5;
inline constexpr std::uint8_t kLinkDisabled = 3;

/// The largest path MTU that fits into so many bytes.
[[nodiscard]] ibv_mtu to_mtu(std::uint32_t bytes);
[[nodiscard]] constexpr std::uint32_t to_bytes(ibv_mtu mtu) { return 128u << mtu; }

}  // namespace verbena::compat
