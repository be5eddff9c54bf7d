// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "base/sys.h"
#include "link/frame_link.h"

namespace verbena::link {

/// A network interface as an Ethernet (packet(7)): hears all that comes in there and all that
/// others of this machine send there. A VLAN tag that the interface took off stands in the frame
/// again.
class PacketLink final : public FrameLink {
 public:
  /// The socket that the link works on; errors as open_packet_socket().
  [[nodiscard]] static Result<sys::OwnedFd> open(const std::string& interface);

  /// `fd` is from open() and outlives the link.
  explicit PacketLink(int fd) : fd_(fd) {}

  bool transmit(ConstBytes frame) override;
  [[nodiscard]] Heard receive(std::span<std::byte> room, std::size_t& size) override;

 private:
  const int fd_;
};

}  // namespace verbena::link
