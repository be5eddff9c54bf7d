// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "verbena/error.h"

/// The numbers, flags and states of verbs as types of their own. Values are those of the C header,
/// so nothing is converted on the data path.
///
/// Source: InfiniBand Architecture Specification, volume 1, chapters 9 to 11; ibv_*(3).
namespace verbena::verbs {

/// Enumerations whose values are or-ed.
template <typename T>
inline constexpr bool is_flags = false;
/// Both sets of flags.
template <typename T>
  requires is_flags<T>
constexpr T operator|(T one, T other) noexcept {
  return static_cast<T>(static_cast<unsigned>(one) | static_cast<unsigned>(other));
}
/// What the two sets have in common.
template <typename T>
  requires is_flags<T>
constexpr T operator&(T one, T other) noexcept {
  return static_cast<T>(static_cast<unsigned>(one) & static_cast<unsigned>(other));
}
/// Adds `other` to `to`.
template <typename T>
  requires is_flags<T>
constexpr T& operator|=(T& to, T other) noexcept {
  return to = to | other;
}
/// Whether all of `wanted` is in `flags`.
template <typename T>
  requires is_flags<T>
constexpr bool has(T flags, T wanted) noexcept {
  return (flags & wanted) == wanted;
}

/// What may be done with a memory region or window, and by whom.
enum class access : unsigned {
  none = 0,                                  ///< our requests read it, nothing else
  local_write = IBV_ACCESS_LOCAL_WRITE,      ///< receives, and what READs and atomics of ours bring
  remote_write = IBV_ACCESS_REMOTE_WRITE,    ///< a peer's WRITEs; needs local_write
  remote_read = IBV_ACCESS_REMOTE_READ,      ///< a peer's READs
  remote_atomic = IBV_ACCESS_REMOTE_ATOMIC,  ///< a peer's atomics; needs local_write
  mw_bind = IBV_ACCESS_MW_BIND,              ///< memory windows are bound to it
  zero_based = IBV_ACCESS_ZERO_BASED,        ///< requests' addresses count from its first byte
  on_demand = IBV_ACCESS_ON_DEMAND,          ///< pages are not pinned, but brought when needed
  huge_pages = IBV_ACCESS_HUGETLB,           ///< it lies in huge pages
  /// The device may write in another order than packets came.
  relaxed_ordering = static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING),
  /// All that a peer can do.
  remote_all = local_write | remote_write | remote_read | remote_atomic,
};
template <>
inline constexpr bool is_flags<access> = true;

/// How a request is posted.
enum class send_flags : unsigned {
  none = 0,                        ///< not one of them: it completes only where it fails
  fence = IBV_SEND_FENCE,          ///< waits for earlier READs and atomics of the queue pair
  signaled = IBV_SEND_SIGNALED,    ///< completes into the send completion queue
  solicited = IBV_SEND_SOLICITED,  ///< wakes a peer that asked for solicited events only
  inlined = IBV_SEND_INLINE,       ///< the data are copied when the request is posted
};
template <>
inline constexpr bool is_flags<send_flags> = true;

/// How far a queue pair is from carrying traffic. IBA 10.3.1.
enum class qp_state : unsigned {
  reset = IBV_QPS_RESET,      ///< as made: nothing can be posted
  init = IBV_QPS_INIT,        ///< receives can be posted, and wait
  rtr = IBV_QPS_RTR,          ///< ready to receive: it knows its peer
  rts = IBV_QPS_RTS,          ///< ready to send as well
  sqd = IBV_QPS_SQD,          ///< sends are drained: those under way end, later ones wait
  sqe = IBV_QPS_SQE,          ///< a send has failed; receives go on
  err = IBV_QPS_ERR,          ///< what is posted is flushed
  unknown = IBV_QPS_UNKNOWN,  ///< that the device has not said
};
/// As the field writes it: "RTS".
[[nodiscard]] std::string_view name_of(qp_state state) noexcept;

/// The most payload that a packet carries.
enum class mtu : unsigned {
  bytes_256 = IBV_MTU_256,    ///< 1 on the wire and in C
  bytes_512 = IBV_MTU_512,    ///< 2
  bytes_1024 = IBV_MTU_1024,  ///< 3
  bytes_2048 = IBV_MTU_2048,  ///< 4
  bytes_4096 = IBV_MTU_4096,  ///< 5
};
/// The MTU in bytes.
[[nodiscard]] constexpr std::size_t bytes(mtu of) noexcept {
  return std::size_t{128} << static_cast<unsigned>(of);
}

/// How far a port is from carrying traffic. Source: ibv_query_port(3).
enum class port_state : unsigned {
  nop = IBV_PORT_NOP,        ///< that the device has not said
  down = IBV_PORT_DOWN,      ///< no carrier
  init = IBV_PORT_INIT,      ///< it has a carrier, and no subnet manager has set it up
  armed = IBV_PORT_ARMED,    ///< set up, and not let through yet
  active = IBV_PORT_ACTIVE,  ///< carries traffic
  /// Carries traffic, and has lost its carrier for the moment.
  active_defer = IBV_PORT_ACTIVE_DEFER,
};

/// What a port speaks below the transport.
enum class link_layer : std::uint8_t {
  unspecified = IBV_LINK_LAYER_UNSPECIFIED,  ///< InfiniBand on devices that do not say
  infiniband = IBV_LINK_LAYER_INFINIBAND,    ///< a fabric with a subnet manager, and LIDs
  ethernet = IBV_LINK_LAYER_ETHERNET,        ///< RoCE or iWARP
};

/// Reliable connection: all operations, acknowledged and in order. IBA 9.2 has the services.
struct rc {
  static constexpr ibv_qp_type type = IBV_QPT_RC;  ///< for ibv_create_qp(3)
  static constexpr std::string_view name = "RC";   ///< as the field writes it
};
/// Unreliable connection: WRITEs and messages of any size, without acknowledgements.
struct uc {
  static constexpr ibv_qp_type type = IBV_QPT_UC;  ///< for ibv_create_qp(3)
  static constexpr std::string_view name = "UC";   ///< as the field writes it
};
/// Unreliable datagrams: each of one packet, to any peer.
struct ud {
  static constexpr ibv_qp_type type = IBV_QPT_UD;  ///< for ibv_create_qp(3)
  static constexpr std::string_view name = "UD";   ///< as the field writes it
};
/// The half of an extended reliable connection that sends.
struct xrc_send {
  static constexpr ibv_qp_type type = IBV_QPT_XRC_SEND;  ///< for ibv_create_qp(3)
  static constexpr std::string_view name = "XRC_SEND";   ///< as the field writes it
};
/// The half of an extended reliable connection that receives, into the shared queues of a domain.
struct xrc_recv {
  static constexpr ibv_qp_type type = IBV_QPT_XRC_RECV;  ///< for ibv_create_qp(3)
  static constexpr std::string_view name = "XRC_RECV";   ///< as the field writes it
};
/// Ethernet frames as they are.
struct raw_packet {
  static constexpr ibv_qp_type type = IBV_QPT_RAW_PACKET;  ///< for ibv_create_qp(3)
  static constexpr std::string_view name = "RAW_PACKET";   ///< as the field writes it
};

/// One of the six above: what `queue_pair<…>` is made for.
template <typename S>
concept service = requires {
  { S::type } -> std::convertible_to<ibv_qp_type>;
};
/// Whether each request names its peer.
template <typename S>
inline constexpr bool is_addressed = std::is_same_v<S, ud>;
/// Whether the payload has its own Ethernet header, and no transport's.
template <typename S>
inline constexpr bool is_raw = std::is_same_v<S, raw_packet>;
/// Whether receives come from shared queues of a domain that the sender chooses.
template <typename S>
inline constexpr bool is_xrc = std::is_same_v<S, xrc_send> || std::is_same_v<S, xrc_recv>;
/// Whether there is a send queue.
template <typename S>
inline constexpr bool can_send = !std::is_same_v<S, xrc_recv>;
/// Whether receives are posted to the queue pair itself.
template <typename S>
inline constexpr bool can_receive = !is_xrc<S>;
/// Whether there is one peer, which `connect` names.
template <typename S>
inline constexpr bool is_connected = !is_addressed<S> && !is_raw<S>;
/// WRITE, immediate data with it.
template <typename S>
inline constexpr bool can_write = is_connected<S> && can_send<S>;
/// READ, atomics, acknowledgements.
template <typename S>
inline constexpr bool is_reliable = std::is_same_v<S, rc> || is_xrc<S>;
/// READ, atomics, invalidation of keys.
template <typename S>
inline constexpr bool can_read = is_reliable<S> && can_send<S>;

/// What a queue pair for sessions is made for; a session does nothing else.
enum class send_ops : unsigned {
  none = 0,                    ///< not one: no queue pair is made for it
  send = IBV_QP_EX_WITH_SEND,  ///< messages, datagrams, frames
  /// Messages with 32 bits for the receive's completion.
  send_with_immediate = IBV_QP_EX_WITH_SEND_WITH_IMM,
  send_with_invalidate = IBV_QP_EX_WITH_SEND_WITH_INV,  ///< messages that make a key void
  write = IBV_QP_EX_WITH_RDMA_WRITE,                    ///< to the peer's memory
  /// To the peer's memory, with 32 bits for a receive's completion.
  write_with_immediate = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
  read = IBV_QP_EX_WITH_RDMA_READ,                   ///< of the peer's memory
  fetch_add = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,   ///< of eight bytes of the peer's
  compare_swap = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,  ///< of eight bytes of the peer's
  invalidate = IBV_QP_EX_WITH_LOCAL_INV,             ///< of a key of ours
  bind = IBV_QP_EX_WITH_BIND_MW,                     ///< of a window of type 2
  /// Of eight bytes of the peer's, which appear at once.
  atomic_write = IBV_QP_EX_WITH_ATOMIC_WRITE,
  /// What every connected service carries.
  sends_and_writes = send | send_with_immediate | write | write_with_immediate,
  /// What a reliable one carries beside.
  reads_and_atomics = read | fetch_add | compare_swap,
  /// What memory windows need; not each device has it.
  windows = send_with_invalidate | invalidate | bind,
};
template <>
inline constexpr bool is_flags<send_ops> = true;

/// What a service carries, on any device that has the service.
template <service S>
inline constexpr send_ops usual_ops =
    can_read<S>       ? send_ops::sends_and_writes | send_ops::reads_and_atomics
    : can_write<S>    ? send_ops::sends_and_writes
    : is_addressed<S> ? send_ops::send | send_ops::send_with_immediate
                      : send_ops::send;
/// All that a service can carry, where the device has it.
template <service S>
inline constexpr send_ops possible_ops =
    is_reliable<S> ? usual_ops<S> | send_ops::windows | send_ops::atomic_write
    : can_write<S> ? usual_ops<S> | send_ops::invalidate | send_ops::bind
                   : usual_ops<S>;
/// Some of what the service can carry.
template <send_ops Ops, typename S>
concept operations_of =
    service<S> && can_send<S> && Ops != send_ops::none && has(possible_ops<S>, Ops);

/// A number of a kind of its own: what is one is not taken for another.
template <typename Tag, typename Number>
class number {
 public:
  constexpr number() noexcept = default;
  /// Of the plain number, which nobody checks.
  constexpr explicit number(Number value) noexcept : value_(value) {}
  /// The plain number, for C calls.
  [[nodiscard]] constexpr Number value() const noexcept { return value_; }
  friend constexpr auto operator<=>(number, number) noexcept = default;

 private:
  Number value_ = 0;
};
using port = number<struct port_tag, std::uint8_t>;  ///< counted from 1
/// A row of a port's GID table.
using gid_index = number<struct gid_index_tag, std::uint8_t>;
using qp_number = number<struct qp_number_tag, std::uint32_t>;  ///< 24 bits
using psn = number<struct psn_tag, std::uint32_t>;              ///< 24 bits
/// What a datagram must carry to be received.
using qkey = number<struct qkey_tag, std::uint32_t>;
using lid = number<struct lid_tag, std::uint16_t>;  ///< 0 on Ethernet

/// A PSN that nobody can guess, from the system's generator (getrandom(2)).
[[nodiscard]] Result<psn> random_psn();

/// How long a requester waits for an acknowledgement: 4.096 us * 2^exponent, as the wire has it
/// (IBA 9.7.6.1.3). Exponent 0 waits for ever.
class ack_timeout {
 public:
  constexpr ack_timeout() noexcept = default;
  /// The shortest that is not below `time`; the longest there is (8,800 s) where none is.
  [[nodiscard]] static constexpr ack_timeout from(std::chrono::nanoseconds time) noexcept {
    std::uint8_t exponent = 1;
    while (exponent < kLongest && ack_timeout(exponent).time() < time) ++exponent;
    return ack_timeout(exponent);
  }
  /// Waits for ever.
  [[nodiscard]] static constexpr ack_timeout never() noexcept { return ack_timeout(0); }
  /// 0 to 31, as the wire has it.
  [[nodiscard]] constexpr std::uint8_t exponent() const noexcept { return exponent_; }
  /// Of the exponent; of `never()` it is 4.096 us and means nothing.
  [[nodiscard]] constexpr std::chrono::nanoseconds time() const noexcept {
    return std::chrono::nanoseconds(std::int64_t{4096} << exponent_);
  }
  friend constexpr auto operator<=>(ack_timeout, ack_timeout) noexcept = default;

 private:
  static constexpr std::uint8_t kLongest = 31;
  constexpr explicit ack_timeout(std::uint8_t exponent) noexcept : exponent_(exponent) {}
  std::uint8_t exponent_ = 14;  // 67 ms
};

/// How long a peer without a receive makes the requester wait: one of 32 times, 0.01 to 655.36 ms
/// (IBA table 45, "Encoding for RNR NAK Timer Field").
class rnr_timer {
 public:
  constexpr rnr_timer() noexcept = default;
  /// The shortest that is not below `time`; 655.36 ms where none is.
  [[nodiscard]] static rnr_timer from(std::chrono::nanoseconds time) noexcept;
  /// 0 to 31, as the wire has it.
  [[nodiscard]] constexpr std::uint8_t code() const noexcept { return code_; }
  [[nodiscard]] std::chrono::nanoseconds time() const noexcept;  ///< of the code
  friend constexpr auto operator<=>(rnr_timer, rnr_timer) noexcept = default;

 private:
  constexpr explicit rnr_timer(std::uint8_t code) noexcept : code_(code) {}
  std::uint8_t code_ = 12;  // 0.64 ms
};

/// The global identifier of a port: an IPv6 address, or an IPv4 address mapped into one.
class gid {
 public:
  constexpr gid() noexcept = default;
  /// Its bytes in the order of the wire.
  constexpr explicit gid(const std::array<std::uint8_t, 16>& raw) noexcept : raw_(raw) {}
  explicit gid(const ibv_gid& from) noexcept;  ///< as C calls give it
  /// "fe80::1", "192.168.1.7" or "::ffff:192.168.1.7"; invalid_argument for anything else.
  [[nodiscard]] static Result<gid> from_string(std::string_view text);

  /// In the order of the wire.
  [[nodiscard]] constexpr const std::array<std::uint8_t, 16>& raw() const noexcept { return raw_; }
  [[nodiscard]] ibv_gid native() const noexcept;  ///< for C calls
  /// An empty row of a table.
  [[nodiscard]] bool is_zero() const noexcept { return *this == gid(); }
  [[nodiscard]] bool is_ipv4() const noexcept;        ///< mapped into IPv6
  [[nodiscard]] bool is_link_local() const noexcept;  ///< fe80::/10, or of IPv4 169.254.0.0/16
  [[nodiscard]] bool is_multicast() const noexcept;   ///< ff00::/8, or of IPv4 224.0.0.0/4
  [[nodiscard]] bool is_loopback() const noexcept;    ///< ::1, or of IPv4 127.0.0.0/8
  /// As an address is written: IPv4 with dots, IPv6 by RFC 5952.
  [[nodiscard]] std::string to_string() const;
  /// Whether the first `bits` are those of `prefix`.
  [[nodiscard]] bool is_in(const gid& prefix, unsigned bits) const noexcept;
  friend constexpr auto operator<=>(const gid&, const gid&) noexcept = default;

 private:
  std::array<std::uint8_t, 16> raw_{};
};

/// What a row of a GID table is spoken with.
enum class gid_kind : std::uint32_t {
  infiniband = IBV_GID_TYPE_IB,    ///< InfiniBand packets
  roce_v1 = IBV_GID_TYPE_ROCE_V1,  ///< Ethernet frames of a type of their own: not routed
  roce_v2 = IBV_GID_TYPE_ROCE_V2,  ///< UDP: routed
};
/// As the field writes it: "RoCE v2".
[[nodiscard]] std::string_view name_of(gid_kind kind) noexcept;

/// A row of a GID table. Source: ibv_query_gid_table(3).
struct gid_entry {
  /// A version (1), then GID, port, index, kind and interface, each big-endian.
  static constexpr std::size_t wire_size = 1 + 16 + 1 + 1 + 4 + 4;
  using wire_form = std::array<std::byte, wire_size>;  ///< what is sent to a peer

  gid id{};                              ///< what peers name the port by
  port of{1};                            ///< whose table it is
  gid_index index{};                     ///< the row
  gid_kind kind = gid_kind::infiniband;  ///< what it is spoken with
  std::uint32_t interface_index = 0;     ///< if_nametoindex(3); 0 where there is none

  [[nodiscard]] wire_form to_bytes() const noexcept;  ///< as `wire_size` describes them
  /// `not_supported` where another version wrote it; `invalid_argument` where it is not
  /// `wire_size` bytes, or of a kind or a port (0) that there is not.
  [[nodiscard]] static Result<gid_entry> from_bytes(std::span<const std::byte> from);
  friend bool operator==(const gid_entry&, const gid_entry&) noexcept = default;
};

}  // namespace verbena::verbs
