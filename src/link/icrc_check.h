// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/address.h"
#include "wire/icrc_memo.h"
#include "wire/icrc_verifier.h"
#include "wire/train.h"

namespace verbena::link {

/// Verifies the ICRC of what a stack of links received: on top of all of them, so that a fault made
/// below is found as on the wire.
///
/// The IPv4 identification stands in the ICRC, and a socket does not show it. What a sender is
/// expected to have written (`nic.md`, Trains): the packet's position in the batch that the kernel
/// delivered, counted from 0, or from one more than the source's last batch began with; the
/// source's previous identification + 1; 0. kSolve otherwise asks which identification would make
/// the ICRC right and takes it, which leaves 16 of 32 bits of check. kStrict does so for the first
/// packet of a source that it does not remember, and then for numbers near the expected one; what
/// comes from further away is lost, and where the source counts from then on. kOff takes
/// everything. What came undamaged by its way is not looked at. Where the link saw the
/// identification only that one counts, in kSolve too.
///
/// Threads: none; it belongs to its shard, as the link does. Memory: fixed.
class IcrcCheck final : public wire::IcrcVerifier {
 public:
  enum class Mode : std::uint8_t { kStrict, kSolve, kOff };
  struct Counters {
    std::uint64_t good = 0;
    std::uint64_t solved = 0;  ///< of the good ones, those with an unexpected identification
    std::uint64_t bad = 0;     ///< dropped: wrong ICRC, or too short to have one
  };

  explicit IcrcCheck(Mode mode) : mode_(mode) {}

  /// Moves the segments that hold to the front, in order, and returns how many these are.
  [[nodiscard]] std::size_t filter(std::span<wire::Segment> segments);
  [[nodiscard]] bool holds(const wire::Segment& segment) override;
  [[nodiscard]] bool holds_like(const wire::Segment& segment) override;
  [[nodiscard]] bool holds_copied(const wire::Segment& segment, std::size_t header_size,
                                  std::byte* to) override;
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  /// How some sources number their packets; two that meet in one entry only make it less useful.
  struct Source {
    wire::Address address{};
    std::uint16_t port = 0;
    std::uint16_t next = 0;   ///< the identification behind the last one
    std::uint16_t first = 0;  ///< that of position 0 in the batch that comes
    bool counts = false;      ///< the next batch's is one more; else it is 0
    bool heard = false;       ///< there was one
  };
  static constexpr std::size_t kSources = 64;
  /// What was first in a batch, whose others mostly are of the same source and size.
  struct Leader {
    wire::Path path{};
    std::size_t size = 0;  ///< 0: none, or others were asked about since
    std::uint32_t start = 0;
    Source* source = nullptr;
  };

  [[nodiscard]] bool takes_all(const wire::Segment& segment) const;
  [[nodiscard]] bool finds_right(const wire::Segment& segment, bool like);
  template <typename Finish>
  [[nodiscard]] bool judge(const wire::Segment& segment, bool like, Finish finish);
  [[nodiscard]] bool explains(const wire::Segment& segment, std::uint16_t expected,
                              std::uint32_t computed, std::uint32_t icrc);
  [[nodiscard]] Source& source_of(const wire::Path& path);
  [[nodiscard]] std::uint16_t expected_of(const wire::Segment& segment, bool like);

  Mode mode_;
  Counters counters_{};
  wire::IcrcMemo memo_;
  std::array<Source, kSources> sources_{};
  Leader leader_{};
};

}  // namespace verbena::link
