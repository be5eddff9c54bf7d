// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace verbena::link {

/// A way for whole Ethernet frames, without their check sequence, to others and back. What it loses
/// is lost, as on any Ethernet.
///
/// Threads: transmit() from any thread, receive() from one at a time.
class FrameLink {
 public:
  FrameLink() = default;
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;
  virtual ~FrameLink() = default;

  /// False when the frame was lost on its way out. Never blocks.
  virtual bool transmit(ConstBytes frame) = 0;

  enum class Heard : std::uint8_t { kNothing, kFrame, kUnusable };
  /// Takes the next frame that somebody else sent, of at most `room`, and gives its size. Unusable
  /// is what is longer, or no frame: there may be more behind it. Never blocks.
  [[nodiscard]] virtual Heard receive(std::span<std::byte> room, std::size_t& size) = 0;
};

}  // namespace verbena::link
