// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/side.h"

// What a connection's end posts: everything is chosen by the seed, and what must come of it is
// known when it is posted.

namespace verbena::sim {
namespace {

constexpr std::uint32_t kPsnMask = 0xFFFFFF;
constexpr std::uint32_t kLongest = 64 << 10;
constexpr std::uint32_t kAtomicSize = 8;

std::uint64_t load_word(ConstBytes bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

Data to_data(std::vector<std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Data word_data(std::uint64_t word) {
  std::vector<std::byte> bytes(sizeof word);
  std::memcpy(bytes.data(), &word, sizeof word);
  return to_data(std::move(bytes));
}

}  // namespace

bool Side::traffic() {
  bool active = false;
  if (draining_send_queue_) drain_send_queue();
  active = post_receives() || active;
  if (connection_.closing || world_.winding_up()) {
    if (may_close() && peer_->state_ == State::kReady) {
      say("closes");
      connection_.broken = true;
      return true;
    }
    return flush_unsignalled() || active;
  }
  if (epoch_operations_ > epoch_limit_) {
    connection_.closing = true;
    return true;
  }
  if (doomed_ || failed_) return active;
  // Without a time-out, what arrives before the peer is in RTR is lost for ever.
  if (terms_.timeout == 0 && peer_->state_ == State::kInit) return active;
  // A fast burst now and then, else some at a time.
  const std::uint64_t bursts = random().below(4) == 0 ? 6 : 1;
  for (std::uint64_t i = 0; i < bursts && !doomed_; ++i) {
    if (random().below(3) == 0) continue;
    active = post_sends() || active;
  }
  return active;
}

/// Unsignalled requests at the end are known to have completed only by one behind them.
bool Side::flush_unsignalled() {
  if (sends_.empty() || failed_ || doomed_ || draining_send_queue_ || !room()) return false;
  if (sends_.back().signaled || terms_.signal_all || !peer_->zone_) return false;
  const bool writes = (peer_->terms_.access & IBV_ACCESS_REMOTE_WRITE) != 0;
  SendWork work = make_work(writes ? Kind::kWrite : Kind::kRead);
  work.signaled = true;
  unsignaled_ = 0;
  sends_.push_back(work);
  post({work});
  return true;
}

// Receives.

bool Side::post_receives() {
  if (starving_peer_ || failed_ || receive_failed_) return false;
  if (receives_.size() >= terms_.receive_depth) return false;
  if (terms_.lazy && receives_.empty()) {
    // Late, by several RNR timers, so that senders have to ask again and again.
    if (receives_at_ == Time{}) {
      receives_at_ = world_.now() + Duration(static_cast<Duration::rep>(random().below(4'000'000)));
    }
    if (world_.now() < receives_at_) return false;
  }
  receives_at_ = {};
  const std::uint64_t room = terms_.receive_depth - receives_.size();
  const std::uint64_t count = random().between(1, room);
  for (std::uint64_t i = 0; i < count; ++i) post_receive();
  return true;
}

void Side::post_receive() {
  ReceiveWork work;
  work.id = world_.next_id() + 1;
  work.order = work.id;
  work.length = terms_.receive_size + static_cast<std::uint32_t>(random().below(32));
  const auto range = process_.arena().take(work.length, 1, random());
  if (!range) fail("the arena is full");
  work.buffer = std::make_shared<Buffer>(process_.arena(), *range);
  process_.arena().unsettle(*range);
  std::uint32_t left = work.length;
  std::uint32_t at = range->offset;
  const std::uint64_t pieces = random().between(1, terms_.receive_sge);
  for (std::uint64_t i = 0; i < pieces && left > 0; ++i) {
    const auto size =
        i + 1 == pieces ? left : static_cast<std::uint32_t>(random().between(1, left));
    work.pieces.push_back({{at, size}, process_.lkey()});
    at += size;
    left -= size;
  }
  if (!bad_receive_ && !peer_->terms_.prompt &&
      random().chance_ppm(world_.plan().misdeed_ppm / 8)) {
    bad_receive_ = work.bad_key = true;
    Piece& first = work.pieces.front();
    if (random().below(2) == 0) {
      first.lkey ^= 0x00515151;
    } else {
      first = {{Arena::kLost.offset, first.range.size}, process_.brittle().mr->lkey};
    }
  }
  std::vector<ibv_sge> sges;
  sges.reserve(work.pieces.size());
  for (const Piece& piece : work.pieces) {
    sges.push_back({process_.arena().address(piece.range.offset), piece.range.size, piece.lkey});
  }
  ibv_recv_wr wr{};
  wr.wr_id = work.id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  if (const int status = ibv_post_recv(qp_, &wr, &bad); status != 0) {
    fail(fmt::format("ibv_post_recv: {}, with {} posted", std::strerror(status), receives_.size()));
  }
  ++world_.counters().receives;
  world_.trace().mix_all(work.id, work.length);
  say("receive {}: {} bytes{}", work.id, work.length, work.bad_key ? ", wrong key" : "");
  receives_.push_back(std::move(work));
}

std::int64_t Side::credit() const {
  return static_cast<std::int64_t>(peer_->receives_.size()) -
         static_cast<std::int64_t>(peer_->inbound_.size());
}

// Sends.

bool Side::post_sends() {
  if (maybe_misdeed()) return true;
  if (!draining_send_queue_ && random().chance_ppm(4'000) && peer_->state_ == State::kReady) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    process_.forget_events(qp_number_);
    if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0) {
      draining_send_queue_ = true;
      begun_before_ = next_number_;
      say("to SQD before {}", begun_before_);
    }
  }
  std::vector<SendWork> works;
  std::int64_t messages = 0;
  const std::uint64_t count = random().between(1, 4);
  while (works.size() < count && room()) {
    // Who starves uses up the last receives soon.
    const Kind kind = starves_ && random().below(2) == 0 ? Kind::kSend : choose_kind();
    if (is_message(kind) && terms_.prompt && credit() <= messages) break;
    messages += is_message(kind) ? 1 : 0;
    works.push_back(make_work(kind));
    sends_.push_back(works.back());  // the next one's model needs it
  }
  if (works.empty()) return false;
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i] = sends_[sends_.size() - works.size() + i];
  }
  post(std::move(works));
  return true;
}

/// Ends SQD when the queue pair says that it has drained.
void Side::drain_send_queue() {
  if (failed_ || connection_.broken || doomed_) return;
  if (!process_.had_event(qp_number_, IBV_EVENT_SQ_DRAINED)) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  draining_send_queue_ = false;
  say("from SQD to RTS");
  static_cast<void>(ibv_modify_qp(qp_, &attr, IBV_QP_STATE));  // it may be in ERR meanwhile
}

Kind Side::choose_kind() {
  constexpr std::array kWeighted = {Kind::kSend,  Kind::kSend,    Kind::kSendImm, Kind::kWrite,
                                    Kind::kWrite, Kind::kWrite,   Kind::kWrite,   Kind::kRead,
                                    Kind::kRead,  Kind::kRead,    Kind::kSwap,    Kind::kAdd,
                                    Kind::kAdd,   Kind::kWriteImm};
  const std::uint32_t access = peer_->terms_.access;
  if (!peer_->zone_) return Kind::kSend;  // the peer has vanished, and we do not know it yet
  for (int tries = 0; tries < 20; ++tries) {
    const Kind kind = kWeighted[random().below(kWeighted.size())];
    if (is_write(kind) && (access & IBV_ACCESS_REMOTE_WRITE) == 0) continue;
    if (kind == Kind::kRead && (access & IBV_ACCESS_REMOTE_READ) == 0) continue;
    if (is_atomic(kind) && (access & IBV_ACCESS_REMOTE_ATOMIC) == 0) continue;
    return kind;
  }
  return Kind::kSend;
}

std::uint32_t Side::choose_length(std::uint32_t longest) {
  std::uint64_t length = 0;
  switch (random().below(8)) {
    case 0: length = random().below(3); break;
    case 1:
    case 2: length = random().below(257); break;
    case 3: length = random().below(mtu_ + 1); break;
    case 4:
    case 5: {  // around a multiple of the MTU
      const std::uint64_t most = std::min<std::uint64_t>(longest / mtu_ + 1, 9);
      const std::uint64_t whole = mtu_ * random().between(1, most);
      length = whole + random().below(3) - 1;
      break;
    }
    case 6: length = random().below(8 << 10); break;
    default: length = random().below(6) == 0 ? random().below(longest + 1) : random().below(4096);
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(length, longest));
}

SendWork Side::make_work(Kind kind) {
  SendWork work;
  work.id = world_.next_id();
  work.number = next_number_++;
  work.kind = kind;
  work.signaled = unsignaled_ + 1 >= std::max(terms_.send_depth / 2, 1u) ||
                  !random().chance_ppm(terms_.unsignaled_ppm);
  work.solicited = random().below(3) == 0;
  work.fence = random().below(8) == 0;
  work.immediate = static_cast<std::uint32_t>(random().next());
  work.posted = world_.now();
  unsignaled_ = work.signaled || terms_.signal_all ? 0 : unsignaled_ + 1;
  switch (kind) {
    case Kind::kSend:
    case Kind::kSendImm: make_message(work, peer_->terms_.receive_size); break;
    case Kind::kWrite:
    case Kind::kWriteImm: make_write(work); break;
    case Kind::kRead: make_read(work); break;
    case Kind::kSwap:
    case Kind::kAdd:
      if (random().below(4) == 0) {
        make_shared_atomic(work);
      } else {
        make_atomic(work);
      }
      break;
  }
  work.first_psn = next_psn_;
  work.psn_count = is_atomic(kind) ? 1 : std::max((work.length + mtu_ - 1) / mtu_, 1u);
  next_psn_ = (next_psn_ + work.psn_count) & kPsnMask;
  return work;
}

std::vector<Piece> Side::take_pieces(std::uint32_t length, std::uint32_t most,
                                     std::vector<BufferPtr>& buffers) {
  std::vector<Piece> pieces;
  const std::uint64_t count = length == 0 ? 0 : random().between(1, most);
  std::uint32_t left = length;
  for (std::uint64_t i = 0; i < count && left > 0; ++i) {
    const auto size = i + 1 == count ? left : static_cast<std::uint32_t>(random().between(1, left));
    const auto range = process_.arena().take(size, length == kAtomicSize ? 8 : 1, random());
    if (!range) fail("the arena is full");
    buffers.push_back(std::make_shared<Buffer>(process_.arena(), *range));
    pieces.push_back({*range, process_.lkey()});
    left -= size;
  }
  return pieces;
}

/// Gives the request a payload in buffers of its own.
void Side::add_source(SendWork& work) {
  work.inline_data = work.length <= terms_.inline_size && random().below(2) == 0;
  work.pieces = take_pieces(work.length, terms_.send_sge, work.buffers);
  std::vector<std::byte> data;
  for (const Piece& piece : work.pieces) {
    std::vector<std::byte> bytes(piece.range.size);
    fill_pattern(bytes, random());
    process_.arena().write(piece.range.offset, bytes);
    data.insert(data.end(), bytes.begin(), bytes.end());
  }
  work.data = to_data(std::move(data));
}

void Side::add_destination(SendWork& work) {
  work.pieces = take_pieces(work.length, is_atomic(work.kind) ? 1 : terms_.send_sge, work.buffers);
  for (const Piece& piece : work.pieces) process_.arena().unsettle(piece.range);
}

/// Sends on what an earlier READ, still under way, brings: what fences are for.
bool Side::reuse_read(SendWork& work, std::uint32_t longest) {
  if (random().below(3) != 0) return false;
  for (auto read = sends_.rbegin(); read != sends_.rend(); ++read) {
    if (read->kind != Kind::kRead || read->dead || read->length == 0 || read->length > longest ||
        !read->alternatives.empty()) {
      continue;
    }
    read->pinned = true;
    work.fence = true;
    work.length = read->length;
    work.pieces = read->pieces;
    work.buffers = read->buffers;
    work.data = read->data;
    return true;
  }
  return false;
}

void Side::make_message(SendWork& work, std::uint32_t longest) {
  if (reuse_read(work, longest)) return;
  work.length = choose_length(longest);
  add_source(work);
}

Range Side::choose_target(std::uint32_t length) {
  const Range& zone = peer_->zone_->range();
  if (!sends_.empty() && random().below(3) == 0) {
    // Where something is under way already.
    const Range& other = sends_[random().below(sends_.size())].target;
    if (other.size != 0 && other.offset + length <= zone.end()) return {other.offset, length};
  }
  return {zone.offset + static_cast<std::uint32_t>(random().below(zone.size - length + 1)), length};
}

/// A READ sees what was there when it executed, if later requests wait for it; else perhaps theirs.
void Side::order_after_reads(SendWork& work, const Data& stored) {
  for (SendWork& read : sends_) {
    if (read.kind != Kind::kRead || read.dead || !read.target.overlaps(work.target)) continue;
    if (read.pinned || random().below(2) == 0) work.fence = true;
  }
  if (work.fence) return;
  for (SendWork& read : sends_) {
    if (read.kind != Kind::kRead || read.dead || !read.target.overlaps(work.target)) continue;
    const std::uint32_t first = std::max(read.target.offset, work.target.offset);
    const std::uint32_t end = std::min(read.target.end(), work.target.end());
    const auto from = stored->begin() + (first - work.target.offset);
    read.alternatives.emplace_back(first - read.target.offset,
                                   to_data(std::vector<std::byte>(from, from + (end - first))));
  }
}

void Side::make_write(SendWork& work) {
  const std::uint32_t longest = std::min(kLongest, peer_->zone_->range().size);
  if (!reuse_read(work, longest)) {
    work.length = choose_length(longest);
    add_source(work);
  }
  work.target = choose_target(work.length);
  work.remote_address = peer_->zone_address_ + (work.target.offset - peer_->zone_->range().offset);
  work.rkey = peer_->zone_mr_->rkey;
  if (work.length == 0) name_nothing(work);
  order_after_reads(work, work.data);
  peer_->zone_->post(work.number, work.target.offset, work.data);
}

void Side::make_read(SendWork& work) {
  work.length = choose_length(std::min(kLongest, peer_->zone_->range().size));
  work.target = choose_target(work.length);
  work.remote_address = peer_->zone_address_ + (work.target.offset - peer_->zone_->range().offset);
  work.rkey = peer_->zone_mr_->rkey;
  if (work.length == 0) name_nothing(work);
  work.data = to_data(peer_->zone_->after_all(work.target));
  add_destination(work);
}

/// Without bytes a request may name any key and address (C9-88).
void Side::name_nothing(SendWork& work) {
  if (random().below(2) == 0) return;
  work.remote_address = random().next();
  work.rkey = static_cast<std::uint32_t>(random().next());
}

void Side::make_atomic(SendWork& work) {
  const Range& zone = peer_->zone_->range();
  work.length = kAtomicSize;
  const auto words = static_cast<std::uint32_t>(zone.size / kAtomicSize);
  // Few words, so that requests meet; the zone begins at a multiple of 8.
  const auto word = static_cast<std::uint32_t>(random().below(std::min(words, 16u)));
  const std::uint32_t inside = word * kAtomicSize;
  work.target = {zone.offset + inside, kAtomicSize};
  work.remote_address = peer_->zone_address_ + inside;
  work.rkey = peer_->zone_mr_->rkey;
  const std::vector<std::byte> before = peer_->zone_->after_all(work.target);
  const std::uint64_t original = load_word(before);
  work.operand = random().next();
  work.compare = random().below(3) == 0 ? random().next() : original;
  const std::uint64_t stored = work.kind == Kind::kAdd    ? original + work.operand
                               : work.compare == original ? work.operand
                                                          : original;
  work.data = to_data(before);
  const Data after = word_data(stored);
  order_after_reads(work, after);
  peer_->zone_->post(work.number, work.target.offset, after);
  add_destination(work);
}

void Side::make_shared_atomic(SendWork& work) {
  auto& words = peer_->process_.words();
  work.word = static_cast<int>(random().below(words.size()));
  Word& word = words[static_cast<std::size_t>(work.word)];
  work.length = kAtomicSize;
  work.remote_address = peer_->process_.arena().address(word.offset);
  work.rkey = peer_->process_.words_region().mr->rkey;
  work.operand = random().next();
  work.compare = word.initial;
  for (const Word::Change& change : word.changes) {  // a guess that is often right
    if (change.known == Word::Change::Known::kYes) {
      work.compare = change.kind == Kind::kAdd ? change.original + change.operand : change.operand;
    }
  }
  word.changes.push_back(
      {.id = work.id, .kind = work.kind, .operand = work.operand, .compare = work.compare});
  add_destination(work);
}

/// What the peer is to get of it.
void Side::commit(SendWork& work) {
  if (!is_message(work.kind)) return;
  peer_->inbound_.push_back({.number = work.number,
                             .kind = work.kind,
                             .data = work.kind == Kind::kWriteImm ? nullptr : work.data,
                             .length = work.length,
                             .immediate = work.immediate,
                             .solicited = work.solicited});
}

/// Posts a list of requests in one call. They are in `sends_` already.
void Side::post(std::vector<SendWork> works) {
  std::vector<std::vector<ibv_sge>> sges(works.size());
  std::vector<ibv_send_wr> wrs(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    SendWork& work = works[i];
    for (const Piece& piece : work.pieces) {
      sges[i].push_back(
          {process_.arena().address(piece.range.offset), piece.range.size, piece.lkey});
    }
    ibv_send_wr& wr = wrs[i];
    wr = {};
    wr.wr_id = work.id;
    wr.next = i + 1 < works.size() ? &wrs[i + 1] : nullptr;
    wr.sg_list = sges[i].data();
    wr.num_sge = static_cast<int>(sges[i].size());
    constexpr std::array kOpcodes = {IBV_WR_SEND,
                                     IBV_WR_SEND_WITH_IMM,
                                     IBV_WR_RDMA_WRITE,
                                     IBV_WR_RDMA_WRITE_WITH_IMM,
                                     IBV_WR_RDMA_READ,
                                     IBV_WR_ATOMIC_CMP_AND_SWP,
                                     IBV_WR_ATOMIC_FETCH_AND_ADD};
    wr.opcode = kOpcodes[static_cast<std::size_t>(work.kind)];
    wr.send_flags =
        flag_if(work.signaled, IBV_SEND_SIGNALED) | flag_if(work.solicited, IBV_SEND_SOLICITED) |
        flag_if(work.fence, IBV_SEND_FENCE) | flag_if(work.inline_data, IBV_SEND_INLINE);
    wr.imm_data = htonl(work.immediate);
    if (is_atomic(work.kind)) {
      wr.wr.atomic = {.remote_addr = work.remote_address,
                      .compare_add = work.kind == Kind::kAdd ? work.operand : work.compare,
                      .swap = work.operand,
                      .rkey = work.rkey};
    } else {
      wr.wr.rdma = {.remote_addr = work.remote_address, .rkey = work.rkey};
    }
    if (!work.dead && work.misdeed == Misdeed::kNone) commit(work);
    world_.trace().mix_all(work.id, work.kind, work.length, wr.send_flags);
    say("send {} #{}: {} {} bytes psn {}{}{}{}{}{}", work.id, work.number, to_string(work.kind),
        work.length, work.first_psn, work.fence ? " fence" : "", work.inline_data ? " inline" : "",
        work.signaled ? "" : " unsignalled", work.solicited ? " solicited" : "",
        work.misdeed != Misdeed::kNone ? " WRONG" : (work.dead ? " dead" : ""));
  }
  ibv_send_wr* bad = nullptr;
  if (const int status = ibv_post_send(qp_, wrs.data(), &bad); status != 0) {
    fail(fmt::format("ibv_post_send: {} at request {} of {}", std::strerror(status),
                     bad - wrs.data(), works.size()));
  }
  for (const SendWork& work : works) {
    // Inline data may be used again at once.
    if (work.inline_data) {
      for (const Piece& piece : work.pieces) {
        std::vector<std::byte> other(piece.range.size);
        fill_pattern(other, random());
        process_.arena().write(piece.range.offset, other);
      }
    }
    ++epoch_operations_;
    ++world_.counters().operations;
    world_.posted();
  }
}

}  // namespace verbena::sim
