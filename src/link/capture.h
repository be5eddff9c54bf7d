// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "link/capture_file.h"
#include "link/link.h"
#include "link/pcapng.h"
#include "link/send_batch.h"

namespace verbena::link {

/// Writes what goes out and comes in through another link to a capture, as Ethernet frames with
/// made up MAC addresses. On top of a FaultLink it shows what the NIC sees, faults included.
///
/// Outgoing packets stand as the other end gets them, one frame each, numbered by the rule of
/// SendBatch. An incoming datagram's IPv4 identification is what the link saw, or else its position
/// in its batch; that is what it had wherever `link/icrc_check.h` finds it right at once. IPv4
/// frames have no UDP checksum.
///
/// Packets of one call are written with one system call, or a few; nothing is allocated for them.
class CaptureLink final : public Link {
 public:
  /// `since_epoch` is added to the times that calls are given, to make them times since 1970.
  CaptureLink(std::unique_ptr<Link> inner, std::shared_ptr<CaptureSink> sink, Duration since_epoch);

  std::size_t send(std::span<const wire::Train> trains, Time now) override;
  std::size_t receive(std::span<wire::Segment> segments, Time now) override;
  [[nodiscard]] Time poll_timeout() const override { return inner_->poll_timeout(); }
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override {
    return inner_->source_port();
  }
  void report_ip_headers() override { inner_->report_ip_headers(); }
  void refresh() override { inner_->refresh(); }
  [[nodiscard]] std::span<const int> descriptors() const override { return inner_->descriptors(); }
  [[nodiscard]] bool segments(const wire::Path& path) override { return inner_->segments(path); }
  void use_single_packets(const wire::Address& destination) override {
    inner_->use_single_packets(destination);
  }

 private:
  [[nodiscard]] std::byte* begin_frame(const wire::Path& path, std::uint16_t identification,
                                       std::size_t payload_size);
  void end_frame(const wire::Path& path, std::size_t payload_size, Time now, Direction direction);
  void capture(const wire::Train& train, Time now);
  void capture(const wire::Segment& segment, Time now);
  void flush();

  std::unique_ptr<Link> inner_;
  std::shared_ptr<CaptureSink> sink_;
  Duration since_epoch_;
  SendBatch batch_{};
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
  std::size_t header_size_ = 0;  ///< of the frame under way
};

}  // namespace verbena::link
