// SPDX-License-Identifier: Apache-2.0
#include "link/shm.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "link/bell.h"
#include "wire/icrc.h"
#include "wire/train.h"

namespace verbena::link {
namespace {

/// A reader that sleeps is woken when so many bytes are written, so that both copy at once.
constexpr std::size_t kWakesFor = 32768;
/// So long after rings brought something the link below is looked at only so often.
constexpr Duration kWarm = std::chrono::microseconds(200);
constexpr Duration kLookBelow = std::chrono::microseconds(20);
constexpr int kBellsAtOnce = 16;
/// A reader that only waits for a processor reads again within this time.
constexpr Duration kReadsWithin = std::chrono::seconds(1);
/// Bytes that are fetched in one turn, before their sender hears of any.
constexpr std::size_t kLentAtOnce = 1 << 20;
/// Pieces of a peer's memory that are fetched by one call.
constexpr std::size_t kPiecesAtOnce = 16;

iovec piece_at(std::uint64_t address, std::size_t size) {
  return {.iov_base = reinterpret_cast<void*>(address), .iov_len = size};  // NOLINT: the peer's
}
std::uint64_t end_of(const iovec& piece) {
  return reinterpret_cast<std::uintptr_t>(piece.iov_base) + piece.iov_len;
}

bool is_in_the_middle(ConstBytes packet) {
  return wire::info(static_cast<wire::Opcode>(packet.front())).place == wire::Place::kMiddle;
}

/// Whether more packets of its message are to follow one.
bool goes_on(ConstBytes packet) {
  const wire::Place place = wire::info(static_cast<wire::Opcode>(packet.front())).place;
  return place == wire::Place::kFirst || place == wire::Place::kMiddle;
}

/// What one call is to fetch.
struct Asked {
  std::size_t packets = 0;
  std::size_t pieces = 0;
};

/// As many of the packets as were lent behind so many recalls and lie in few pieces.
Asked ask_for(std::span<const wire::Segment> packets, std::uint32_t recalls,
              std::span<iovec> pieces) {
  Asked asked;
  for (const wire::Segment& packet : packets) {
    const Loan loan = RingReader::loan_of(packet.datagram);
    if (loan.recalls != recalls) break;
    if (asked.pieces != 0 && end_of(pieces[asked.pieces - 1]) == loan.address) {
      pieces[asked.pieces - 1].iov_len += packet.lent;
    } else if (asked.pieces < pieces.size()) {
      pieces[asked.pieces++] = piece_at(loan.address, packet.lent);
    } else {
      break;
    }
    ++asked.packets;
  }
  return asked;
}

/// Whether packets of this kind are acknowledged, so that their program leaves what they carry as
/// it is until then. READ responses are not: their requester would wake their sender for each READ,
/// who sleeps again before the next one.
bool may_be_lent(const wire::TrainPacket& packet) {
  const wire::OpcodeInfo& info = wire::info(static_cast<wire::Opcode>(packet.headers.front()));
  const bool request =
      info.operation == wire::Operation::kSend || info.operation == wire::Operation::kWrite;
  return request && info.place == wire::Place::kMiddle && info.transport != wire::Transport::kUc;
}

}  // namespace

// --- Channels

Result<std::shared_ptr<ShmChannels>> ShmChannels::create() {
  sys::OwnedFd epoll = sys::move_high(sys::OwnedFd(sys::epoll_create()));
  if (!epoll) return fail(static_cast<std::errc>(errno), "no descriptor for a slot's channels");
  return std::make_shared<ShmChannels>(std::move(epoll));
}

Result<std::uint16_t> ShmChannels::open(ShmChannel channel) {
  const std::scoped_lock lock(mutex_);
  const auto free = std::ranges::find(used_, false);
  const auto number = static_cast<std::uint16_t>(free - used_.begin());
  if (number >= kMost) return fail(std::errc::no_buffer_space, "too many channels");
  epoll_event event{.events = EPOLLIN, .data = {.u32 = number}};
  if (sys::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, channel.bell, &event) != 0)
    return fail(static_cast<std::errc>(errno), "a channel's bell cannot be watched");
  if (free == used_.end()) used_.push_back(true);
  used_[number] = true;
  changes_.push_back(
      {.number = number, .opened = std::make_unique<ShmChannel>(std::move(channel))});
  changed_.store(true, std::memory_order_release);
  return number;
}

bool ShmChannels::is_full() {
  const std::scoped_lock lock(mutex_);
  return used_.size() >= kMost && std::ranges::find(used_, false) == used_.end();
}

/// The number is free again when the link has heard of it.
void ShmChannels::close(std::uint16_t number) {
  const std::scoped_lock lock(mutex_);
  changes_.push_back({.number = number});
  changed_.store(true, std::memory_order_release);
}

// --- The link

ShmLink::Way::Way(ShmChannel the_channel)
    : out(std::move(the_channel.out)),
      in(std::move(the_channel.in)),
      path{.source = the_channel.peer, .destination = the_channel.own},
      bell(the_channel.bell),
      keep(std::move(the_channel.keep)),
      fetch_from(the_channel.fetch_from),
      choice(std::move(the_channel.choice)),
      fetches(wants()),
      lend_from(the_channel.lend_from) {
  in.fetches(fetches);
}

ShmLink::ShmLink(std::unique_ptr<Link> inner, std::shared_ptr<ShmChannels> channels)
    : inner_(std::move(inner)),
      channels_(std::move(channels)),
      descriptors_(inner_->descriptors().begin(), inner_->descriptors().end()),
      inner_timeout_(inner_->poll_timeout()) {
  descriptors_.push_back(channels_->descriptor());
}

void ShmLink::follow_changes() {
  if (!channels_->changed_.load(std::memory_order_acquire)) [[likely]]
    return;
  const std::scoped_lock lock(channels_->mutex_);
  channels_->changed_.store(false, std::memory_order_relaxed);
  for (ShmChannels::Change& change : std::exchange(channels_->changes_, {})) {
    if (change.number >= by_number_.size()) by_number_.resize(change.number + 1U);
    std::unique_ptr<Way>& way = by_number_[change.number];
    if (change.opened != nullptr) {
      way = std::make_unique<Way>(std::move(*change.opened));
      way->number = way->path.channel = change.number;
      continue;
    }
    if (way != nullptr) sys::epoll_ctl(channels_->descriptor(), EPOLL_CTL_DEL, way->bell, nullptr);
    way.reset();
    channels_->used_[change.number] = false;
  }
  ways_.clear();
  written_.clear();
  for (const auto& way : by_number_) {
    if (way != nullptr) ways_.push_back(way.get());
  }
  next_ = 0;
}

// --- Out

std::size_t ShmLink::send(std::span<const wire::Train> trains, Time now) {
  follow_changes();
  if (trains.size() == 1 && trains.front().count == 1) {
    const wire::Train& train = trains.front();
    Way* const way = way_to(*train.path);
    const bool lent = train.head.info().place == wire::Place::kMiddle;  // maybe
    if (way != nullptr && !lent && train.remote_step == 0) return send_single(*way, train) ? 1 : 0;
  }
  std::size_t sent = 0;
  bool full = false;
  while (sent < trains.size() && !full) {
    const auto rest = trains.subspan(sent);
    const auto near = [](const wire::Train& train) { return train.path->channel != 0; };
    if (near(rest.front())) {
      full = !write(rest.front());
      sent += full ? 0 : 1;
      continue;
    }
    const auto end = std::ranges::find_if(rest, near);
    const auto far = rest.first(static_cast<std::size_t>(end - rest.begin()));
    const std::size_t taken = inner_->send(far, now);
    inner_timeout_ = inner_->poll_timeout();
    sent += taken;
    full = taken < far.size();
  }
  for (Way* const way : written_) wake(*way);
  written_.clear();
  return sent;
}

ShmLink::Way* ShmLink::way_to(const wire::Path& path) const {
  return path.channel < by_number_.size() ? by_number_[path.channel].get() : nullptr;
}

bool ShmLink::has_room(const wire::Path& path, std::size_t bytes, Time now) {
  follow_changes();
  Way* const way = way_to(path);
  if (way == nullptr || way->out.broken()) return true;
  if (way->out.has_room(kRingSize / 2 + way->promised + bytes)) {
    way->promised += bytes;
    way->full_since = kNever;
    return true;
  }
  way->full_since = std::min(way->full_since, now);
  return now - way->full_since > kReadsWithin;
}

/// False when there is no room for all of it.
bool ShmLink::write(const wire::Train& train) {
  Way* const way = way_to(*train.path);
  if (way == nullptr || way->out.broken()) return true;  // lost
  way->promised = 0;
  if (std::ranges::find(written_, way) == written_.end()) written_.push_back(way);
  const Resume resume = std::exchange(resume_, {});
  const bool again = resume.packets != 0 && resume.packets < train.count &&
                     resume.psn == train.head.bth.psn &&
                     resume.destination_qp == train.head.bth.destination_qp;
  std::uint32_t index = again ? resume.packets : 0;
  wire::TrainPacket packet = wire::packet_at(train, index);
  for (;;) {
    const bool is_long = packet.payload_size >= way->lend_from;
    const ConstBytes lent =
        is_long && way->lends_now() ? way->to_lend(train, packet) : ConstBytes();
    std::byte* const place = way->begin(train, packet, lent);
    if (place == nullptr) {
      resume_ = {.destination_qp = train.head.bth.destination_qp,
                 .psn = train.head.bth.psn,
                 .packets = index};
      return way->out.broken();
    }
    wire::copy_headers(packet, place);
    std::byte* const end = place + packet.wire_size() - lent.size();
    wire::store_icrc(end - wire::kIcrcSize, packet.piggyback);
    // What went away meanwhile is lost, and the transport finds out.
    if (!lent.empty()) {
      way->out.commit();
    } else if (wire::copy_payload(train, packet, place + packet.header_size)) {
      std::memset(end - wire::kIcrcSize - packet.pad_count, 0, packet.pad_count);
      way->out.commit();
      if (way->out.unannounced() >= kWakesFor) wake(*way);
    }
    if (++index == train.count) return true;
    wire::advance(train, index, packet);
  }
}

/// The same for a train of one packet, in a fraction of the time; and the reader is told of it.
bool ShmLink::send_single(Way& way, const wire::Train& train) {
  way.promised = 0;
  resume_ = {};
  std::byte* const place = way.out.begin(wire::single_size(train), train.head.info().header_size,
                                         train.path->traffic_class, train.path->hop_limit);
  if (place == nullptr) return way.out.broken();  // then it is lost
  if (!wire::write_single(train, place)) return true;
  way.out.commit();
  wake(way);
  return true;
}

[[gnu::flatten]] bool ShmLink::send_short(const wire::ShortSend& message) {
  follow_changes();
  Way* const way = way_to(*message.path);
  if (way == nullptr) return false;
  std::byte* const place = way->out.begin(message.wire_size(), wire::Bth::kSize,
                                          message.path->traffic_class, message.path->hop_limit);
  if (place == nullptr || !wire::write_short(message, place)) return false;
  way->promised = 0;
  resume_ = {};
  way->out.commit();
  wake(*way);
  return true;
}

/// The payload that a packet may leave where it is; nothing: it is copied.
ConstBytes ShmLink::Way::to_lend(const wire::Train& train, const wire::TrainPacket& packet) const {
  return may_be_lent(packet) ? wire::payload_in_one(train, packet) : ConstBytes();
}

/// More may be under way than fits into the ring, since the reader said otherwise when it was sent:
/// the rest is lent all the same, with room left for what cannot be.
bool ShmLink::Way::lends_now() {
  const Fetches reader = out.reader_fetches();
  return reader == Fetches::kAll ||
         (reader == Fetches::kWhatDoesNotFit && !out.has_room(kRingSize / 4));
}

std::byte* ShmLink::Way::begin(const wire::Train& train, const wire::TrainPacket& packet,
                               ConstBytes lent) {
  const std::uint8_t traffic_class = train.path->traffic_class;
  const std::uint8_t hop_limit = train.path->hop_limit;
  const std::size_t size = packet.wire_size();
  return lent.empty() ? out.begin(size, packet.header_size, traffic_class, hop_limit)
                      : out.begin_lent(size - lent.size(), traffic_class, hop_limit, lent);
}

bool ShmLink::lends(const wire::Path& path) {
  follow_changes();
  const Way* const way = way_to(path);
  return way != nullptr && way->out.reader_fetches() == Fetches::kAll;
}

void ShmLink::recall(std::uint16_t channel) {
  follow_changes();
  for (Way* const way : ways_) {
    if (channel == 0 || way->number == channel) way->out.recall();
  }
}

/// Wakes the reader of what was written when it sleeps. A bell that cannot be rung has been.
void ShmLink::wake(Way& way) {
  if (!way.out.announce()) return;
  const std::byte message{1};
  static_cast<void>(sys::send(way.bell, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

// --- In

std::size_t ShmLink::receive(std::span<wire::Segment> segments, Time now) {
  follow_changes();
  for (Way* const way : ways_) {
    way->in.release();
    if (way->choice != nullptr) way->weigh();
  }
  std::size_t count = 0;
  std::size_t turn = next_;
  for (std::size_t left = ways_.size(); left != 0 && count < segments.size(); --left) {
    count += read(*ways_[turn], segments.subspan(count));
    turn = turn + 1 < ways_.size() ? turn + 1 : 0;
  }
  next_ = next_ + 1 < ways_.size() ? next_ + 1 : 0;
  if (count != 0) warm_until_ = now + kWarm;
  if (now < warm_until_) {
    if (now < look_below_) return count;
    look_below_ = now + kLookBelow;
  }
  if (count == segments.size()) return count;
  count += inner_->receive(segments.subspan(count), now);
  inner_timeout_ = inner_->poll_timeout();
  return count;
}

std::size_t ShmLink::read(Way& way, std::span<wire::Segment> segments) {
  std::size_t count = 0;
  std::size_t lent = 0;
  std::size_t copied = 0;
  while (count < segments.size() && lent < kLentAtOnce) {
    const auto record = way.in.next();
    if (!record) break;
    if (record->lent != 0 && !is_in_the_middle(record->packet)) continue;
    lent += record->lent;
    wire::Segment& segment = segments[count++];
    segment.renew(record->packet, way.path);
    segment.undamaged = true;
    segment.path.traffic_class = record->traffic_class;
    segment.path.hop_limit = record->hop_limit;
    if (record->packet.size() >= way.lend_from) copied += record->packet.size();
    if (record->lent == 0) continue;
    segment.lender = &way;
    segment.lent = record->lent;
  }
  if (way.choice != nullptr && lent + copied != 0)
    way.choice->begin(lent != 0 ? FetchChoice::Way::kFetch : FetchChoice::Way::kRing, lent + copied,
                      goes_on(segments[count - 1].datagram));
  return count;
}

void ShmLink::Way::weigh() {
  choice->end();
  if (const Fetches wanted = wants(); wanted != fetches) in.fetches(fetches = wanted);
}

Fetches ShmLink::Way::wants() const {
  if (fetch_from == 0) return Fetches::kNothing;
  return choice == nullptr || choice->fetches() ? Fetches::kAll : Fetches::kWhatDoesNotFit;
}

std::size_t ShmLink::Way::fetch(std::span<const wire::Segment> packets, std::byte* to) {
  const std::size_t size = packets.front().lent;
  const std::uint32_t recalls = in.recalls();
  std::array<iovec, kPiecesAtOnce> pieces;
  std::size_t fetched = 0;
  while (fetch_from != 0 && fetched < packets.size()) {
    const Asked asked = ask_for(packets.subspan(fetched), recalls, pieces);
    if (asked.packets == 0) break;
    const iovec local{.iov_base = to + fetched * size, .iov_len = asked.packets * size};
    const ssize_t got = sys::process_vm_readv(fetch_from, &local, 1, pieces.data(),
                                              static_cast<unsigned>(asked.pieces));
    if (got > 0) fetched += static_cast<std::size_t>(got) / size;
    if (got != static_cast<ssize_t>(local.iov_len)) fetch_no_more();
  }
  // What was recalled meanwhile, or what another process has where this peer's was, is nothing.
  return in.recalls() == recalls && !has_hung_up(bell) ? fetched : 0;
}

Bytes ShmLink::Way::room(std::size_t size) {
  if (bounce.empty()) bounce.resize(wire::kMaxChannelMtu);
  return Bytes(bounce).first(size);
}

/// What was lent is lost, and comes again in the ring.
void ShmLink::Way::fetch_no_more() {
  const int error = errno;
  fetch_from = 0;
  choice = nullptr;
  in.fetches(fetches = Fetches::kNothing);
  if (has_hung_up(bell)) return;
  log(LogLevel::kInfo,
      "long messages of the process at {} are copied twice from now on: they could not be read "
      "where they are ({})",
      wire::to_string(path.source), std::generic_category().message(error));
}

/// Bells are taken here only: one that somebody who polls had taken would not wake the sleeper, and
/// the ring behind it rings no more.
bool ShmLink::arm() {
  follow_changes();
  if (!ways_.empty()) drain_bells();
  bool empty = true;
  for (Way* const way : ways_) empty = way->in.arm() && empty;
  return inner_->arm() && empty;
}

void ShmLink::drain_bells() {
  std::array<epoll_event, kBellsAtOnce> events;
  constexpr timespec kNoTime{.tv_sec = 0, .tv_nsec = 0};
  const int count =
      sys::epoll_wait(channels_->descriptor(), events.data(), events.size(), &kNoTime);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t number = events[static_cast<std::size_t>(i)].data.u32;
    if (number >= by_number_.size() || by_number_[number] == nullptr) continue;
    Way& way = *by_number_[number];
    std::array<std::byte, 8> message;
    while (sys::recv(way.bell, message.data(), message.size(), MSG_DONTWAIT) > 0) {}
    // The peer is gone: it would be readable for ever.
    if ((events[static_cast<std::size_t>(i)].events & EPOLLHUP) != 0)
      sys::epoll_ctl(channels_->descriptor(), EPOLL_CTL_DEL, way.bell, nullptr);
  }
}

}  // namespace verbena::link
