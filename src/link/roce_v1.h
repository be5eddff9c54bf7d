// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sys.h"
#include "link/aligned_buffer.h"
#include "link/link.h"
#include "link/neighbours.h"
#include "link/packet_socket.h"

namespace verbena::link {

/// RoCEv1 on an Ethernet: packets behind a GRH, in frames of their own (ethertype 0x8915), which no
/// router takes further. Needs CAP_NET_RAW for its packet socket.
///
/// Every packet is a send. Those to a host whose MAC address is not known yet are lost, as are
/// those that the kernel refuses. An interface does not give back what its own socket sends, so
/// packets to the link's own slot go round within it. A train that does not fit whole is given
/// again, and goes on where it stopped if it is the first one then.
class RoceV1Link final : public Link {
 public:
  struct Place {
    std::uint8_t slot = 0;  ///< the queue pairs whose packets are taken (`kSlotShift`)
    MacAddress mac{};       ///< the interface's
    MacLookup lookup{};
    /// The port's addresses as they are now; asked at once and by refresh().
    std::function<std::vector<wire::Address>()> addresses{};
  };

  /// A packet socket that hears a slot's packets; errors as open_packet_socket().
  [[nodiscard]] static Result<sys::OwnedFd> open(const std::string& interface, std::uint8_t slot);
  /// Makes a socket pass over all but a slot's packets.
  [[nodiscard]] static Result<void> hear_slot(int fd, std::uint8_t slot);

  /// `keep` owns what the link borrows, the descriptor above all, and is let go of with the link.
  RoceV1Link(int fd, std::shared_ptr<const void> keep, Place place);

  std::size_t send(std::span<const wire::Train> trains, Time now) override;
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  /// At once, while packets of its own wait.
  [[nodiscard]] Time poll_timeout() const override {
    return own_waiting() > 0 ? Time::min() : kNever;
  }
  [[nodiscard]] std::span<const int> descriptors() const override { return {&fd_, 1}; }
  void refresh() override { addresses_ = place_.addresses(); }

 private:
  struct Resume {
    std::uint32_t destination_qp = 0;
    std::uint32_t psn = 0;
    std::uint32_t packets = 0;
  };
  static constexpr std::size_t kFrameRoom = 4352;  ///< headers, the largest payload, pad, ICRC
  static constexpr std::size_t kFrames = 64;       ///< that one receive() hands out
  static constexpr std::size_t kOwn = 128;         ///< of its own that wait

  [[nodiscard]] bool is_own(const wire::Address& address) const;
  [[nodiscard]] bool send_train(const wire::Train& train, const MacAddress& to, bool loops);
  [[nodiscard]] bool transmit(ConstBytes frame);
  [[nodiscard]] std::size_t own_waiting() const { return own_tail_ - own_head_; }
  [[nodiscard]] std::byte* own_frame(std::size_t number) {
    return own_frames_->data() + number % kOwn * kFrameRoom;
  }
  [[nodiscard]] bool read(ConstBytes bytes, wire::Segment& segment) const;

  const int fd_;
  const std::shared_ptr<const void> keep_;
  const Place place_;
  Neighbours neighbours_;
  std::vector<wire::Address> addresses_;
  Resume resume_{};

  AlignedBuffer received_;
  std::unique_ptr<AlignedBuffer> own_frames_;  ///< from the first packet to itself on
  std::array<std::size_t, kOwn> own_sizes_{};
  std::size_t own_head_ = 0;  ///< the oldest one that waits
  std::size_t own_tail_ = 0;
  std::size_t own_released_ = 0;  ///< before it nobody looks any more
};

}  // namespace verbena::link
