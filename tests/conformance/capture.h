// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "wire/address.h"
#include "wire/packet.h"

/// The golden captures of tests/vectors, in which Linux's software RoCE (rxe) talks to itself,
/// taken apart into what one end asked and what the other answered.
namespace verbena::conformance {

struct CapturedPacket {
  Duration time{};  ///< since the capture's first packet
  wire::Path path{};
  std::uint16_t identification = 0;
  ConstBytes frame{};     ///< Ethernet
  ConstBytes datagram{};  ///< BTH to ICRC
  wire::Packet packet{};
};

/// A capture in memory. Not to be moved: its packets point into it.
class Capture {
 public:
  /// By the name of its file without ".pcap"; throws when it cannot be read, which fails the test.
  explicit Capture(std::string_view name);
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<CapturedPacket>& packets() const { return packets_; }

 private:
  std::string name_;
  std::vector<std::byte> file_;
  std::vector<CapturedPacket> packets_;
};

/// Half of a reliable connection: the requests of one end and the answers of the other, in the
/// order of the wire.
struct Exchange {
  struct Item {
    const CapturedPacket* captured = nullptr;
    bool answer = false;
  };

  wire::Address requester{};
  wire::Address responder{};
  std::uint32_t requester_qp = 0;  ///< 0 when nothing was answered
  std::uint32_t responder_qp = 0;
  std::uint32_t first_psn = 0;
  std::vector<Item> items{};

  [[nodiscard]] std::vector<const CapturedPacket*> requests() const;
  [[nodiscard]] std::vector<const CapturedPacket*> answers() const;
  /// The most READs and atomics that were ever unanswered at once, at least 1: what the two ends
  /// must have agreed on.
  [[nodiscard]] std::uint8_t rd_atomic() const;
};

[[nodiscard]] bool is_request(const wire::Packet& packet);
[[nodiscard]] bool is_rd_atomic(const wire::Packet& packet);
[[nodiscard]] bool begins_message(const wire::Packet& packet);
[[nodiscard]] bool ends_message(const wire::Packet& packet);

/// The halves of every RC connection in the capture. They point into it.
[[nodiscard]] std::vector<Exchange> exchanges(const Capture& capture);

/// One of a message's requests, as its poster described it.
struct Message {
  std::size_t first_item = 0;  ///< of the exchange, at which the requester first sent it
  std::vector<const CapturedPacket*> packets{};
  std::uint32_t length = 0;
  std::vector<std::byte> payload{};  ///< SEND and WRITE
  [[nodiscard]] const wire::Packet& head() const { return packets.front()->packet; }
  [[nodiscard]] const wire::Packet& tail() const { return packets.back()->packet; }
  [[nodiscard]] bool consumes_receive() const;
};

/// The exchange's messages; packets that were sent again belong to the message that they first
/// stood in.
[[nodiscard]] std::vector<Message> messages(const Exchange& exchange);

/// The path MTU of every capture (tests/vectors/README.md).
inline constexpr std::uint32_t kMtu = 1024;

/// Names of the captures that hold packets of a transport, in alphabetical order.
[[nodiscard]] std::vector<std::string> captures_with(wire::Transport transport);

}  // namespace verbena::conformance
