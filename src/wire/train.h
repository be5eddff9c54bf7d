// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "wire/address.h"
#include "wire/packet.h"

namespace verbena::wire {

/// Packets that one send may carry, where the kernel segments it: what every kernel with
/// UDP_SEGMENT takes.
inline constexpr std::uint32_t kMaxSendSegments = 64;
/// Bytes that one send may carry: the largest UDP payload of IPv4.
inline constexpr std::size_t kMaxSendBytes = 65507;

/// A run of packets on their way out: what the engine hands to a link. They are of one message, or
/// a *row*: messages of one packet each, of which the last may be shorter, and which differ
/// otherwise in nothing but their payload, their PSN, and by `remote_step` in their place in the
/// peer's memory. One packet is a train of one.
///
/// `head` is the header template: its BTH carries the first packet's PSN and opcode, its extension
/// headers stand on those packets whose opcode has them (RETH on a FIRST, AETH on a FIRST or LAST
/// response, immediate on a LAST). The gather list reaches into the application's memory and stays
/// valid until the link returns from send().
struct Train {
  const Path* path = nullptr;
  Packet head{};                   ///< headers; `payload` and `icrc` are not used
  Opcode middle_opcode{};          ///< of the packets between the first and the last one
  Opcode last_opcode{};            ///< of the last packet when count > 1
  std::uint32_t count = 1;         ///< packets; PSNs run from head.bth.psn, modulo 2^24
  std::uint32_t segment_size = 0;  ///< payload bytes of each packet but the last one
  std::uint32_t payload_size = 0;  ///< payload bytes of all packets together
  /// What each packet's RETH is ahead of the one before. Where that is something, a RETH's length
  /// is its packet's, whatever that of `head` says.
  std::uint64_t remote_step = 0;
  bool ack_request_last = false;  ///< AckReq on the last packet (head.bth.ack_request is on none)
  bool solicited_last = false;    ///< the solicited bit on the last packet
  std::uint32_t piggyback = 0;    ///< of the last packet by a channel: piggyback(), or 0
  std::span<const ConstBytes> gather{};

  /// Makes it as new, but for the extension headers: whoever gives it an opcode that has some sets
  /// those whole.
  void renew() {
    path = nullptr;
    head.bth = {};
    middle_opcode = last_opcode = {};
    count = 1;
    segment_size = payload_size = 0;
    remote_step = 0;
    ack_request_last = solicited_last = false;
    piggyback = 0;
    gather = {};
  }
};

/// In place of a train: a SEND of RC that is one packet, whose data lie in one piece, by a channel.
/// Most that is sent within a machine is that. It asks for an acknowledgement.
struct ShortSend {
  const Path* path = nullptr;
  std::uint32_t destination_qp = 0;
  std::uint32_t psn = 0;
  std::uint32_t piggyback = 0;  ///< as a train's
  bool solicited = false;
  ConstBytes payload{};  ///< valid as a train's gather list is

  /// BTH to ICRC.
  [[nodiscard]] std::size_t wire_size() const {
    return Bth::kSize + ((payload.size() + 3) & ~std::size_t{3}) + kIcrcSize;
  }
};

/// One packet of a train, encoded but for payload and ICRC.
struct TrainPacket {
  std::array<std::byte, kMaxHeaderSize> headers{};
  std::uint8_t header_size = 0;
  std::uint8_t pad_count = 0;
  bool middle = false;             ///< neither the train's first nor its last
  std::uint32_t piece = 0;         ///< of the train's gather list: where the payload begins
  std::uint32_t piece_offset = 0;  ///< and at which byte of it
  std::uint32_t payload_size = 0;
  std::uint32_t piggyback = 0;  ///< what a channel's packet has in place of the ICRC

  bool operator==(const TrainPacket&) const = default;
  /// BTH to ICRC.
  [[nodiscard]] std::size_t wire_size() const {
    return header_size + payload_size + pad_count + kIcrcSize;
  }
};

/// The packet of a train at `index`, which is below its count (checked): the only encoder of
/// outgoing packets. Every link, the capture and the simulator use it.
[[nodiscard]] TrainPacket packet_at(const Train& train, std::uint32_t index);

/// Makes `packet`, which is the one before `index` or a new one, the one at `index`: as
/// packet_at(), but cheap between the middle ones.
void advance(const Train& train, std::uint32_t index, TrainPacket& packet);

/// What write_single() writes.
[[nodiscard]] std::size_t single_size(const Train& train);
/// Writes the only packet of a train without a remote_step (checked) as it goes by a channel, with
/// its piggyback in the ICRC's place: in a fraction of the time that packet_at() and the rest take.
/// `to` has single_size() bytes. False when memory of the gather list went away: it cannot be sent.
[[nodiscard]] bool write_single(const Train& train, std::byte* to);

/// The train that says the same. It borrows `message`.
[[nodiscard]] Train train_of(const ShortSend& message);

/// Writes what write_single() would of train_of(message). `to` has wire_size() bytes.
/// False when its memory went away: it cannot be sent.
[[nodiscard]] bool write_short(const ShortSend& message, std::byte* to);

/// The same back: of what write_short() wrote, all but the path, and a payload that lies there.
/// False when it is another packet, or none; then `message` is not to be looked at.
[[nodiscard]] bool parse_short(ConstBytes packet, ShortSend& message);

/// Copies a packet's headers to its beginning: in pieces as small as those in which they were
/// written just before (see Segment::renew()).
void copy_headers(const TrainPacket& packet, std::byte* to);

/// Copies the payload of a packet out of the train's gather list. `to` has at least
/// packet.payload_size bytes. False when some of the memory went away: the packet cannot be sent.
[[nodiscard]] bool copy_payload(const Train& train, const TrainPacket& packet, std::byte* to);

/// Where a packet's payload lies, when that is within one piece of the gather list; else nothing.
[[nodiscard]] ConstBytes payload_in_one(const Train& train, const TrainPacket& packet);

/// The CRC's state after a packet's masked IP and UDP headers (icrc_start(), or an IcrcMemo's).
struct IcrcStart {
  std::uint32_t state = 0;
};

/// Writes a packet as it stands on the wire, payload gathered, padded, ICRC appended. `to` has at
/// least packet.wire_size() bytes. Returns the bytes written; 0 when memory of the gather list went
/// away: the packet cannot be sent.
std::size_t write_packet(const Train& train, const TrainPacket& packet, IcrcStart start, Bytes to);
/// The same on the train's own path, with this identification; what goes by a channel has no ICRC.
std::size_t write_packet(const Train& train, const TrainPacket& packet,
                         std::uint16_t identification, Bytes to);

/// Writes the only packet of a train without a remote_step (checked) as write_packet() would, in
/// less time. `start` is that of its identification and of single_size(), the bytes that `to` has.
/// False when memory of the gather list went away: it cannot be sent.
[[nodiscard]] bool write_single(const Train& train, IcrcStart start, std::byte* to);

/// How many packets from the one at `index` on, which `packet` is, are a run: middle ones without
/// pad whose payloads lie behind each other in one piece, or are a piece each. 0 when that one
/// begins none.
[[nodiscard]] std::uint32_t run_length(const Train& train, std::uint32_t index,
                                       const TrainPacket& packet);

/// Writes `count` packets of a run (checked), one behind the other, as write_packet() would, in a
/// fraction of the time. `start` is that of identification 0; theirs count up from
/// `identification`. `to` has at least `count` times packet.wire_size() bytes. Returns how many
/// were written: fewer when memory went away. `packet` is then the last of them, as for advance().
[[nodiscard]] std::uint32_t write_run(const Train& train, std::uint32_t index, TrainPacket& packet,
                                      std::uint32_t count, IcrcStart start,
                                      std::uint16_t identification, Bytes to);

struct Segment;

/// Where payload is that did not come with its packets: with their sender, on the same machine.
class PayloadSource {
 public:
  /// Fetches payloads of one size, one behind the other, to `to`. How many came, from the first on:
  /// what is missing is lost.
  [[nodiscard]] virtual std::size_t fetch(std::span<const Segment> packets, std::byte* to) = 0;
  /// Memory of `size` bytes, at most kMaxChannelMtu, for one that has no place yet. The same each
  /// time.
  [[nodiscard]] virtual Bytes room(std::size_t size) = 0;

 protected:
  PayloadSource() = default;
  PayloadSource(const PayloadSource&) = default;
  PayloadSource& operator=(const PayloadSource&) = default;
  ~PayloadSource() = default;
};

/// One datagram that came in: the UDP payload (BTH to ICRC) and what is known of the headers before
/// it.
struct Segment {
  ConstBytes datagram{};
  Path path{};  ///< source is the sender's address, destination ours
  /// Index in the batch that the kernel delivered as one (GRO), else 0.
  std::uint16_t position = 0;
  /// The IPv4 identification where the link can see it (simulator, raw links); a UDP socket cannot.
  std::optional<std::uint16_t> identification{};
  /// It came a way on which no bit gets lost (shared memory): what stands in the ICRC's place is
  /// none, see piggyback().
  bool undamaged = false;
  /// Who has the payload, of so many bytes, which is in the middle of a message and did not come
  /// with the datagram; null: nothing is missing.
  PayloadSource* lender = nullptr;
  std::uint32_t lent = 0;

  /// Becomes a datagram that came on `way`, all else as made. Where it lies: put together elsewhere
  /// it would be written in small pieces and copied in larger ones, for which a processor waits
  /// until all stores before are done.
  void renew(ConstBytes bytes, const Path& way) {
    datagram = bytes;
    path = way;
    position = 0;
    identification.reset();
    undamaged = false;
    lender = nullptr;
    lent = 0;
  }
};

}  // namespace verbena::wire
