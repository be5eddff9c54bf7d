// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.h"
#include "engine/receive_queue.h"
#include "engine/tag_list.h"

/// Receives with tags before a queue without, for tests of this room.
namespace verbena::engine::testing {

class TaggedReceives final : public ReceiveSource, public TagMatcher {
 public:
  explicit TaggedReceives(std::uint32_t pd)
      : list(8, kRendezvousPieces, pd), plain(8, kRendezvousPieces, pd) {}

  Taken take(ReceiveWqe& wqe, std::uint64_t size = 0) override { return plain.take(wqe, size); }
  Matched match(std::uint64_t tag, ReceiveWqe& wqe) override {
    if (list.take(tag, wqe)) return {.taken = Taken::kYes, .expected = true};
    const Taken taken = plain.take(wqe);
    if (taken == Taken::kYes) list.note_unexpected();
    return {.taken = taken};
  }
  void forget_unexpected() override { list.forget_unexpected(); }
  [[nodiscard]] TagMatcher* tags() override { return this; }
  [[nodiscard]] std::uint32_t max_pieces() const override { return plain.max_pieces(); }
  [[nodiscard]] bool shared() const override { return true; }
  void clear() override {}

  TagList list;
  ReceiveQueue plain;
};

}  // namespace verbena::engine::testing
