// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

/// What the payload of a SEND to tagged receives begins with (rdma-core, tag_matching.md), in the
/// manner of `wire/headers.h`.
namespace verbena::wire {

/// Numbers are those of ibv_tmh_op. A peer may send others.
enum class TagOperation : std::uint8_t {
  kNoTag = 0,
  kRendezvous = 1,  ///< a rendezvous header follows
  kFin = 2,         ///< a copy of a rendezvous' headers: its payload has been fetched
  kEager = 3,       ///< the payload follows
};

/// Tag Matching Header.
struct TagHeader {
  static constexpr std::size_t kSize = 16;
  TagOperation operation{};
  std::array<std::byte, 3> reserved{};
  std::uint32_t application_context = 0;
  std::uint64_t tag = 0;

  [[nodiscard]] static TagHeader parse(const std::byte* from) {
    TagHeader header{.operation = static_cast<TagOperation>(from[0]),
                     .application_context = load_be<std::uint32_t>(from + 4),
                     .tag = load_be<std::uint64_t>(from + 8)};
    std::memcpy(header.reserved.data(), from + 1, header.reserved.size());
    return header;
  }
  void encode(std::byte* to) const {
    to[0] = static_cast<std::byte>(operation);
    std::memcpy(to + 1, reserved.data(), reserved.size());
    store_be(to + 4, application_context);
    store_be(to + 8, tag);
  }
  bool operator==(const TagHeader&) const = default;
};

/// Rendezvous Header: where the payload can be read.
struct RendezvousHeader {
  static constexpr std::size_t kSize = 16;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;

  [[nodiscard]] static RendezvousHeader parse(const std::byte* from) {
    return {.address = load_be<std::uint64_t>(from),
            .rkey = load_be<std::uint32_t>(from + 8),
            .length = load_be<std::uint32_t>(from + 12)};
  }
  void encode(std::byte* to) const {
    store_be(to, address);
    store_be(to + 8, rkey);
    store_be(to + 12, length);
  }
  bool operator==(const RendezvousHeader&) const = default;
};

}  // namespace verbena::wire
