// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/sys.h"
#include "link/frame_link.h"

namespace verbena::link {

/// An Ethernet without wires between the processes of a machine, of all its users, in one network
/// namespace: a multicast group on the loopback interface, in which each frame is a datagram. The
/// kernel gives every process its copy, so that nobody has to know who is there, and nothing is
/// left behind by who dies. Needs no privilege; who is on it hears everything, as on any hub.
class MachineSegment final : public FrameLink {
 public:
  /// The socket that the link works on. Errors are the kernel's.
  [[nodiscard]] static Result<sys::OwnedFd> open();

  /// `fd` is from open() and outlives the link. `sender` is a random number that tells this one's
  /// frames from those of the others.
  MachineSegment(int fd, std::uint64_t sender) : fd_(fd), sender_(sender) {}

  bool transmit(ConstBytes frame) override;
  [[nodiscard]] Heard receive(std::span<std::byte> room, std::size_t& size) override;

 private:
  const int fd_;
  const std::uint64_t sender_;
};

}  // namespace verbena::link
