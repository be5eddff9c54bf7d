// SPDX-License-Identifier: Apache-2.0
#include "wire/cm_message.h"

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>

namespace verbena::wire {
namespace {

constexpr std::uint16_t kFirstAttribute = 0x0010;

/// Where a field stands behind the MAD header, as the tables of chapter 12 write it: byte[bit],
/// with bit 0 the most significant, and a width. A field lies within eight bytes.
struct Place {
  std::size_t byte = 0;
  unsigned bit = 0;
  unsigned width = 0;

  [[nodiscard]] std::size_t bytes() const { return (bit + width + 7) / 8; }
  [[nodiscard]] unsigned below() const { return static_cast<unsigned>(8 * bytes()) - bit - width; }
  [[nodiscard]] std::uint64_t mask() const { return ~std::uint64_t{0} >> (64 - width); }
};

template <typename T>
constexpr unsigned kWidth = 8 * sizeof(T);

/// The two coders walk the same description of a message, so that reading and writing cannot drift
/// apart.
class Reader {
 public:
  explicit Reader(const std::byte* from) : from_(from) {}

  template <typename T>
  void bits(Place place, T& value) const {
    std::uint64_t window = 0;
    for (std::size_t i = 0; i < place.bytes(); ++i)
      window = window << 8 | std::to_integer<std::uint64_t>(from_[place.byte + i]);
    value = static_cast<T>(window >> place.below() & place.mask());
  }
  /// The part of a number from its bit `from` up; what is not read yet is zero.
  template <typename T>
  void part(Place place, unsigned from, T& value) const {
    T bits_there = 0;
    bits(place, bits_there);
    value |= bits_there << from;
  }
  template <typename T>
  void number(std::size_t byte, T& value) const {
    bits({byte, 0, kWidth<T>}, value);
  }
  template <std::size_t kSize>
  void bytes(std::size_t byte, std::array<std::byte, kSize>& value) const {
    std::copy_n(from_ + byte, kSize, value.begin());
  }

 private:
  const std::byte* from_;
};

class Writer {
 public:
  /// What is there is zero.
  explicit Writer(std::byte* to) : to_(to) {}

  template <typename T>
  void bits(Place place, T value) {
    std::uint64_t window = (static_cast<std::uint64_t>(value) & place.mask()) << place.below();
    for (std::size_t i = place.bytes(); i-- > 0; window >>= 8)
      to_[place.byte + i] |= static_cast<std::byte>(window);
  }
  template <typename T>
  void part(Place place, unsigned from, T value) {
    bits(place, value >> from);
  }
  template <typename T>
  void number(std::size_t byte, T value) {
    bits({byte, 0, kWidth<T>}, value);
  }
  template <std::size_t kSize>
  void bytes(std::size_t byte, const std::array<std::byte, kSize>& value) {
    std::ranges::copy(value, to_ + byte);
  }

 private:
  std::byte* to_;
};

/// A message to be written is const, one to be read is not.
template <typename T, typename Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

void code_communication_ids(auto& coder, auto& message) {
  coder.number(0, message.local_id);
  coder.number(4, message.remote_id);
}

/// A path of a REQ, from byte `at` on.
void code_path(auto& coder, std::size_t at, Is<CmPath> auto& path) {
  coder.number(at, path.local_lid);
  coder.number(at + 2, path.remote_lid);
  coder.bytes(at + 4, path.local_gid.gid);
  coder.bytes(at + 20, path.remote_gid.gid);
  coder.bits({at + 36, 0, 20}, path.flow_label);
  coder.bits({at + 39, 2, 6}, path.packet_rate);
  coder.number(at + 40, path.traffic_class);
  coder.number(at + 41, path.hop_limit);
  coder.bits({at + 42, 0, 4}, path.service_level);
  coder.bits({at + 42, 4, 1}, path.subnet_local);
  coder.bits({at + 43, 0, 5}, path.local_ack_timeout);
}

/// Table 106.
void code(auto& coder, Is<CmReq> auto& req) {
  coder.number(0, req.local_id);
  coder.bits({5, 0, 24}, req.ece.vendor_id);
  coder.number(8, req.service_id);
  coder.number(16, req.local_ca_guid);
  coder.number(28, req.local_qkey);
  coder.bits({32, 0, 24}, req.local_qp);
  coder.number(35, req.responder_resources);
  coder.bits({36, 0, 24}, req.local_eec);
  coder.number(39, req.initiator_depth);
  coder.bits({40, 0, 24}, req.remote_eec);
  coder.bits({43, 0, 5}, req.remote_response_timeout);
  coder.bits({43, 5, 2}, req.transport);
  coder.bits({43, 7, 1}, req.end_to_end_flow_control);
  coder.bits({44, 0, 24}, req.starting_psn);
  coder.bits({47, 0, 5}, req.local_response_timeout);
  coder.bits({47, 5, 3}, req.retry_count);
  coder.number(48, req.pkey);
  coder.bits({50, 0, 4}, req.path_mtu);
  coder.bits({50, 4, 1}, req.rdc_exists);
  coder.bits({50, 5, 3}, req.rnr_retry_count);
  coder.bits({51, 0, 4}, req.max_cm_retries);
  coder.bits({51, 4, 1}, req.shared_receive_queue);
  coder.bits({51, 5, 3}, req.extended_transport);
  code_path(coder, 52, req.primary);
  code_path(coder, 96, req.alternate);
  coder.bytes(140, req.private_data);
}

/// Table 107.
void code(auto& coder, Is<CmMra> auto& mra) {
  code_communication_ids(coder, mra);
  coder.bits({8, 0, 2}, mra.subject);
  coder.bits({9, 0, 5}, mra.service_timeout);
  coder.bytes(10, mra.private_data);
}

/// Table 108.
void code(auto& coder, Is<CmRej> auto& rej) {
  code_communication_ids(coder, rej);
  coder.bits({8, 0, 2}, rej.subject);
  coder.bits({9, 0, 7}, rej.info_length);
  coder.number(10, rej.reason);
  coder.bytes(12, rej.info);
  coder.bytes(84, rej.private_data);
}

/// Table 110.
void code(auto& coder, Is<CmRep> auto& rep) {
  code_communication_ids(coder, rep);
  coder.number(8, rep.local_qkey);
  coder.bits({12, 0, 24}, rep.local_qp);
  coder.part({15, 0, 8}, 16, rep.ece.vendor_id);
  coder.bits({16, 0, 24}, rep.local_eec);
  coder.part({19, 0, 8}, 8, rep.ece.vendor_id);
  coder.bits({20, 0, 24}, rep.starting_psn);
  coder.part({23, 0, 8}, 0, rep.ece.vendor_id);
  coder.number(24, rep.responder_resources);
  coder.number(25, rep.initiator_depth);
  coder.bits({26, 0, 5}, rep.target_ack_delay);
  coder.bits({26, 5, 2}, rep.failover_accepted);
  coder.bits({26, 7, 1}, rep.end_to_end_flow_control);
  coder.bits({27, 0, 3}, rep.rnr_retry_count);
  coder.bits({27, 3, 1}, rep.shared_receive_queue);
  coder.number(28, rep.local_ca_guid);
  coder.bytes(36, rep.private_data);
}

/// Table 111.
void code(auto& coder, Is<CmRtu> auto& rtu) {
  code_communication_ids(coder, rtu);
  coder.bytes(8, rtu.private_data);
}

/// Table 112.
void code(auto& coder, Is<CmDreq> auto& dreq) {
  code_communication_ids(coder, dreq);
  coder.bits({8, 0, 24}, dreq.remote_qp);
  coder.bytes(12, dreq.private_data);
}

/// Table 113.
void code(auto& coder, Is<CmDrep> auto& drep) {
  code_communication_ids(coder, drep);
  coder.bytes(8, drep.private_data);
}

/// Table 119.
void code(auto& coder, Is<CmSidrReq> auto& request) {
  coder.number(0, request.request_id);
  coder.number(4, request.pkey);
  coder.number(8, request.service_id);
  coder.bytes(16, request.private_data);
}

/// Table 120.
void code(auto& coder, Is<CmSidrRep> auto& reply) {
  coder.number(0, reply.request_id);
  coder.number(4, reply.status);
  coder.number(5, reply.info_length);
  coder.part({6, 0, 16}, 8, reply.ece.vendor_id);
  coder.bits({8, 0, 24}, reply.qp);
  coder.part({11, 0, 8}, 0, reply.ece.vendor_id);
  coder.number(12, reply.service_id);
  coder.number(20, reply.qkey);
  coder.bytes(24, reply.info);
  coder.bytes(96, reply.private_data);
}

/// Table 115. The path's middle differs from a REQ's.
void code(auto& coder, Is<CmLap> auto& lap) {
  code_communication_ids(coder, lap);
  coder.bits({12, 0, 24}, lap.remote_qp);
  coder.bits({15, 0, 5}, lap.remote_response_timeout);
  coder.number(20, lap.alternate.local_lid);
  coder.number(22, lap.alternate.remote_lid);
  coder.bytes(24, lap.alternate.local_gid.gid);
  coder.bytes(40, lap.alternate.remote_gid.gid);
  coder.bits({56, 0, 20}, lap.alternate.flow_label);
  coder.number(59, lap.alternate.traffic_class);
  coder.number(60, lap.alternate.hop_limit);
  coder.bits({61, 2, 6}, lap.alternate.packet_rate);
  coder.bits({62, 0, 4}, lap.alternate.service_level);
  coder.bits({62, 4, 1}, lap.alternate.subnet_local);
  coder.bits({63, 0, 5}, lap.alternate.local_ack_timeout);
  coder.bytes(64, lap.private_data);
}

/// Table 116.
void code(auto& coder, Is<CmApr> auto& apr) {
  code_communication_ids(coder, apr);
  coder.number(8, apr.info_length);
  coder.number(9, apr.status);
  coder.bytes(12, apr.info);
  coder.bytes(84, apr.private_data);
}

template <std::size_t kIndex>
CmMessage read(const std::byte* data, std::uint32_t modifier) {
  std::variant_alternative_t<kIndex, CmMessage> message;
  Reader reader(data);
  code(reader, message);
  if constexpr (requires { message.ece; }) message.ece.options = modifier;
  return message;
}

/// What the header says for a message.
std::uint32_t modifier_of(const CmMessage& message) {
  return std::visit(
      [](const auto& one) -> std::uint32_t {
        if constexpr (requires { one.ece; }) return one.ece.options;
        return 0;
      },
      message);
}

/// By the attribute ID less kFirstAttribute.
constexpr auto kReaders = []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
  return std::array{&read<kIndex>...};
}(std::make_index_sequence<std::variant_size_v<CmMessage>>{});

}  // namespace

std::string_view to_string(CmParseError error) {
  switch (error) {
    case CmParseError::kSize: return "not 256 bytes";
    case CmParseError::kBadVersion: return "base version is not 1";
    case CmParseError::kOtherClass: return "not communication management";
    case CmParseError::kBadClassVersion: return "class version is not 2";
    case CmParseError::kOtherMethod: return "method is not Send";
    case CmParseError::kUnknownAttribute: return "unknown attribute";
  }
  return "unknown error";
}

std::expected<CmMad, CmParseError> parse_cm(ConstBytes mad) {
  if (mad.size() != kMadSize) return std::unexpected(CmParseError::kSize);
  const MadHeader header = MadHeader::parse(mad.data());
  if (header.base_version != MadHeader::kBaseVersion)
    return std::unexpected(CmParseError::kBadVersion);
  if (header.management_class != MadHeader::kCommunicationManagement)
    return std::unexpected(CmParseError::kOtherClass);
  if (header.class_version != MadHeader::kCmClassVersion)
    return std::unexpected(CmParseError::kBadClassVersion);
  if (header.method != MadHeader::kMethodSend) return std::unexpected(CmParseError::kOtherMethod);
  if (header.attribute < kFirstAttribute || header.attribute >= kFirstAttribute + kReaders.size())
    return std::unexpected(CmParseError::kUnknownAttribute);
  const auto read_message = kReaders[header.attribute - kFirstAttribute];
  return CmMad{.transaction = header.transaction,
               .status = header.status,
               .message = read_message(mad.data() + MadHeader::kSize, header.attribute_modifier)};
}

void encode_cm(const CmMad& mad, std::span<std::byte, kMadSize> to) {
  std::ranges::fill(to, std::byte{0});
  const MadHeader header{
      .status = mad.status,
      .transaction = mad.transaction,
      .attribute = static_cast<std::uint16_t>(kFirstAttribute + mad.message.index()),
      .attribute_modifier = modifier_of(mad.message)};
  header.encode(to.data());
  Writer writer(to.data() + MadHeader::kSize);
  std::visit([&writer](const auto& message) { code(writer, message); }, mad.message);
}

}  // namespace verbena::wire
