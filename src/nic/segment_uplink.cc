// SPDX-License-Identifier: Apache-2.0
#include "nic/segment_uplink.h"

#include <span>
#include <utility>

#include "base/log.h"
#include "link/machine_segment.h"
#include "link/packet.h"

namespace verbena::nic {
namespace {

constexpr int kTurn = 64;  ///< frames until others of the watcher's have theirs

}  // namespace

SegmentUplink::SegmentUplink(const Surroundings& around, sys::OwnedFd socket)
    : around_(around), socket_(around.ledger, std::move(socket)) {}

SegmentUplink::~SegmentUplink() {
  around_.segment.set_uplink(nullptr);
  around_.watcher.unwatch(socket_.get());
}

Result<std::unique_ptr<SegmentUplink>> SegmentUplink::open(const std::string& interface,
                                                           const Surroundings& around) {
  auto socket =
      interface.empty() ? link::MachineSegment::open() : link::PacketLink::open(interface);
  if (!socket) return std::unexpected(socket.error());
  std::unique_ptr<SegmentUplink> uplink(
      new SegmentUplink(around, sys::move_high(std::move(*socket))));
  const int fd = uplink->socket_.get();
  if (interface.empty()) {
    VERBENA_TRY(uplink->start(std::make_unique<link::MachineSegment>(fd, around.host.random())));
  } else {
    VERBENA_TRY(uplink->start(std::make_unique<link::PacketLink>(fd)));
  }
  return uplink;
}

Result<void> SegmentUplink::start(std::unique_ptr<link::FrameLink> link) {
  link_ = std::move(link);
  VERBENA_TRY(around_.watcher.watch(socket_.get(), [this] { hear(); }));
  around_.segment.set_uplink(link_.get());
  return {};
}

void SegmentUplink::hear() {
  for (int left = kTurn; left > 0; --left) {
    std::size_t size = 0;
    const auto heard = link_->receive(frame_, size);
    if (heard == link::FrameLink::Heard::kNothing) return;
    if (heard == link::FrameLink::Heard::kFrame)
      around_.segment.hear(std::span(frame_).first(size), around_.host.now());
  }
}

}  // namespace verbena::nic
