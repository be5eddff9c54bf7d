// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/side.h"

// What a connection's end posts: everything is chosen by the seed.

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

Kind Side::choose_kind() {
  constexpr std::array kWeighted = {Kind::kSend,  Kind::kSend,    Kind::kSendImm, Kind::kWrite,
                                    Kind::kWrite, Kind::kWrite,   Kind::kWrite,   Kind::kRead,
                                    Kind::kRead,  Kind::kRead,    Kind::kSwap,    Kind::kAdd,
                                    Kind::kAdd,   Kind::kWriteImm};
  const std::uint32_t access = peer_->terms_.access;
  if (!peer_->zone_) return Kind::kSend;  // the peer has vanished, and we do not know it yet
  if (const auto kind = choose_window_kind()) return *kind;
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
  work.solicited = !row_ && random().below(3) == 0;
  work.fence = !row_ && random().below(8) == 0;
  work.immediate = static_cast<std::uint32_t>(random().next());
  work.posted = world_.now();
  name_queue(work);
  unsignaled_ = work.signaled || terms_.signal_all ? 0 : unsignaled_ + 1;
  switch (kind) {
    case Kind::kSend:
    case Kind::kSendImm: make_message(work, longest_message(work)); break;
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
    case Kind::kSendInv: make_send_invalidate(work); break;
    case Kind::kBind: make_bind(work); break;
    case Kind::kLocalInv: make_local_invalidate(work); break;
  }
  number(work);
  return work;
}

/// Gives the request its PSNs.
void Side::number(SendWork& work) {
  work.first_psn = next_psn_;
  const std::uint32_t count = is_local(work.kind) ? 0
                              : is_atomic(work.kind)
                                  ? 1
                                  : std::max((work.length + mtu_ - 1) / mtu_, 1u);
  next_psn_ = (next_psn_ + count) & kPsnMask;
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
  if (!row_ && reuse_read(work, longest)) return;
  work.length = row_ ? std::min(row_->length, longest) : choose_length(longest);
  add_source(work);
}

Range Side::choose_target(std::uint32_t length, const Range& within) {
  if (!sends_.empty() && random().below(3) == 0) {
    // Where something is under way already.
    const Range& other = sends_[random().below(sends_.size())].target;
    const bool inside = other.offset >= within.offset && other.offset + length <= within.end();
    if (other.size != 0 && inside) return {other.offset, length};
  }
  const auto offset = static_cast<std::uint32_t>(random().below(within.size - length + 1));
  return {within.offset + offset, length};
}

/// What is posted now may be a row, if it is of a kind that makes one.
void Side::begin_row() {
  const Kind kind = choose_kind();
  if (kind != Kind::kSend && kind != Kind::kWrite) return;
  const std::uint32_t length = choose_length(mtu_);
  const auto gap = static_cast<std::uint32_t>(random().below(2) == 0 ? 0 : random().below(64));
  row_ = {.kind = kind, .length = length, .step = length + gap};
}

Range Side::next_in_row(std::uint32_t length, const Range& within) {
  const bool inside =
      row_->next && *row_->next >= within.offset && *row_->next + length <= within.end();
  const Range target = inside ? Range{*row_->next, length} : choose_target(length, within);
  row_->next = target.offset + row_->step;
  return target;
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
    read.alternatives.push_back({work.target.offset, stored});
  }
}

void Side::make_write(SendWork& work) {
  const Opening opening = choose_opening(work.kind);
  const std::uint32_t longest = std::min(kLongest, opening.range.size);
  if (row_ || !reuse_read(work, longest)) {
    work.length = row_ ? std::min(row_->length, longest) : choose_length(longest);
    add_source(work);
  }
  work.target =
      row_ ? next_in_row(work.length, opening.range) : choose_target(work.length, opening.range);
  aim(work, opening);
  if (work.length == 0) name_nothing(work);
  order_after_reads(work, work.data);
  peer_->zone_->post(work.number, work.target.offset, work.data);
}

void Side::make_read(SendWork& work) {
  const Opening opening = choose_opening(work.kind);
  work.length = choose_length(std::min(kLongest, opening.range.size));
  work.target = choose_target(work.length, opening.range);
  aim(work, opening);
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
  const Opening opening = choose_opening(work.kind);
  work.length = kAtomicSize;
  const auto words = static_cast<std::uint32_t>(opening.range.size / kAtomicSize);
  // Few words, so that requests meet; what they are in begins at a multiple of 8.
  const auto word = static_cast<std::uint32_t>(random().below(std::min(words, 16u)));
  work.target = {opening.range.offset + word * kAtomicSize, kAtomicSize};
  aim(work, opening);
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

}  // namespace verbena::sim
