// SPDX-License-Identifier: Apache-2.0
#include "link/icrc_check.h"

#include <utility>

#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::link {

std::size_t IcrcCheck::filter(std::span<wire::Segment> segments) {
  std::size_t kept = 0;
  for (wire::Segment& segment : segments) {
    if (!holds(segment)) {
      ++counters_.bad;
      continue;
    }
    ++counters_.good;
    if (&segments[kept] != &segment) segments[kept] = segment;
    ++kept;
  }
  return kept;
}

IcrcCheck::Source& IcrcCheck::source_of(const wire::Path& path) {
  const auto& gid = path.source.gid;
  const std::uint32_t mixed = (load_be<std::uint32_t>(gid.data() + 12) ^
                               load_be<std::uint32_t>(gid.data() + 4) ^ path.source_port) *
                              0x9E3779B1U;
  Source& source = sources_[(mixed >> 16) % kSources];
  if (!source.known || source.port != path.source_port || source.address != path.source)
    source = {.address = path.source, .port = path.source_port, .last = 0, .known = false};
  return source;
}

bool IcrcCheck::holds(const wire::Segment& segment) {
  constexpr std::size_t kSmallest = wire::Bth::kSize + wire::kIcrcSize;
  if (segment.datagram.size() < kSmallest) return false;
  if (mode_ == Mode::kOff) return true;
  const ConstBytes covered = segment.datagram.first(segment.datagram.size() - wire::kIcrcSize);
  const std::uint32_t icrc = wire::load_icrc(covered.data() + covered.size());
  if (segment.identification)
    return wire::icrc(segment.path, *segment.identification, covered) == icrc;

  // A batch's packets are numbered by their position wherever the sender's kernel segmented it in
  // software, and that is nearly always.
  const std::uint32_t computed = memo_.icrc(segment.path, segment.position, covered);
  if (computed == icrc) {
    Source& source = source_of(segment.path);
    source.last = segment.position;
    source.known = true;
    return true;
  }
  const auto identification = wire::icrc_solve_identification(segment.path, covered.size(),
                                                              segment.position, computed, icrc);
  if (!identification) return false;
  Source& source = source_of(segment.path);
  const bool expected =
      *identification == 0 ||
      (source.known && *identification == static_cast<std::uint16_t>(source.last + 1));
  if (!expected) {
    if (mode_ == Mode::kStrict) return false;
    ++counters_.solved;
  }
  source.last = *identification;
  source.known = true;
  return true;
}

}  // namespace verbena::link
