// SPDX-License-Identifier: Apache-2.0
#include "nic/general_services.h"

#include <algorithm>
#include <span>
#include <utility>

#include "nic/general_link.h"
#include "nic/icrc_mode.h"
#include "wire/mad.h"
#include "wire/packet.h"

namespace verbena::nic {
namespace {

/// The low 15 bits of the default partition's key.
constexpr std::uint16_t kPkeyNumber = 0x7FFF;
constexpr int kSendTries = 16;
/// So many datagrams leave at once, and in each such time: a socket's ordinary buffer holds some
/// 270 of them until their receiver has a processor.
constexpr unsigned kBurst = 64;
constexpr Duration kBurstTime = std::chrono::milliseconds(1);

cm::Config manager_config(const NicConfig& config, std::uint8_t slot) {
  return {.id_prefix = std::uint32_t{slot} << (32 - kSlotBitsOfId),
          .id_prefix_bits = kSlotBitsOfId,
          .ca_guid = config.guid};
}

/// What came in and led to nothing.
std::uint64_t useless_so_far(const cm::Counters& counters) {
  return counters.malformed + counters.unexpected + counters.over_backlog + counters.over_limit +
         counters.refused;
}

}  // namespace

GeneralServices::GeneralServices(const NicConfig& config, Place place, std::uint64_t seed,
                                 Surroundings surroundings)
    : config_(config),
      surroundings_(std::move(surroundings)),
      place_(std::move(place)),
      icrc_(icrc_mode(config.icrc)),
      manager_(manager_config(config, place_.slot), seed) {
  place_.link->report_ip_headers();
}

GeneralServices::~GeneralServices() { surroundings_.release(*this); }

PortState GeneralServices::port() const {
  const std::scoped_lock lock(mutex_);
  return place_.port;
}

void GeneralServices::set_port(const PortState& state) {
  bool changed = false;
  {
    const std::scoped_lock lock(mutex_);
    changed = std::exchange(place_.port, state) != state;
    place_.link->refresh();
  }
  if (changed) surroundings_.notify();
}

void GeneralServices::raise_fatal() {
  if (!fatal_.exchange(true)) surroundings_.notify();
}

// Who drives hands on within progress(), so that nothing is on its way when the mutex is free.
void GeneralServices::withdraw() {
  const std::scoped_lock lock(mutex_);
  withdrawn_ = true;
}

std::optional<cm::Event> GeneralServices::next_event() {
  const std::scoped_lock lock(mutex_);
  if (events_.empty()) return std::nullopt;
  const cm::Event event = events_.front();
  events_.pop_front();
  return event;
}

Progress GeneralServices::progress(Time now, std::uint32_t budget) {
  Progress done;
  bool told = false;
  {
    const std::scoped_lock lock(mutex_);
    if (withdrawn_) return done;
    if (alarm_.due(now)) {
      manager_.handle_timeout(now);
      done.worked = true;
    }
    while (done.datagrams < budget) {
      const std::size_t count = place_.link->receive(segments_, now);
      if (count == 0) break;
      done.worked = true;
      done.datagrams += static_cast<std::uint32_t>(count);
      const std::size_t wanted = take(std::span(segments_).first(count), now);
      done.unwanted += static_cast<std::uint32_t>(count - wanted);
    }
    static_cast<void>(finish(now));  // who drives looks at next_timeout() after this
    told = !events_.empty();
  }
  if (told) surroundings_.notify();
  return done;
}

/// Returns how many the manager could use.
std::size_t GeneralServices::take(std::span<wire::Segment> segments, Time now) {
  if (!place_.port.up) {
    place_.counters->port_down_drops.add(segments.size());
    return 0;
  }
  const std::size_t good = icrc_.filter(segments);
  place_.counters->bad_icrc.add(segments.size() - good);
  place_.counters->packets_received.add(good);
  std::size_t wanted = 0;
  for (const wire::Segment& segment : segments.first(good)) {
    const auto packet = wire::parse(segment.datagram);
    if (!packet || packet->bth.opcode != wire::Opcode::kUdSendOnly ||
        packet->bth.destination_qp != wire::kGeneralServiceQp) {
      ++place_.counters->unknown_qp;
    } else if ((packet->bth.pkey & kPkeyNumber) != kPkeyNumber) {
      ++place_.counters->wrong_pkey;
    } else if (packet->deth.qkey != wire::kGeneralServiceQkey) {
      ++place_.counters->wrong_qkey;
    } else {
      const std::uint64_t useless = useless_so_far(manager_.counters());
      manager_.handle_datagram(segment.path, packet->payload, now);
      if (useless_so_far(manager_.counters()) == useless) ++wanted;
    }
  }
  return wanted;
}

/// With the mutex held. Returns whether whoever drives has to be woken.
bool GeneralServices::finish(Time now) {
  if (now - burst_began_ >= kBurstTime) {
    burst_began_ = now;
    sent_in_burst_ = 0;
  }
  while (sent_in_burst_ < kBurst) {
    const auto outgoing = manager_.poll_transmit();
    if (!outgoing) break;
    send(*outgoing, now);
    ++sent_in_burst_;
  }
  while (const auto event = manager_.poll_event()) events_.push_back(*event);
  Time next = std::min(manager_.poll_timeout(), place_.link->poll_timeout());
  if (sent_in_burst_ == kBurst) next = std::min(next, burst_began_ + kBurstTime);
  return alarm_.set(next);
}

// What the link does not take is lost on the way, and sent again.
void GeneralServices::send(const cm::Outgoing& outgoing, Time now) {
  if (!place_.port.up) {
    ++place_.counters->port_down_drops;
    return;
  }
  const ConstBytes mad(outgoing.mad);
  wire::Train train{.path = &outgoing.path,
                    .segment_size = wire::kMadSize,
                    .payload_size = wire::kMadSize,
                    .gather = std::span(&mad, 1)};
  train.head.bth.opcode = wire::Opcode::kUdSendOnly;
  train.head.bth.destination_qp = wire::kGeneralServiceQp;
  train.head.bth.psn = next_psn_++ & wire::kMask24;
  train.head.deth = {.qkey = wire::kGeneralServiceQkey, .source_qp = wire::kGeneralServiceQp};
  for (int tries = 0; tries < kSendTries; ++tries) {
    if (place_.link->send(std::span(&train, 1), now) == 0) continue;
    ++place_.counters->packets_sent;
    return;
  }
  ++place_.counters->send_drops;
}

}  // namespace verbena::nic
