// SPDX-License-Identifier: Apache-2.0
#include "link/icrc_check.h"

#include <cstdlib>
#include <utility>

#include "link/address_hash.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::link {
namespace {

constexpr std::size_t kSmallest = wire::Bth::kSize + wire::kIcrcSize;
/// What is lost, and what two readers take from one socket, leaves gaps in a source's numbers, or
/// disorder. 25 bits of check are left.
constexpr int kNear = 64;

}  // namespace

std::size_t IcrcCheck::filter(std::span<wire::Segment> segments) {
  std::size_t kept = 0;
  for (wire::Segment& segment : segments) {
    if (!holds(segment)) continue;
    if (&segments[kept] != &segment) segments[kept] = segment;
    ++kept;
  }
  return kept;
}

IcrcCheck::Source& IcrcCheck::source_of(const wire::Path& path) {
  Source& source = sources_[hash_of(path.source, path.source_port) % kSources];
  if (source.port != path.source_port || source.address != path.source)
    source = {.address = path.source, .port = path.source_port, .next = 0};
  return source;
}

bool IcrcCheck::takes_all(const wire::Segment& segment) const {
  return (mode_ == Mode::kOff || segment.undamaged) && segment.datagram.size() >= kSmallest;
}

bool IcrcCheck::holds(const wire::Segment& segment) { return finds_right(segment, false); }

bool IcrcCheck::holds_like(const wire::Segment& segment) { return finds_right(segment, true); }

bool IcrcCheck::finds_right(const wire::Segment& segment, bool like) {
  if (takes_all(segment)) {
    leader_.size = 0;
    ++counters_.good;
    return true;
  }
  return judge(segment, like, [](std::uint32_t start, ConstBytes covered) {
    return wire::icrc_finish(start, covered);
  });
}

bool IcrcCheck::holds_copied(const wire::Segment& segment, std::size_t header_size, std::byte* to) {
  if (takes_all(segment)) {
    leader_.size = 0;
    ++counters_.good;
    return wire::TrustingVerifier().holds_copied(segment, header_size, to);
  }
  return judge(segment, false, [=](std::uint32_t start, ConstBytes covered) {
    return wire::icrc_finish_copied(start, covered, header_size, to);
  });
}

/// `like`: it has the path and the size of the one before. `finish` makes the CRC of what the ICRC
/// covers.
template <typename Finish>
bool IcrcCheck::judge(const wire::Segment& segment, bool like, Finish finish) {
  const std::size_t size = segment.datagram.size();
  if (size < kSmallest) {
    ++counters_.bad;
    return false;
  }
  const ConstBytes covered = segment.datagram.first(size - wire::kIcrcSize);
  std::uint16_t expected = 0;
  std::uint32_t start = 0;
  if (segment.identification) {
    leader_.size = 0;
    start = wire::icrc_start(segment.path, *segment.identification, size);
  } else {
    expected = expected_of(segment, like);
    start = leader_.start ^ wire::icrc_of_identification(segment.path, expected);
  }
  const std::uint32_t computed = finish(start, covered);
  const std::uint32_t icrc = wire::load_icrc(covered.data() + covered.size());
  const bool right = computed == icrc;
  const bool good = right || mode_ == Mode::kOff ||
                    (!segment.identification && explains(segment, expected, computed, icrc));
  ++(good ? counters_.good : counters_.bad);
  if (right && !segment.identification) {
    leader_.source->next = static_cast<std::uint16_t>(expected + 1);
    leader_.source->heard = true;
  }
  return good;
}

/// The identification that a datagram most likely has: a batch's packets are numbered by their
/// position wherever the sender's kernel segmented it in software, and that is nearly always. Who
/// led another batch, or has another source or size, leads from here on.
std::uint16_t IcrcCheck::expected_of(const wire::Segment& segment, bool like) {
  const wire::Path& path = segment.path;
  const std::size_t size = segment.datagram.size();
  const bool follows =
      segment.position != 0 && size == leader_.size && (like || path == leader_.path);
  if (!follows) {
    leader_ = {.path = path,
               .size = size,
               .start = memo_.start(path, 0, size),
               .source = &source_of(path)};
  }
  Source& source = *leader_.source;
  if (segment.position == 0) source.first = source.counts ? source.first + 1 : 0;
  return static_cast<std::uint16_t>(source.first + segment.position);
}

/// Whether another identification than the `expected` one makes a datagram's ICRC right, one that
/// it may have.
bool IcrcCheck::explains(const wire::Segment& segment, std::uint16_t expected,
                         std::uint32_t computed, std::uint32_t icrc) {
  const std::size_t covered = segment.datagram.size() - wire::kIcrcSize;
  const auto identification =
      wire::icrc_solve_identification(segment.path, covered, expected, computed, icrc);
  if (!identification) return false;
  Source& source = *leader_.source;
  const bool allowed =
      *identification == 0 || *identification == source.next || *identification == segment.position;
  const int off = static_cast<std::int16_t>(*identification - expected);
  const bool near = source.counts && std::abs(off) <= kNear;
  const bool good = allowed || near || !source.heard || mode_ == Mode::kSolve;
  source.first = static_cast<std::uint16_t>(*identification - segment.position);
  source.next = static_cast<std::uint16_t>(*identification + 1);
  source.counts = *identification != 0 && source.first != 0;
  source.heard = true;
  if (good && !allowed) ++counters_.solved;
  return good;
}

}  // namespace verbena::link
