// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/side.h"

// Requests that are wrong on purpose. Each ends its connection, with a status that is known.

namespace verbena::sim {
namespace {

constexpr std::uint32_t kAtomicSize = 8;
constexpr int kMisdeedTries = 4;
constexpr int kKindTries = 8;
constexpr std::uint32_t kUnknownKey = 0x00000BAD;  // the generation of no key is that

}  // namespace

bool Side::can_misbehave() const {
  return peer_->state_ == State::kReady && !draining_send_queue_ && !peer_->draining_send_queue_ &&
         room() && !connection_.silent;
}

bool Side::maybe_misdeed() {
  if (starves_) return post_starved();
  if (epoch_operations_ < 5 || !random().chance_ppm(world_.plan().misdeed_ppm * 4)) return false;
  if (!can_misbehave()) return false;
  // Many a misdeed is not possible here and now.
  for (int tries = 0; tries < kMisdeedTries; ++tries) {
    const Misdeed chosen = choose_misdeed();
    if (!do_misdeed(chosen)) continue;
    ++world_.counters().misdeeds[std::to_underlying(chosen)];
    return true;
  }
  return false;
}

Misdeed Side::choose_misdeed() {
  const auto choose = [&](Misdeed first, Misdeed end) {
    const std::uint64_t count = std::to_underlying(end) - std::to_underlying(first);
    return static_cast<Misdeed>(std::to_underlying(first) + random().below(count));
  };
  if (terms_.extended && random().below(4) == 0) {
    return choose(Misdeed::kStrangeQueue, Misdeed::kMisdeeds);
  }
  return choose(Misdeed::kUnknownKey,
                world_.plan().windows ? Misdeed::kStrangeQueue : Misdeed::kStaleWindow);
}

bool Side::do_misdeed(Misdeed misdeed) {
  SendWork work;
  work.id = world_.next_id();
  work.misdeed = misdeed;
  work.signaled = random().below(2) == 0;
  work.solicited = random().below(2) == 0;
  work.immediate = static_cast<std::uint32_t>(random().next());
  work.posted = world_.now();
  switch (misdeed) {
    case Misdeed::kNone:
    case Misdeed::kMisdeeds: return false;
    case Misdeed::kNoReceive: return starve();
    case Misdeed::kSilence: return go_silent();
    case Misdeed::kLocalKey:
    case Misdeed::kLocalRange:
    case Misdeed::kLocalLost:
    case Misdeed::kAtomicLength: return wrong_local(misdeed, work);
    case Misdeed::kStaleWindow:
    case Misdeed::kBeyondWindow:
    case Misdeed::kWindowForbids:
    case Misdeed::kOthersWindow: return wrong_window(misdeed, work);
    case Misdeed::kBinding: return wrong_binding(work);
    case Misdeed::kLocalInvalidation:
    case Misdeed::kRemoteInvalidation: return wrong_invalidation(misdeed, work);
    case Misdeed::kTooLong:
      if (terms_.prompt && credit() <= 0) return false;
      if (peer_->bad_receive_ || peer_->starving_peer_) return false;
      work.kind = random().below(2) == 0 ? Kind::kSend : Kind::kSendImm;
      name_queue(work);
      work.length = longest_message(work) + 32 + static_cast<std::uint32_t>(random().below(3000));
      add_source(work);
      post_doomed(std::move(work), IBV_WC_REM_INV_REQ_ERR, true);
      return true;
    case Misdeed::kStrangeQueue:
      if (random().below(2) == 0) return wrong_remote(misdeed, work);
      post_astray(std::move(work));
      return true;
    case Misdeed::kFailedQueue: return post_to_narrow(std::move(work));
    default: return wrong_remote(misdeed, work);
  }
}

/// One that the misdeed is possible with at the peer, if there is any.
std::optional<Kind> Side::choose_wrong_kind(Misdeed misdeed) {
  constexpr std::array kWriters = {Kind::kWrite, Kind::kWrite, Kind::kSwap, Kind::kAdd};
  constexpr std::array kReaders = {Kind::kRead, Kind::kRead, Kind::kSwap, Kind::kAdd};
  constexpr std::array kAtomics = {Kind::kSwap, Kind::kAdd, Kind::kSwap, Kind::kAdd};
  constexpr std::array kAll = {Kind::kWrite, Kind::kRead, Kind::kRead, Kind::kAdd};
  const auto& kinds = misdeed == Misdeed::kReadOnly     ? kWriters
                      : misdeed == Misdeed::kWriteOnly  ? kReaders
                      : misdeed == Misdeed::kMisaligned ? kAtomics
                                                        : kAll;
  for (int tries = 0; tries < kKindTries; ++tries) {
    const Kind kind = kinds[random().below(kinds.size())];
    const bool granted = (peer_->terms_.access & right_of(kind)) != 0;
    if (granted != (misdeed == Misdeed::kQueuePairForbids)) return kind;
  }
  return std::nullopt;
}

/// From before the peer's lost page, or within it, to within it or behind.
void Side::name_lost(SendWork& work) {
  std::uint32_t before = 0;
  if (!is_atomic(work.kind)) {
    before = static_cast<std::uint32_t>(random().below(Arena::kPage));
    const std::uint64_t most = std::uint64_t{2} * Arena::kPage;
    work.length = before + static_cast<std::uint32_t>(random().between(1, most));
  }
  work.remote_address = peer_->process_.arena().address(Arena::kLost.offset - before);
  work.rkey = peer_->process_.brittle().mr->rkey;
}

/// The request names remote memory that it may not touch.
bool Side::wrong_remote(Misdeed misdeed, SendWork& work) {
  const auto kind = choose_wrong_kind(misdeed);
  if (!kind) return false;
  work.kind = *kind;
  const Range& zone = peer_->zone_->range();
  work.length = is_atomic(work.kind)
                    ? kAtomicSize
                    : static_cast<std::uint32_t>(random().between(1, std::min(zone.size, 9000U)));
  work.remote_address = peer_->zone_address_ + random().below(zone.size - work.length + 1);
  if (is_atomic(work.kind)) work.remote_address &= ~std::uint64_t{7};
  work.rkey = peer_->zone_mr_->rkey;
  const auto in = [&](const Process::Region& region) {
    work.length = std::min(work.length, region.range.size);
    work.remote_address = peer_->process_.arena().address(region.range.offset);
    work.rkey = region.mr->rkey;
  };
  ibv_wc_status expected = IBV_WC_REM_ACCESS_ERR;
  switch (misdeed) {
    case Misdeed::kUnknownKey: work.rkey ^= random().below(2) == 0 ? kUnknownKey : 1; break;
    case Misdeed::kStaleKey:
      if (peer_->stale_key_ == 0 || peer_->stale_key_ == work.rkey) return false;
      work.rkey = peer_->stale_key_;
      work.remote_address = peer_->stale_address_;
      work.length = std::min(work.length, 64U);
      break;
    case Misdeed::kBeyondEnd: {
      if (is_atomic(work.kind)) return false;
      const std::uint64_t by = random().below(2) == 0 ? 1 : random().between(1, work.length);
      leave_range(work, zone, peer_->zone_address_, by);
      break;
    }
    case Misdeed::kBeforeStart:
      work.remote_address =
          peer_->zone_address_ - (is_atomic(work.kind) ? 8 : random().between(1, 64));
      break;
    case Misdeed::kWrapping:
      if (is_atomic(work.kind)) return false;
      work.remote_address = ~std::uint64_t{0} - random().below(work.length);
      break;
    case Misdeed::kReadOnly: in(peer_->process_.read_only()); break;
    case Misdeed::kWriteOnly: in(peer_->process_.write_only()); break;
    case Misdeed::kOtherDomain: in(peer_->process_.other_domain()); break;
    case Misdeed::kRemoteLost: name_lost(work); break;
    case Misdeed::kForeignQueue:
      if (!name_foreign_queue(work)) return false;
      break;
    case Misdeed::kStrangeQueue:
      name_strange_queue(work);
      expected = IBV_WC_REM_INV_REQ_ERR;
      break;
    case Misdeed::kQueuePairForbids: expected = IBV_WC_REM_INV_REQ_ERR; break;
    case Misdeed::kMisaligned:
      work.remote_address += random().between(1, 7);
      expected = IBV_WC_REM_INV_REQ_ERR;
      break;
    default: return false;
  }
  post_wrong_remote(std::move(work), expected);
  return true;
}

/// The last bytes of the request lie behind a range, of the peer's zone, that begins at `address`.
void Side::leave_range(SendWork& work, const Range& range, std::uint64_t address,
                       std::uint64_t bytes) {
  work.remote_address = address + range.size - work.length + bytes;
  const auto within = static_cast<std::uint32_t>(work.length - bytes);
  work.target = {range.end() - within, within};
}

/// Posts it. Packets of a long WRITE that lie within its range arrive where each is one of its own.
void Side::post_wrong_remote(SendWork work, ibv_wc_status expected) {
  bool begins = false;
  if (work.kind == Kind::kWrite) {
    add_source(work);
    begins = work.target.size != 0 && work.length > mtu_ && world_.plan().network.segments &&
             !world_.plan().same_host;
    if (begins) {
      work.data = std::make_shared<const std::vector<std::byte>>(
          work.data->begin(), work.data->begin() + work.target.size);
      order_after_reads(work, work.data);
    }
  } else if (work.kind == Kind::kRead) {
    add_destination(work);
  } else {
    work.pieces = take_pieces(work.length, 1, work.buffers);
  }
  work.operand = random().next();
  post_doomed(std::move(work), expected, begins);
}

/// The request names local memory that it may not touch.
bool Side::wrong_local(Misdeed misdeed, SendWork& work) {
  const std::uint32_t access = peer_->terms_.access;
  if (misdeed == Misdeed::kAtomicLength) {
    if ((access & IBV_ACCESS_REMOTE_ATOMIC) == 0) return false;
    work.kind = Kind::kAdd;
    work.length = 4;
    work.remote_address = peer_->zone_address_;
    work.rkey = peer_->zone_mr_->rkey;
    work.pieces = take_pieces(work.length, 1, work.buffers);
    post_doomed(std::move(work), IBV_WC_LOC_LEN_ERR, false);
    return true;
  }
  constexpr std::array kSome = {Kind::kSend, Kind::kWrite, Kind::kRead};
  work.kind = kSome[random().below(kSome.size())];
  if (work.kind == Kind::kWrite && (access & IBV_ACCESS_REMOTE_WRITE) == 0) return false;
  if (work.kind == Kind::kRead && (access & IBV_ACCESS_REMOTE_READ) == 0) return false;
  if (work.kind == Kind::kSend && terms_.prompt && credit() <= 0) return false;
  const std::uint32_t most = std::min(peer_->terms_.receive_size, 900U);
  work.length = static_cast<std::uint32_t>(random().between(1, most));
  if (work.kind != Kind::kSend) {
    work.remote_address = peer_->zone_address_;
    work.rkey = peer_->zone_mr_->rkey;
  }
  if (misdeed == Misdeed::kLocalRange) {
    const Process::Region& region = process_.small();
    work.length = std::min(work.length, region.range.size);
    const auto by = static_cast<std::uint32_t>(random().below(2) == 0 ? 1 : random().between(1, 9));
    work.pieces.push_back({{region.range.end() - work.length + by, work.length}, region.mr->lkey});
    // Packets that lie within the region may have gone before the one that does not.
    const ConstBytes bytes = process_.arena().bytes(work.pieces.front().range);
    work.data = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
    work.target = {peer_->zone_->range().offset, work.length};
  } else if (misdeed == Misdeed::kLocalLost) {
    work.pieces.push_back(
        {{Arena::kLost.offset + static_cast<std::uint32_t>(random().below(512)), work.length},
         process_.brittle().mr->lkey});
  } else {
    work.pieces = take_pieces(work.length, 1, work.buffers);
    work.pieces.back().lkey ^= kUnknownKey;
  }
  post_doomed(std::move(work), IBV_WC_LOC_PROT_ERR, misdeed == Misdeed::kLocalRange);
  return true;
}

/// From now on nobody posts a receive at the peer, and our patience is finite.
bool Side::starve() {
  if (terms_.rnr_retry == 7 || !terms_.prompt || peer_->bad_receive_) return false;
  say("the peer posts no receives any more");
  peer_->starving_peer_ = starves_ = true;
  return true;
}

/// The receives that there were are used up: a message for which none comes.
bool Side::post_starved() {
  if (credit() > 0 || !can_misbehave()) return false;
  SendWork work;
  work.id = world_.next_id();
  work.misdeed = Misdeed::kNoReceive;
  work.posted = world_.now();
  work.length = static_cast<std::uint32_t>(random().below(3000));
  work.kind = Kind::kSend;
  add_source(work);
  post_doomed(std::move(work), IBV_WC_RNR_RETRY_EXC_ERR, false);
  return true;
}

/// The path to the peer is cut, for all connections between the two.
bool Side::go_silent() {
  if (terms_.timeout == 0 || &process_ == &peer_->process_ || !world_.plan().loses()) return false;
  if (world_.plan().silences == 0) return false;
  say("silence");
  world_.silence(process_.index(), peer_->process_.index());
  return true;
}

/// Posts what will fail, and more behind it that will be flushed.
void Side::post_doomed(SendWork work, ibv_wc_status expected, bool may_execute) {
  const bool named =
      work.misdeed == Misdeed::kStrangeQueue || work.misdeed == Misdeed::kFailedQueue;
  if (!named) name_queue(work);
  work.number = next_number_++;
  number(work);
  never_from_ = work.number;
  doomed_ = true;
  doomed_since_ = world_.now();
  doomed_data_ = may_execute ? work.data : nullptr;
  if (may_execute && work.kind == Kind::kWrite) {
    work.begins = true;
    ++never_from_;
    peer_->zone_->post(work.number, work.target.offset, work.data);
  }
  misdeed_ = work.misdeed;
  expected_error_ = expected;
  say("misdeed: {}", to_string(work.misdeed));
  sends_.push_back(work);
  post({work});
  // That a READ's memory is lost is found when its data move: what is behind it may have executed.
  const bool late = work.kind == Kind::kRead &&
                    (work.misdeed == Misdeed::kRemoteLost || work.misdeed == Misdeed::kLocalLost);
  const std::uint64_t more = late ? 0 : random().below(4);
  for (std::uint64_t i = 0; i < more && room(); ++i) post_dead();
}

void Side::post_dead() {
  SendWork work;
  work.id = world_.next_id();
  work.number = next_number_++;
  work.dead = true;
  work.signaled = random().below(2) == 0;
  work.posted = world_.now();
  constexpr std::array kSome = {Kind::kSend, Kind::kWrite, Kind::kRead};
  work.kind = kSome[random().below(kSome.size())];
  work.length = static_cast<std::uint32_t>(random().between(1, 700));
  if (work.kind == Kind::kRead) {
    work.pieces = take_pieces(work.length, terms_.send_sge, work.buffers);
  } else {
    add_source(work);
  }
  if (work.kind != Kind::kSend) {
    work.remote_address = peer_->zone_address_;
    work.rkey = peer_->zone_mr_->rkey;
  }
  name_queue(work);
  sends_.push_back(work);
  post({work});
}

}  // namespace verbena::sim
