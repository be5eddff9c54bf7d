// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: two ends that have each other's memory.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/types.h"
#include "nic/direct_paths.h"

namespace verbena::nic::testing {

using Target = engine::DirectMemory::Target;

inline constexpr std::uint16_t kHere = 1;   ///< the owner's number for the channel
inline constexpr std::uint16_t kThere = 2;  ///< the peer's
inline constexpr std::uint32_t kKey = 0x305;

/// An owner and its peer, of one process: an offset is an address.
class Paths : public ::testing::Test {
 protected:
  Paths() {
    auto made = ReachWords::create().value();
    auto given = ReachWords::open(made.descriptor.get()).value();
    owner_.open(kHere, {.board = peer_.board(),
                        .words = std::make_unique<ReachWords>(std::move(made.words)),
                        .end = 0,
                        .own = at_owner_,
                        .peer = at_peer_,
                        .there = [this] { return there_; }});
    peer_.open(kThere, {.board = owner_.board(),
                        .words = std::make_unique<ReachWords>(std::move(given)),
                        .end = 1,
                        .own = at_peer_,
                        .peer = at_owner_,
                        .there = [this] { return there_; }});
    owner_.admit(admission_);
    owner_.settle(admission_.qp_number);
    open_to_writes(kKey, memory_);
  }

  /// What the owner publishes under a key.
  void open_to_writes(std::uint32_t key, Bytes pages) {
    owner_.publish({.key = key,
                    .pd = 7,
                    .access = engine::kRemoteWrite,
                    .address = 0,
                    .memory = {.pages = pages,
                               .offset = reinterpret_cast<std::uintptr_t>(pages.data()),
                               .home = MemoryHome::kWritable}});
  }

  const wire::Address at_owner_ = wire::Address::from_ipv4(0x7F000001);
  const wire::Address at_peer_ = wire::Address::from_ipv4(0x7F000002);
  std::vector<std::byte> memory_ = std::vector<std::byte>(8192);
  bool there_ = true;
  const engine::DirectMemory::Admission admission_{.qp_number = 0x222,
                                                   .destination_qp = 0x111,
                                                   .channel = kHere,
                                                   .pd = 7,
                                                   .access = engine::kRemoteWrite};
  DirectPaths owner_{DirectBoard::create().value().board};
  DirectPaths peer_{DirectBoard::create().value().board};
  const Target target_{.channel = kThere,
                       .qp_number = 0x111,
                       .destination_qp = 0x222,
                       .key = kKey,
                       .address = 16,
                       .length = 32,
                       .access = engine::kRemoteWrite};
  Time now_{};
};

}  // namespace verbena::nic::testing
