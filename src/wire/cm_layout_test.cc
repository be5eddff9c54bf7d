// SPDX-License-Identifier: Apache-2.0
//
// Where each field of each message stands, bit by bit: a second description beside that of
// cm_message.cc, from the tables of chapter 12 as Linux's ibta_vol1_c12.h has them.
#include <gtest/gtest.h>

#include <array>
#include <bitset>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "wire/cm_message.h"
#include "wire/test_support.h"

namespace verbena::wire {
namespace {

constexpr std::size_t kDataSize = kMadSize - MadHeader::kSize;
using Data = std::array<std::byte, kDataSize>;

template <typename T>
void assign(T& field, std::uint64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    field = (value & 1) != 0;
  } else {
    field = static_cast<T>(value);
  }
}

template <auto kMember, typename Message>
void put(Message& message, std::uint64_t value) {
  assign(message.*kMember, value);
}

template <auto kPath, auto kMember, typename Message>
void put_in(Message& message, std::uint64_t value) {
  assign((message.*kPath).*kMember, value);
}

/// The vendor of an enhanced connection: its bits from `kFrom` up, so many.
template <unsigned kFrom, unsigned kWidth, typename Message>
void put_vendor(Message& message, std::uint64_t value) {
  const std::uint64_t mask = (std::uint64_t{1} << kWidth) - 1;
  message.ece.vendor_id |= static_cast<std::uint32_t>((value & mask) << kFrom);
}

template <auto kMember, typename Message>
Bytes bytes(Message& message) {
  return message.*kMember;
}

template <auto kPath, auto kMember, typename Message>
Bytes gid_in(Message& message) {
  return ((message.*kPath).*kMember).gid;
}

/// A number: byte[bit], bit 0 the most significant, and its width.
template <typename Message>
struct Field {
  std::string_view name;
  std::size_t byte;
  unsigned bit;
  unsigned width;
  void (*set)(Message&, std::uint64_t);
};

/// Bytes in a row.
template <typename Message>
struct Array {
  std::string_view name;
  std::size_t byte;
  std::size_t size;
  Bytes (*of)(Message&);
};

template <typename Message>
struct Layout {
  std::uint16_t attribute;
  std::vector<Field<Message>> fields;
  std::vector<Array<Message>> arrays;
};

template <auto kPath>
void add_path(Layout<CmReq>& layout, std::size_t at) {
  const std::vector<Field<CmReq>> fields{
      {"local_lid", at, 0, 16, put_in<kPath, &CmPath::local_lid>},
      {"remote_lid", at + 2, 0, 16, put_in<kPath, &CmPath::remote_lid>},
      {"flow_label", at + 36, 0, 20, put_in<kPath, &CmPath::flow_label>},
      {"packet_rate", at + 39, 2, 6, put_in<kPath, &CmPath::packet_rate>},
      {"traffic_class", at + 40, 0, 8, put_in<kPath, &CmPath::traffic_class>},
      {"hop_limit", at + 41, 0, 8, put_in<kPath, &CmPath::hop_limit>},
      {"service_level", at + 42, 0, 4, put_in<kPath, &CmPath::service_level>},
      {"subnet_local", at + 42, 4, 1, put_in<kPath, &CmPath::subnet_local>},
      {"local_ack_timeout", at + 43, 0, 5, put_in<kPath, &CmPath::local_ack_timeout>}};
  layout.fields.insert(layout.fields.end(), fields.begin(), fields.end());
  layout.arrays.push_back({"local_gid", at + 4, 16, gid_in<kPath, &CmPath::local_gid>});
  layout.arrays.push_back({"remote_gid", at + 20, 16, gid_in<kPath, &CmPath::remote_gid>});
}

Layout<CmReq> layout_of(const CmReq&) {
  Layout<CmReq> layout{0x0010,
                       {{"local_id", 0, 0, 32, put<&CmReq::local_id>},
                        {"vendor_id", 5, 0, 24, put_vendor<0, 24>},
                        {"service_id", 8, 0, 64, put<&CmReq::service_id>},
                        {"local_ca_guid", 16, 0, 64, put<&CmReq::local_ca_guid>},
                        {"local_qkey", 28, 0, 32, put<&CmReq::local_qkey>},
                        {"local_qp", 32, 0, 24, put<&CmReq::local_qp>},
                        {"responder_resources", 35, 0, 8, put<&CmReq::responder_resources>},
                        {"local_eec", 36, 0, 24, put<&CmReq::local_eec>},
                        {"initiator_depth", 39, 0, 8, put<&CmReq::initiator_depth>},
                        {"remote_eec", 40, 0, 24, put<&CmReq::remote_eec>},
                        {"remote_response_timeout", 43, 0, 5, put<&CmReq::remote_response_timeout>},
                        {"transport", 43, 5, 2, put<&CmReq::transport>},
                        {"end_to_end_flow_control", 43, 7, 1, put<&CmReq::end_to_end_flow_control>},
                        {"starting_psn", 44, 0, 24, put<&CmReq::starting_psn>},
                        {"local_response_timeout", 47, 0, 5, put<&CmReq::local_response_timeout>},
                        {"retry_count", 47, 5, 3, put<&CmReq::retry_count>},
                        {"pkey", 48, 0, 16, put<&CmReq::pkey>},
                        {"path_mtu", 50, 0, 4, put<&CmReq::path_mtu>},
                        {"rdc_exists", 50, 4, 1, put<&CmReq::rdc_exists>},
                        {"rnr_retry_count", 50, 5, 3, put<&CmReq::rnr_retry_count>},
                        {"max_cm_retries", 51, 0, 4, put<&CmReq::max_cm_retries>},
                        {"shared_receive_queue", 51, 4, 1, put<&CmReq::shared_receive_queue>},
                        {"extended_transport", 51, 5, 3, put<&CmReq::extended_transport>}},
                       {{"private_data", 140, 92, bytes<&CmReq::private_data>}}};
  add_path<&CmReq::primary>(layout, 52);
  add_path<&CmReq::alternate>(layout, 96);
  return layout;
}

Layout<CmMra> layout_of(const CmMra&) {
  return {0x0011,
          {{"local_id", 0, 0, 32, put<&CmMra::local_id>},
           {"remote_id", 4, 0, 32, put<&CmMra::remote_id>},
           {"subject", 8, 0, 2, put<&CmMra::subject>},
           {"service_timeout", 9, 0, 5, put<&CmMra::service_timeout>}},
          {{"private_data", 10, 222, bytes<&CmMra::private_data>}}};
}

Layout<CmRej> layout_of(const CmRej&) {
  return {0x0012,
          {{"local_id", 0, 0, 32, put<&CmRej::local_id>},
           {"remote_id", 4, 0, 32, put<&CmRej::remote_id>},
           {"subject", 8, 0, 2, put<&CmRej::subject>},
           {"info_length", 9, 0, 7, put<&CmRej::info_length>},
           {"reason", 10, 0, 16, put<&CmRej::reason>}},
          {{"info", 12, 72, bytes<&CmRej::info>},
           {"private_data", 84, 148, bytes<&CmRej::private_data>}}};
}

Layout<CmRep> layout_of(const CmRep&) {
  return {0x0013,
          {{"local_id", 0, 0, 32, put<&CmRep::local_id>},
           {"remote_id", 4, 0, 32, put<&CmRep::remote_id>},
           {"local_qkey", 8, 0, 32, put<&CmRep::local_qkey>},
           {"local_qp", 12, 0, 24, put<&CmRep::local_qp>},
           {"vendor_id, high", 15, 0, 8, put_vendor<16, 8>},
           {"local_eec", 16, 0, 24, put<&CmRep::local_eec>},
           {"vendor_id, middle", 19, 0, 8, put_vendor<8, 8>},
           {"starting_psn", 20, 0, 24, put<&CmRep::starting_psn>},
           {"vendor_id, low", 23, 0, 8, put_vendor<0, 8>},
           {"responder_resources", 24, 0, 8, put<&CmRep::responder_resources>},
           {"initiator_depth", 25, 0, 8, put<&CmRep::initiator_depth>},
           {"target_ack_delay", 26, 0, 5, put<&CmRep::target_ack_delay>},
           {"failover_accepted", 26, 5, 2, put<&CmRep::failover_accepted>},
           {"end_to_end_flow_control", 26, 7, 1, put<&CmRep::end_to_end_flow_control>},
           {"rnr_retry_count", 27, 0, 3, put<&CmRep::rnr_retry_count>},
           {"shared_receive_queue", 27, 3, 1, put<&CmRep::shared_receive_queue>},
           {"local_ca_guid", 28, 0, 64, put<&CmRep::local_ca_guid>}},
          {{"private_data", 36, 196, bytes<&CmRep::private_data>}}};
}

Layout<CmRtu> layout_of(const CmRtu&) {
  return {0x0014,
          {{"local_id", 0, 0, 32, put<&CmRtu::local_id>},
           {"remote_id", 4, 0, 32, put<&CmRtu::remote_id>}},
          {{"private_data", 8, 224, bytes<&CmRtu::private_data>}}};
}

Layout<CmDreq> layout_of(const CmDreq&) {
  return {0x0015,
          {{"local_id", 0, 0, 32, put<&CmDreq::local_id>},
           {"remote_id", 4, 0, 32, put<&CmDreq::remote_id>},
           {"remote_qp", 8, 0, 24, put<&CmDreq::remote_qp>}},
          {{"private_data", 12, 220, bytes<&CmDreq::private_data>}}};
}

Layout<CmDrep> layout_of(const CmDrep&) {
  return {0x0016,
          {{"local_id", 0, 0, 32, put<&CmDrep::local_id>},
           {"remote_id", 4, 0, 32, put<&CmDrep::remote_id>}},
          {{"private_data", 8, 224, bytes<&CmDrep::private_data>}}};
}

Layout<CmSidrReq> layout_of(const CmSidrReq&) {
  return {0x0017,
          {{"request_id", 0, 0, 32, put<&CmSidrReq::request_id>},
           {"pkey", 4, 0, 16, put<&CmSidrReq::pkey>},
           {"service_id", 8, 0, 64, put<&CmSidrReq::service_id>}},
          {{"private_data", 16, 216, bytes<&CmSidrReq::private_data>}}};
}

Layout<CmSidrRep> layout_of(const CmSidrRep&) {
  return {0x0018,
          {{"request_id", 0, 0, 32, put<&CmSidrRep::request_id>},
           {"status", 4, 0, 8, put<&CmSidrRep::status>},
           {"info_length", 5, 0, 8, put<&CmSidrRep::info_length>},
           {"vendor_id, high", 6, 0, 16, put_vendor<8, 16>},
           {"qp", 8, 0, 24, put<&CmSidrRep::qp>},
           {"vendor_id, low", 11, 0, 8, put_vendor<0, 8>},
           {"service_id", 12, 0, 64, put<&CmSidrRep::service_id>},
           {"qkey", 20, 0, 32, put<&CmSidrRep::qkey>}},
          {{"info", 24, 72, bytes<&CmSidrRep::info>},
           {"private_data", 96, 136, bytes<&CmSidrRep::private_data>}}};
}

Layout<CmLap> layout_of(const CmLap&) {
  constexpr auto kPath = &CmLap::alternate;
  return {0x0019,
          {{"local_id", 0, 0, 32, put<&CmLap::local_id>},
           {"remote_id", 4, 0, 32, put<&CmLap::remote_id>},
           {"remote_qp", 12, 0, 24, put<&CmLap::remote_qp>},
           {"remote_response_timeout", 15, 0, 5, put<&CmLap::remote_response_timeout>},
           {"local_lid", 20, 0, 16, put_in<kPath, &CmPath::local_lid>},
           {"remote_lid", 22, 0, 16, put_in<kPath, &CmPath::remote_lid>},
           {"flow_label", 56, 0, 20, put_in<kPath, &CmPath::flow_label>},
           {"traffic_class", 59, 0, 8, put_in<kPath, &CmPath::traffic_class>},
           {"hop_limit", 60, 0, 8, put_in<kPath, &CmPath::hop_limit>},
           {"packet_rate", 61, 2, 6, put_in<kPath, &CmPath::packet_rate>},
           {"service_level", 62, 0, 4, put_in<kPath, &CmPath::service_level>},
           {"subnet_local", 62, 4, 1, put_in<kPath, &CmPath::subnet_local>},
           {"local_ack_timeout", 63, 0, 5, put_in<kPath, &CmPath::local_ack_timeout>}},
          {{"local_gid", 24, 16, gid_in<kPath, &CmPath::local_gid>},
           {"remote_gid", 40, 16, gid_in<kPath, &CmPath::remote_gid>},
           {"private_data", 64, 168, bytes<&CmLap::private_data>}}};
}

Layout<CmApr> layout_of(const CmApr&) {
  return {0x001A,
          {{"local_id", 0, 0, 32, put<&CmApr::local_id>},
           {"remote_id", 4, 0, 32, put<&CmApr::remote_id>},
           {"info_length", 8, 0, 8, put<&CmApr::info_length>},
           {"status", 9, 0, 8, put<&CmApr::status>}},
          {{"info", 12, 72, bytes<&CmApr::info>},
           {"private_data", 84, 148, bytes<&CmApr::private_data>}}};
}

template <typename Message>
class CmLayout : public testing::Test {
 protected:
  static Data encoded(const Message& message) {
    std::array<std::byte, kMadSize> mad;
    mad.fill(std::byte{0xA5});
    encode_cm({.message = message}, mad);
    Data data;
    std::copy(mad.begin() + MadHeader::kSize, mad.end(), data.begin());
    return data;
  }

  Message decoded(const Data& data) const {
    std::array<std::byte, kMadSize> mad{};
    MadHeader{.attribute = layout_.attribute}.encode(mad.data());
    std::ranges::copy(data, mad.begin() + MadHeader::kSize);
    return std::get<Message>(parse_cm(mad).value().message);
  }

  const Layout<Message> layout_ = layout_of(Message{});
  const Message zero_ = decoded({});
};

using All = testing::Types<CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep, CmSidrReq, CmSidrRep,
                           CmLap, CmApr>;
TYPED_TEST_SUITE(CmLayout, All);

/// Bit `index` of the message, counted from the first byte's most significant.
void set_bit(Data& data, std::size_t index) {
  data[index / 8] |= std::byte{0x80} >> static_cast<unsigned>(index % 8);
}

TYPED_TEST(CmLayout, EachBitOfANumberHasItsPlaceAndOthersAreCutOff) {
  EXPECT_EQ(this->encoded(this->zero_), Data{});
  for (const auto& field : this->layout_.fields) {
    for (unsigned bit = 0; bit < 64; ++bit) {
      TypeParam message = this->zero_;
      field.set(message, std::uint64_t{1} << bit);
      Data expected{};
      if (bit < field.width) set_bit(expected, 8 * field.byte + field.bit + field.width - 1 - bit);
      ASSERT_EQ(this->encoded(message), expected) << field.name << ", bit " << bit;
      if (bit < field.width) {
        ASSERT_EQ(this->decoded(expected), message) << field.name << ", bit " << bit;
      }
    }
  }
}

TYPED_TEST(CmLayout, EachByteOfAnArrayHasItsPlace) {
  for (const auto& array : this->layout_.arrays) {
    TypeParam message = this->zero_;
    ASSERT_EQ(array.of(message).size(), array.size) << array.name;
    for (std::size_t i = 0; i < array.size; ++i) {
      message = this->zero_;
      array.of(message)[i] = std::byte{0x96};
      Data expected{};
      expected[array.byte + i] = std::byte{0x96};
      ASSERT_EQ(this->encoded(message), expected) << array.name << ", byte " << i;
      ASSERT_EQ(this->decoded(expected), message) << array.name << ", byte " << i;
    }
  }
}

TYPED_TEST(CmLayout, EveryOtherBitIsReservedAndNotRead) {
  std::bitset<8 * kDataSize> used;
  const auto use = [&used](std::size_t first, std::size_t width) {
    for (std::size_t bit = first; bit < first + width; ++bit) {
      EXPECT_FALSE(used.test(bit)) << bit;
      used.set(bit);
    }
  };
  for (const auto& field : this->layout_.fields) use(8 * field.byte + field.bit, field.width);
  for (const auto& array : this->layout_.arrays) use(8 * array.byte, 8 * array.size);
  for (std::size_t bit = 0; bit < used.size(); ++bit) {
    Data data{};
    set_bit(data, bit);
    EXPECT_EQ(this->decoded(data) != this->zero_, used.test(bit)) << bit;
  }
}

TYPED_TEST(CmLayout, AnyFieldsComeBackAsTheyWent) {
  Random random(this->layout_.attribute);
  for (int round = 0; round < 500; ++round) {
    TypeParam message;
    for (const auto& field : this->layout_.fields)
      field.set(message, random.next() >> (64 - field.width));
    for (const auto& array : this->layout_.arrays)
      for (std::byte& byte : array.of(message)) byte = static_cast<std::byte>(random.next() >> 56);
    const Data data = this->encoded(message);
    ASSERT_EQ(this->decoded(data), message);
    ASSERT_EQ(this->encoded(this->decoded(data)), data);
  }
}

}  // namespace
}  // namespace verbena::wire
