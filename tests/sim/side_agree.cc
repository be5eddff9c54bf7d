// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "sim/side.h"

// What the two ends of a connection agree on, anew for every epoch.

namespace verbena::sim {
namespace {

constexpr std::uint32_t kPsnMask = 0xFFFFFF;
constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

/// What both sides agree on; the first one to begin an epoch does it for both.
void Side::agree() {
  connection_.closing = connection_.broken = connection_.silent = connection_.resolved = false;
  ++connection_.epoch;
  ++world_.counters().epochs;
  constexpr std::array<std::uint32_t, 5> kMtus = {256, 512, 1024, 2048, 4096};
  const std::size_t mtus = world_.plan().port_mtu == 1024 ? 3 : 5;
  const std::uint32_t mtu = kMtus[random().below(mtus)];
  const bool lossy = world_.plan().loses() || world_.plan().disturbance.reorder_ppm != 0 ||
                     world_.plan().disturbance.delay_ppm != 0;
  const bool extended = agree_transport();
  for (Side* side : connection_.sides) {
    Terms terms;
    if (!side->reuse_) {
      constexpr std::array<std::uint32_t, 5> kDepths = {2, 4, 8, 16, 33};
      terms.send_depth = kDepths[random().below(kDepths.size())];
      terms.receive_depth = kDepths[random().below(kDepths.size())];
      terms.send_sge = static_cast<std::uint32_t>(random().between(1, 5));
      terms.receive_sge = static_cast<std::uint32_t>(random().between(1, 5));
      terms.inline_size = static_cast<std::uint32_t>(random().below(3) * 100);
      terms.signal_all = random().below(6) == 0;
    } else {
      terms = side->terms_;
    }
    agree_retries(terms, lossy);
    terms.max_rd_atomic = static_cast<std::uint8_t>(random().between(1, 8));
    terms.receive_size = static_cast<std::uint32_t>(random().between(1, 24 << 10));
    terms.lazy = random().below(3) == 0;
    terms.unsignaled_ppm = static_cast<std::uint32_t>(random().below(4) * 250'000);
    terms.access = kAllAccess;
    if (random().below(4) == 0) {
      constexpr std::array kRights = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
                                      IBV_ACCESS_REMOTE_ATOMIC};
      terms.access &= ~static_cast<std::uint32_t>(kRights[random().below(kRights.size())]);
    }
    terms.extended = extended;
    side->agree_receives(terms);
    side->terms_ = terms;
    side->path_mtu_ = mtu;
    side->mtu_ = world_.plan().mtu(mtu);
    // Often so near the end of the PSNs that they wrap.
    side->sq_psn_ = static_cast<std::uint32_t>(
        random().below(2) == 0 ? kPsnMask - random().below(200) : random().below(kPsnMask + 1));
    side->epoch_limit_ = static_cast<std::uint32_t>(random().between(40, 400));
  }
  for (Side* side : connection_.sides) side->agree_patience();
}

/// Whether the epoch is one of XRC. A queue pair that is used again stays what it is.
bool Side::agree_transport() {
  for (const Side* side : connection_.sides) {
    if (side->reuse_) return side->terms_.extended;
  }
  return world_.plan().numbered_queues != 0 && random().below(2) == 0;
}

void Side::agree_retries(Terms& terms, bool lossy) {
  terms.prompt = random().below(2) == 0;
  terms.rnr_retry = 7;
  if (terms.prompt && random().below(2) == 0) {
    terms.rnr_retry = static_cast<std::uint8_t>(random().below(7));
  }
  terms.min_rnr_timer = static_cast<std::uint8_t>(random().between(1, 12));
  terms.timeout = static_cast<std::uint8_t>(random().between(5, 13));
  terms.retry_count = 7;
  if (!lossy) {
    terms.retry_count = static_cast<std::uint8_t>(random().between(1, 7));
    if (random().below(8) == 0) terms.timeout = 0;
  } else if (!world_.plan().gentle) {
    terms.retry_count = static_cast<std::uint8_t>(random().between(2, 7));
  }
}

/// Whether the epoch's receives come from a shared queue, which has a length of its own.
void Side::agree_receives(Terms& terms) {
  if (terms.extended) {
    const auto shorter = [](const SharedReceives* one, const SharedReceives* other) {
      return one->longest() < other->longest();
    };
    terms.receive_size = std::ranges::min(process_.numbered(), shorter)->longest();
    return;
  }
  const std::uint32_t queues = world_.plan().shared_queues;
  if (queues == 0) return;
  if (!reuse_) {
    terms.shared.reset();
    if (random().below(3) != 0) terms.shared = random().below(queues);
  }
  if (terms.shared) terms.receive_size = process_.shared_receives(*terms.shared).longest();
}

/// One end's messages may use up what another's need: who sends to it has all patience.
void Side::agree_patience() {
  if (!peer_->terms_.shared && !peer_->terms_.extended) return;
  terms_.prompt = false;
  terms_.rnr_retry = 7;
}

}  // namespace verbena::sim
