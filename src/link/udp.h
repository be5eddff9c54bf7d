// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "link/aligned_buffer.h"
#include "link/link.h"
#include "link/send_batch.h"
#include "link/udp_connections.h"
#include "link/udp_counters.h"
#include "link/udp_outlet.h"
#include "link/udp_receiver.h"
#include "link/udp_socket.h"
#include "wire/address.h"
#include "wire/icrc_memo.h"

namespace verbena::link {

/// RoCEv2 over a UDP socket, without privileges.
///
/// Sending stages packets flat, payload and ICRC included, and sends runs of them (`SendBatch`) as
/// one UDP_SEGMENT message. The IP header's changing parts are the kernel's, so the ICRC is made
/// for what the socket is known to write: its own address and port as the source, whatever the path
/// says, and the index within the send as the identification (`udp_socket.h`). What goes to one
/// destination again and again goes by a connected socket in the end, with a port and
/// identifications of its own (`UdpOutlet`). Where the kernel refuses a segmented send, that
/// destination gets single packets from then on, said once.
///
/// A train that did not fit whole into the socket's buffer is not counted as taken; given again
/// first in the next send() (same queue pair and PSN), it goes on where it stopped. If the caller
/// sends something else instead, the packets that did leave are as good as duplicates, which the
/// transport tolerates. A packet that the kernel refuses for another reason counts as taken: it is
/// lost, as on a network, and the transport's business. So is one whose memory went away since the
/// transport looked.
///
/// Checksums: SO_NO_CHECK and UDP_SEGMENT exclude each other, so packets carry UDP checksums (which
/// the kernel leaves to the hardware, and does not compute on loopback at all).
class UdpLink final : public Link {
 public:
  /// Serves `fd`, a socket of open_udp_socket() bound to one address. `keep` owns what the link
  /// borrows, the descriptor above all, and is let go of with the link. `guard` gets the connected
  /// sockets; without one there are none, and all leaves from the port of `fd`, numbered as said.
  [[nodiscard]] static Result<std::unique_ptr<UdpLink>> create(int fd,
                                                               std::shared_ptr<const void> keep,
                                                               FdGuard guard = {});

  std::size_t send(std::span<const wire::Train> trains, Time now) override;
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  /// At once, while datagrams wait here for which the last span had no room.
  [[nodiscard]] Time poll_timeout() const override {
    return receiver_.empty() ? kNever : Time::min();
  }
  /// What goes by a connected socket has another, which no path tells.
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override { return own_.port(); }
  void report_ip_headers() override { set_ip_header_reports(fd_, true); }
  [[nodiscard]] std::span<const int> descriptors() const override { return {&fd_, 1}; }
  [[nodiscard]] bool segments(const wire::Path& path) override {
    return !is_single(path.destination);
  }
  void refresh() override { connections_.forget(); }
  /// Said once for a destination.
  void use_single_packets(const wire::Address& destination) override;

  [[nodiscard]] const wire::Address& address() const { return address_; }
  [[nodiscard]] const UdpCounters& counters() const { return counters_; }

 private:
  /// A packet within the trains of one send().
  struct Position {
    std::size_t train = 0;
    std::uint32_t packet = 0;
  };
  /// Where a train stopped that did not fit.
  struct Resume {
    std::uint32_t destination_qp = 0;
    std::uint32_t psn = 0;
    std::uint32_t packets = 0;  ///< that left already; 0: nothing to resume
  };

  UdpLink(int fd, std::shared_ptr<const void> keep, const SocketAddress& bound, FdGuard guard);
  [[nodiscard]] bool is_single(const wire::Address& destination) const;
  void make_single(const wire::Address& destination);
  [[nodiscard]] std::uint32_t first_packet(const wire::Train& train) const;
  [[nodiscard]] std::uint32_t stage_run(const wire::Train& train, std::uint32_t index,
                                        wire::TrainPacket& packet);
  template <typename Write>
  [[nodiscard]] bool stage(std::span<const wire::Train> trains, const wire::Train& train,
                           std::size_t size, Write write, Position& unsent);
  void begin_send(const wire::Train& train, std::size_t size);
  [[nodiscard]] wire::IcrcStart icrc_start_of(std::size_t size, std::uint16_t index);
  static void pass(std::span<const wire::Train> trains, Position& position, std::uint32_t packets);
  [[nodiscard]] bool flush(std::span<const wire::Train> trains, Position& unsent);
  [[nodiscard]] std::uint32_t send_staged();
  [[nodiscard]] std::uint32_t send_singly();
  [[nodiscard]] int transmit(std::size_t offset, std::size_t size, std::size_t segment_size);

  int fd_;
  std::shared_ptr<const void> keep_;
  wire::Address address_;
  std::uint32_t scope_;
  UdpReceiver receiver_;
  UdpOutlet own_;
  UdpConnections connections_;

  // Packets staged for one send, all of one path.
  AlignedBuffer staging_;
  SendBatch batch_;
  wire::IcrcMemo icrc_;
  wire::Path path_{};          ///< as it will stand on the wire
  UdpOutlet* outlet_ = &own_;  ///< that they leave by
  std::size_t staged_ = 0;
  std::size_t segment_size_ = 0;
  std::uint32_t start_ = 0;  ///< wire::icrc_start() of the path, identification 0 and that size
  std::uint32_t segments_ = 0;
  Resume resume_{};

  static constexpr std::size_t kMaxSinglePaths = 16;
  std::array<wire::Address, kMaxSinglePaths> single_paths_{};
  std::size_t single_path_count_ = 0;
  bool all_single_ = false;

  UdpCounters counters_{};
};

}  // namespace verbena::link
