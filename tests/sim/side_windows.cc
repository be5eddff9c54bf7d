// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/side.h"

// Memory windows over parts of a side's zone: bound and invalidated in the order of its send queue,
// invalidated by the peer's messages, used by the peer's requests.

namespace verbena::sim {
namespace {

constexpr std::uint32_t kWordSize = 8;
constexpr std::uint32_t kLongestWindow = 8 << 10;
constexpr std::uint32_t kLowByte = 0xFF;
constexpr std::array kRemoteRights = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
                                      IBV_ACCESS_REMOTE_ATOMIC};

}  // namespace

// Life.

void Side::make_windows() {
  // An XRC target binds none, and one of type 2 is for the queue pair that bound it.
  if (!world_.plan().windows || terms_.extended) return;
  constexpr std::array kTypes = {IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_MW_TYPE_2};
  for (const ibv_mw_type type : kTypes) {
    windows_.emplace_back();
    allocate(windows_.back(), type);
  }
}

void Side::allocate(Window& window, ibv_mw_type type) {
  window.mw = ibv_alloc_mw(process_.pd(), type);
  if (window.mw == nullptr) fail("ibv_alloc_mw: " + std::string(std::strerror(errno)));
}

/// A region is not let go before its windows.
void Side::drop_windows() {
  const bool bound = std::ranges::any_of(
      windows_, [](const Window& window) { return window.state == Window::State::kBound; });
  if (bound && ibv_dereg_mr(zone_mr_) != EBUSY) fail("a region went although it has windows");
  for (const Window& window : windows_) {
    if (ibv_dealloc_mw(window.mw) != 0) fail("ibv_dealloc_mw failed");
  }
  windows_.clear();
}

/// Now and then a window goes, bound or not, and a new one takes its place.
void Side::tend_windows() {
  if (windows_.empty() || random().below(64) != 0) return;
  Window& window = windows_[random().below(windows_.size())];
  if (window.state == Window::State::kChanging || window.users != 0) return;
  if (random().below(2) == 0) return try_wrong_bindings(window);
  if (window.state == Window::State::kBound) retire(window);
  const ibv_mw_type type = window.mw->type;
  if (ibv_dealloc_mw(window.mw) != 0) fail("ibv_dealloc_mw failed");
  allocate(window, type);
}

/// What is refused when it is posted.
void Side::try_wrong_bindings(const Window& window) {
  Binding binding = choose_binding(window);
  ibv_mw_bind_info info = info_of(binding);
  info.mw_access_flags |= IBV_ACCESS_MW_BIND;
  if (post_binding(window, binding.key, info, 0, 0) != EINVAL) fail("a window that binds");
  info = info_of(binding);
  info.mr = process_.other_domain().mr;
  const bool first = window.mw->type == IBV_MW_TYPE_1;
  if (post_binding(window, binding.key, info, 0, 0) != (first ? EPERM : EINVAL)) {
    fail("another domain's region");
  }
  if (first) return;
  if (post_binding(window, binding.key ^ 0x100, info_of(binding), 0, 0) != EINVAL) {
    fail("a window was bound under another's key");
  }
}

/// Its key opens nothing any more.
void Side::retire(Window& window) {
  window.state = Window::State::kFree;
  if (window.key == 0) return;
  window.stale_key = std::exchange(window.key, 0);
  window.stale_address = window.address;
}

/// Of ours, that a request is about.
Window& Side::window_of(const SendWork& work) { return windows_[work.window.value_or(0)]; }

// Requests of its owner.

/// A window that a request of this kind can be about: of ours, or for SEND_INV of the peer.
std::optional<std::size_t> Side::find_window(Kind kind) {
  const std::vector<Window>& windows = kind == Kind::kSendInv ? peer_->windows_ : windows_;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const Window& window = windows[i];
    const bool second = window.mw->type == IBV_MW_TYPE_2;
    const bool free = window.state == Window::State::kFree;
    const bool bound = window.state == Window::State::kBound;
    const bool fits = kind == Kind::kBind       ? free || (bound && !second && window.users == 0)
                      : kind == Kind::kLocalInv ? bound && second && window.users == 0
                                                : bound && second;
    if (fits) found.push_back(i);
  }
  if (found.empty()) return std::nullopt;
  return found[random().below(found.size())];
}

std::optional<Kind> Side::choose_window_kind() {
  if (!world_.plan().windows || random().below(6) != 0) return std::nullopt;
  constexpr std::array kSome = {Kind::kBind, Kind::kBind, Kind::kBind, Kind::kLocalInv,
                                Kind::kSendInv};
  const Kind kind = kSome[random().below(kSome.size())];
  if (kind == Kind::kBind && peer_->doomed_) return std::nullopt;  // perhaps by a key to be
  return find_window(kind) ? std::optional(kind) : std::nullopt;
}

Binding Side::choose_binding(const Window& window) {
  const Range& zone = zone_->range();
  const auto longest = std::min(zone.size, kLongestWindow);
  Binding binding;
  std::uint32_t size = static_cast<std::uint32_t>(random().between(1, longest));
  std::uint32_t offset = static_cast<std::uint32_t>(random().below(zone.size - size + 1));
  if (random().below(2) == 0) offset &= ~(kWordSize - 1);  // for atomics
  if (random().below(8) == 0) std::tie(offset, size) = std::pair(0U, zone.size);
  binding.range = {zone.offset + offset, size};
  binding.mr = zone_mr_;
  binding.region_address = zone_address_ + offset;
  for (const auto right : kRemoteRights) {
    if (random().below(4) != 0) binding.access |= static_cast<unsigned>(right);
  }
  binding.zero_based = random().below(2) == 0;
  // Any low byte will do, but for those whose use would be no mistake.
  do {
    binding.key = (window.mw->rkey & ~kLowByte) | static_cast<std::uint32_t>(random().below(256));
  } while (binding.key == window.key || binding.key == window.stale_key);
  return binding;
}

ibv_mw_bind_info Side::info_of(const Binding& binding) {
  return {.mr = binding.mr,
          .addr = binding.region_address,
          .length = binding.range.size,
          .mw_access_flags = binding.access | flag_if(binding.zero_based, IBV_ACCESS_ZERO_BASED)};
}

/// By the verb for its type; the status of posting.
int Side::post_binding(const Window& window, std::uint32_t key, const ibv_mw_bind_info& info,
                       std::uint64_t id, unsigned flags) {
  if (window.mw->type == IBV_MW_TYPE_1) {
    ibv_mw_bind to{.wr_id = id, .send_flags = flags, .bind_info = info};
    return ibv_bind_mw(qp_, window.mw, &to);
  }
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = flags;
  wr.bind_mw = {.mw = window.mw, .rkey = key, .bind_info = info};
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, &wr, &bad);
}

void Side::make_bind(SendWork& work) {
  work.window = find_window(Kind::kBind);
  Window& window = window_of(work);
  work.binding = choose_binding(window);
  if (window.state == Window::State::kBound && random().below(4) == 0) {
    work.binding.mr = nullptr;  // opens nothing any more
    work.binding.region_address = 0;
    work.binding.range.size = 0;
  }
  window.state = Window::State::kChanging;
}

void Side::make_local_invalidate(SendWork& work) {
  work.window = find_window(Kind::kLocalInv);
  Window& window = window_of(work);
  work.rkey = window.key;
  window.state = Window::State::kChanging;
}

/// A message behind which the peer's window opens nothing. READs through it must be answered
/// before, since they may have to be asked again.
void Side::make_send_invalidate(SendWork& work) {
  work.window = find_window(Kind::kSendInv);
  Window& window = peer_->window_of(work);
  work.rkey = window.key;
  work.fence = work.fence || window.users != 0;
  window.state = Window::State::kChanging;
  make_message(work, peer_->terms_.receive_size);
}

void Side::bind(SendWork& work) {
  const Window& window = window_of(work);
  const unsigned flags =
      flag_if(work.signaled, IBV_SEND_SIGNALED) | flag_if(work.fence, IBV_SEND_FENCE);
  const int status = post_binding(window, work.binding.key, info_of(work.binding), work.id, flags);
  if (status != 0) fail(fmt::format("binding a window: {}", std::strerror(status)));
  // Type 1: the key is chosen for us.
  if (window.mw->type == IBV_MW_TYPE_1) work.binding.key = window.mw->rkey;
  world_.trace().mix_all(work.id, work.binding.key, work.binding.range.size);
  say("send {} #{}: {} {:#x} to +{:#x} {} bytes access {:#x}{}{}", work.id, work.number,
      to_string(work.kind), work.binding.key, work.binding.range.offset, work.binding.range.size,
      work.binding.access, work.binding.zero_based ? " zero-based" : "",
      work.misdeed != Misdeed::kNone ? " WRONG" : "");
  const auto posted = std::ranges::find(sends_, work.id, &SendWork::id);
  posted->binding.key = work.binding.key;
}

/// A request about a window of ours, or through one of the peer's, has succeeded.
void Side::settle_window(const SendWork& work) {
  if (work.kind == Kind::kBind) {
    Window& window = window_of(work);
    const Binding& binding = work.binding;
    retire(window);
    ++world_.counters().windows_bound;
    if (binding.range.size == 0) return;
    window.state = Window::State::kBound;
    window.range = binding.range;
    window.address = binding.zero_based ? 0 : binding.region_address;
    window.access = binding.access;
    window.key = binding.key;
  } else if (work.kind == Kind::kLocalInv) {
    retire(window_of(work));
    ++world_.counters().windows_invalidated;
  } else if (work.window && work.kind != Kind::kSendInv) {
    ++world_.counters().windowed;
  }
}

/// The request does not use the peer's window any more; the peer may have vanished.
void Side::leave_window(const SendWork& work) {
  const bool through = is_write(work.kind) || work.kind == Kind::kRead || is_atomic(work.kind);
  if (!through || !work.window || work.misdeed != Misdeed::kNone) return;
  if (!peer_->windows_.empty()) --peer_->window_of(work).users;
}

/// A message came that invalidates a window of ours.
void Side::check_invalidated(const Message& message, const ibv_wc& completion) {
  const bool invalidates = message.kind == Kind::kSendInv;
  if (((completion.wc_flags & IBV_WC_WITH_INV) != 0) != invalidates) {
    fail(fmt::format("message {}: wrong flags {:#x}", message.number, completion.wc_flags));
  }
  if (!invalidates) return;
  if (completion.invalidated_rkey != message.immediate) {
    fail(fmt::format("message {}: key {:#x} was invalidated, must be {:#x}", message.number,
                     completion.invalidated_rkey, message.immediate));
  }
  retire(windows_[message.window]);
  ++world_.counters().windows_invalidated_remotely;
}

// Requests of its peer.

Side::Opening Side::whole_zone() const {
  return {.range = peer_->zone_->range(),
          .address = peer_->zone_address_,
          .rkey = peer_->zone_mr_->rkey};
}

/// Through what a request reaches the peer's memory.
Side::Opening Side::choose_opening(Kind kind) {
  if (peer_->windows_.empty() || random().below(3) == 0) return whole_zone();
  const std::size_t count = peer_->windows_.size();
  const std::size_t first = random().below(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = (first + i) % count;
    const Window& window = peer_->windows_[index];
    const bool open =
        window.state == Window::State::kBound && (window.access & right_of(kind)) != 0;
    const bool words = window.range.offset % kWordSize == 0 && window.range.size >= kWordSize;
    if (!open || (is_atomic(kind) && !words)) continue;
    return {.range = window.range, .address = window.address, .rkey = window.key, .window = index};
  }
  return whole_zone();
}

void Side::aim(SendWork& work, const Opening& opening) {
  work.remote_address = opening.address + (work.target.offset - opening.range.offset);
  work.rkey = opening.rkey;
  work.window = opening.window;
  if (work.window) ++peer_->window_of(work).users;
}

// Misdeeds.

/// The window of the peer's process that a misdeed is to be done to.
std::optional<Window> Side::find_victim(Misdeed misdeed, Kind kind) {
  std::vector<Window> found;
  const auto look = [&](const Side& owner, auto&& fits) {
    for (const Window& window : owner.windows_) {
      if (fits(window)) found.push_back(window);
    }
  };
  const auto bound = [](const Window& window) { return window.state == Window::State::kBound; };
  const unsigned right = right_of(kind);
  switch (misdeed) {
    case Misdeed::kStaleWindow:
      look(*peer_, [](const Window& window) { return window.stale_key != 0; });
      break;
    case Misdeed::kBeyondWindow:
      look(*peer_,
           [&](const Window& window) { return bound(window) && (window.access & right) != 0; });
      break;
    case Misdeed::kWindowForbids:
      look(*peer_,
           [&](const Window& window) { return bound(window) && (window.access & right) == 0; });
      break;
    case Misdeed::kOthersWindow:
      for (const Side* other : peer_->process_.sides()) {
        if (other == peer_ || other->state_ != State::kReady) continue;
        look(*other, [&](const Window& window) {
          return bound(window) && window.mw->type == IBV_MW_TYPE_2;
        });
      }
      break;
    default: break;
  }
  if (found.empty()) return std::nullopt;
  return found[random().below(found.size())];
}

/// The request names a window of the peer's process that does not let it in.
bool Side::wrong_window(Misdeed misdeed, SendWork& work) {
  const auto kind = choose_wrong_kind(misdeed);
  if (!kind) return false;
  work.kind = *kind;
  const bool beyond = misdeed == Misdeed::kBeyondWindow;
  if (beyond && is_atomic(work.kind)) return false;
  const auto window = find_victim(misdeed, work.kind);
  if (!window) return false;
  const bool stale = misdeed == Misdeed::kStaleWindow;
  work.length = is_atomic(work.kind) ? kWordSize
                : stale              ? static_cast<std::uint32_t>(random().between(1, 64))
                        : static_cast<std::uint32_t>(random().between(1, window->range.size));
  work.rkey = stale ? window->stale_key : window->key;
  work.remote_address = stale ? window->stale_address : window->address;
  if (beyond) {
    const std::uint64_t by = random().below(2) == 0 ? 1 : random().between(1, work.length);
    leave_range(work, window->range, window->address, by);
  }
  if (is_atomic(work.kind)) work.remote_address &= ~std::uint64_t{kWordSize - 1};
  post_wrong_remote(std::move(work), IBV_WC_REM_ACCESS_ERR);
  return true;
}

/// A binding of our own that is refused when its turn comes.
bool Side::wrong_binding(SendWork& work) {
  const std::size_t index = windows_.empty() ? 0 : random().below(windows_.size());
  if (windows_.empty() || windows_[index].state == Window::State::kChanging) return false;
  Window& window = windows_[index];
  const bool bound = window.state == Window::State::kBound;
  window.state = Window::State::kChanging;  // what comes first would make it no mistake
  work.kind = Kind::kBind;
  work.window = index;
  work.binding = choose_binding(window);
  // One of type 2 that is bound takes no other binding.
  const bool taken = bound && window.mw->type == IBV_MW_TYPE_2;
  if (!taken && random().below(2) == 0) {
    const Process::Region& region = process_.small();  // nothing is bound to it
    work.binding.mr = region.mr;
    work.binding.range = region.range;
    work.binding.region_address = process_.arena().address(region.range.offset);
  } else if (!taken) {
    const Range& range = work.binding.range;
    const std::uint32_t after = zone_->range().end() - range.end();
    work.binding.region_address += after + random().between(1, range.size);
  }
  post_doomed(std::move(work), IBV_WC_MW_BIND_ERR, false);
  return true;
}

/// A key that cannot be invalidated, of `owner`: a region's, a stale one, or one of type 1.
std::uint32_t Side::lasting_key(const Side& owner) {
  const Window* const window =
      owner.windows_.empty() ? nullptr : &owner.windows_[random().below(owner.windows_.size())];
  if (window != nullptr && window->stale_key != 0) return window->stale_key;
  if (window != nullptr && window->mw->type == IBV_MW_TYPE_1) return window->mw->rkey;
  return owner.zone_mr_->rkey;
}

bool Side::wrong_invalidation(Misdeed misdeed, SendWork& work) {
  if (windows_.empty()) return false;
  if (misdeed == Misdeed::kLocalInvalidation) {
    work.kind = Kind::kLocalInv;
    work.rkey = lasting_key(*this);
    post_doomed(std::move(work), IBV_WC_LOC_QP_OP_ERR, false);
    return true;
  }
  // The responder ends without a word: only a time-out tells.
  if (terms_.timeout == 0 || (terms_.prompt && credit() <= 0)) return false;
  if (peer_->bad_receive_ || peer_->starving_peer_) return false;
  work.kind = Kind::kSendInv;
  work.rkey = lasting_key(*peer_);
  work.length = choose_length(peer_->terms_.receive_size);
  add_source(work);
  post_doomed(std::move(work), IBV_WC_RETRY_EXC_ERR, true);
  return true;
}

}  // namespace verbena::sim
