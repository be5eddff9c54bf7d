// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/bytes.h"
#include "wire/address.h"
#include "wire/mad.h"

/// The messages of communication management as value types. Where a field stands is as in Linux's
/// `ibta_vol1_c12.h` and as the captures of its software RoCE show; widths below eight bits are
/// said beside the field. A message's private data has no length on the wire: all of it is sent,
/// zeroes behind what was given.
namespace verbena::wire {

template <std::size_t kSize>
using PrivateData = std::array<std::byte, kSize>;

/// "Which message": of MRA and REJ, 2 bits.
enum class CmSubject : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

/// Transport service types, 2 bits. XRC is extended type 1 beside kExtended.
enum class CmTransport : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };
inline constexpr std::uint8_t kCmExtendedXrc = 1;

/// Why a REJ: those that an IP-addressed connection manager sends or may be sent.
enum class RejectReason : std::uint16_t {
  kNoQp = 1,
  kNoEec = 2,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kInvalidCommunicationId = 6,
  kInvalidInstance = 7,
  kInvalidServiceId = 8,
  kInvalidTransport = 9,
  kStaleConnection = 10,
  kNoResourceDomain = 11,
  kInvalidGid = 12,
  kInvalidLid = 13,
  kInvalidServiceLevel = 14,
  kInvalidTrafficClass = 15,
  kInvalidHopLimit = 16,
  kInvalidPacketRate = 17,
  kInvalidAlternateGid = 18,
  kInvalidAlternateLid = 19,
  kInvalidAlternateServiceLevel = 20,
  kInvalidAlternateTrafficClass = 21,
  kInvalidAlternateHopLimit = 22,
  kInvalidAlternatePacketRate = 23,
  kPortAndManagerRedirect = 24,
  kPortRedirect = 25,
  kInvalidMtu = 26,
  kInsufficientResponderResources = 27,
  kConsumer = 28,  ///< the program said no
  kRnrRetryInvalid = 29,
  kDuplicateCommunicationId = 30,
  kInvalidClassVersion = 31,
  kInvalidFlowLabel = 32,
  kInvalidAlternateFlowLabel = 33,
  kVendorOptionNotSupported = 35,
};
[[nodiscard]] std::string_view to_string(RejectReason reason);

/// What a SIDR REP says.
enum class SidrStatus : std::uint8_t {
  kValid = 0,
  kInvalidServiceId = 1,
  kRejected = 2,
  kNoQp = 3,
  kRedirect = 4,
  kUnsupportedVersion = 5,
};

/// A path as REQ and LAP name it.
struct CmPath {
  std::uint16_t local_lid = 0xFFFF;  ///< the permissive LID, as RoCE has none
  std::uint16_t remote_lid = 0xFFFF;
  Address local_gid{};
  Address remote_gid{};
  std::uint32_t flow_label = 0;  ///< 20 bits
  std::uint8_t packet_rate = 0;  ///< 6 bits, the code of enum ibv_rate
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t service_level = 0;  ///< 4 bits
  bool subnet_local = false;
  std::uint8_t local_ack_timeout = 0;  ///< 5 bits

  bool operator==(const CmPath&) const = default;
};

/// No second path: all of it zero.
inline constexpr CmPath kNoCmPath{.local_lid = 0, .remote_lid = 0};

/// Enhanced connection establishment: what adapters of one vendor agree on beside the rest. Where
/// a message has it, `options` stand in the header of its datagram.
struct CmEce {
  std::uint32_t vendor_id = 0;  ///< 24 bits, an IEEE OUI; 0: nothing is offered
  std::uint32_t options = 0;    ///< whose meaning is the vendor's

  bool operator==(const CmEce&) const = default;
};

struct CmReq {
  std::uint32_t local_id = 0;
  std::uint64_t service_id = 0;
  std::uint64_t local_ca_guid = 0;
  std::uint32_t local_qkey = 0;
  std::uint32_t local_qp = 0;  ///< 24 bits
  std::uint8_t responder_resources = 0;
  std::uint32_t local_eec = 0;  ///< 24 bits
  std::uint8_t initiator_depth = 0;
  std::uint32_t remote_eec = 0;              ///< 24 bits
  std::uint8_t remote_response_timeout = 0;  ///< 5 bits: 4.096 us * 2^t
  CmTransport transport = CmTransport::kRc;
  bool end_to_end_flow_control = false;
  std::uint32_t starting_psn = 0;           ///< 24 bits
  std::uint8_t local_response_timeout = 0;  ///< 5 bits
  std::uint8_t retry_count = 0;             ///< 3 bits
  std::uint16_t pkey = 0xFFFF;
  std::uint8_t path_mtu = 0;  ///< 4 bits, the code of enum ibv_mtu
  bool rdc_exists = false;
  std::uint8_t rnr_retry_count = 0;  ///< 3 bits
  std::uint8_t max_cm_retries = 0;   ///< 4 bits
  bool shared_receive_queue = false;
  std::uint8_t extended_transport = 0;  ///< 3 bits
  CmPath primary{};
  CmPath alternate = kNoCmPath;
  CmEce ece{};
  PrivateData<92> private_data{};

  bool operator==(const CmReq&) const = default;
};

/// "Message receipt acknowledged": the answer takes its time.
struct CmMra {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  CmSubject subject = CmSubject::kReq;
  std::uint8_t service_timeout = 0;  ///< 5 bits
  PrivateData<222> private_data{};

  bool operator==(const CmMra&) const = default;
};

struct CmRej {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  CmSubject subject = CmSubject::kReq;
  std::uint8_t info_length = 0;  ///< 7 bits: how much of `info` counts; a peer may say too much
  RejectReason reason{};
  PrivateData<72> info{};
  PrivateData<148> private_data{};

  bool operator==(const CmRej&) const = default;
};

struct CmRep {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t local_qkey = 0;
  std::uint32_t local_qp = 0;   ///< 24 bits
  std::uint32_t local_eec = 0;  ///< 24 bits; with XRC the target's queue pair, in place of local_qp
  std::uint32_t starting_psn = 0;  ///< 24 bits
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;   ///< 5 bits
  std::uint8_t failover_accepted = 0;  ///< 2 bits
  bool end_to_end_flow_control = false;
  std::uint8_t rnr_retry_count = 0;  ///< 3 bits
  bool shared_receive_queue = false;
  std::uint64_t local_ca_guid = 0;
  CmEce ece{};
  PrivateData<196> private_data{};

  bool operator==(const CmRep&) const = default;
};

struct CmRtu {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  PrivateData<224> private_data{};

  bool operator==(const CmRtu&) const = default;
};

struct CmDreq {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t remote_qp = 0;  ///< 24 bits
  PrivateData<220> private_data{};

  bool operator==(const CmDreq&) const = default;
};

struct CmDrep {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  PrivateData<224> private_data{};

  bool operator==(const CmDrep&) const = default;
};

/// "Load alternate path". Nobody here has one to load: it is read to be answered with an APR.
struct CmLap {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t remote_qp = 0;               ///< 24 bits
  std::uint8_t remote_response_timeout = 0;  ///< 5 bits
  CmPath alternate = kNoCmPath;
  PrivateData<168> private_data{};

  bool operator==(const CmLap&) const = default;
};

struct CmApr {
  static constexpr std::uint8_t kUnsupported = 2;  ///< status: alternate paths are not supported
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint8_t info_length = 0;  ///< a peer may say more than `info` has
  std::uint8_t status = 0;
  PrivateData<72> info{};
  PrivateData<148> private_data{};

  bool operator==(const CmApr&) const = default;
};

/// "Service ID resolution": which queue pair and Q_Key datagrams for a service go to.
struct CmSidrReq {
  std::uint32_t request_id = 0;
  std::uint16_t pkey = 0xFFFF;
  std::uint64_t service_id = 0;
  PrivateData<216> private_data{};

  bool operator==(const CmSidrReq&) const = default;
};

struct CmSidrRep {
  std::uint32_t request_id = 0;
  SidrStatus status = SidrStatus::kValid;
  std::uint8_t info_length = 0;  ///< a peer may say more than `info` has
  std::uint32_t qp = 0;          ///< 24 bits
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  CmEce ece{};
  PrivateData<72> info{};
  PrivateData<136> private_data{};

  bool operator==(const CmSidrRep&) const = default;
};

/// The alternatives stand in the order of their attribute IDs, 0x0010 and up.
using CmMessage = std::variant<CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep, CmSidrReq,
                               CmSidrRep, CmLap, CmApr>;

/// A management datagram of the connection manager.
struct CmMad {
  std::uint64_t transaction = 0;
  std::uint16_t status = 0;
  CmMessage message{};

  bool operator==(const CmMad&) const = default;
};

/// Why bytes are none.
enum class CmParseError : std::uint8_t {
  kSize,             ///< not kMadSize
  kBadVersion,       ///< of the header; the base version is not 1
  kOtherClass,       ///< not communication management
  kBadClassVersion,  ///< and it may be rejected for that
  kOtherMethod,      ///< not Send
  kUnknownAttribute,
};
[[nodiscard]] std::string_view to_string(CmParseError error);

/// Reads a management datagram. Every value of every field is taken as it is: what may not be is
/// the connection manager's to say.
[[nodiscard]] std::expected<CmMad, CmParseError> parse_cm(ConstBytes mad);

/// Writes all kMadSize bytes; reserved ones are zero, and of a number wider than its field the low
/// bits are kept.
void encode_cm(const CmMad& mad, std::span<std::byte, kMadSize> to);

/// One line for logs and traces: "REQ id 0x12 service 0x106… qp 0x… psn …". No private data.
[[nodiscard]] std::string to_string(const CmMad& mad);

}  // namespace verbena::wire
