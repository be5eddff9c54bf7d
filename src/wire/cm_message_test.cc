// SPDX-License-Identifier: Apache-2.0
#include "wire/cm_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

using Mad = std::array<std::byte, kMadSize>;

/// Random bytes behind this header.
Mad mad_with(const MadHeader& header) {
  Random random(header.attribute);
  Mad mad;
  std::ranges::copy(test::random_bytes(random, mad.size()), mad.begin());
  header.encode(mad.data());
  return mad;
}

void expect_error(const MadHeader& header, CmParseError error) {
  const auto mad = parse_cm(mad_with(header));
  ASSERT_FALSE(mad) << to_string(*mad);
  EXPECT_EQ(mad.error(), error);
}

TEST(CmMessage, EveryOtherSizeIsRefused) {
  const MadHeader header{.attribute = 0x0010};
  std::vector<std::byte> longest(2 * kMadSize);
  header.encode(longest.data());
  for (std::size_t size = 0; size <= longest.size(); ++size) {
    // Its own allocation, so that the address sanitizer sees a read behind the end.
    const std::vector<std::byte> bytes(longest.begin(),
                                       longest.begin() + static_cast<std::ptrdiff_t>(size));
    const auto mad = parse_cm(bytes);
    ASSERT_EQ(mad.has_value(), size == kMadSize) << size;
    if (!mad) {
      EXPECT_EQ(mad.error(), CmParseError::kSize) << size;
    }
  }
}

TEST(CmMessage, EachFieldOfTheHeaderIsJudged) {
  for (unsigned value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    if (byte != 1)
      expect_error({.base_version = byte, .attribute = 0x0010}, CmParseError::kBadVersion);
    if (byte != 7)
      expect_error({.management_class = byte, .attribute = 0x0010}, CmParseError::kOtherClass);
    if (byte != 2)
      expect_error({.class_version = byte, .attribute = 0x0010}, CmParseError::kBadClassVersion);
    if (byte != 3) expect_error({.method = byte, .attribute = 0x0010}, CmParseError::kOtherMethod);
  }
}

TEST(CmMessage, WhatAFieldMeansDependsOnThoseBeforeIt) {
  MadHeader header{
      .base_version = 9, .management_class = 9, .class_version = 9, .method = 9, .attribute = 9};
  expect_error(header, CmParseError::kBadVersion);
  header.base_version = 1;
  expect_error(header, CmParseError::kOtherClass);
  header.management_class = 7;
  expect_error(header, CmParseError::kBadClassVersion);
  header.class_version = 2;
  expect_error(header, CmParseError::kOtherMethod);
  header.method = 3;
  expect_error(header, CmParseError::kUnknownAttribute);
}

TEST(CmMessage, EachAttributeIsItsMessage) {
  for (std::uint32_t attribute = 0; attribute < 0x10000; ++attribute) {
    const Mad bytes = mad_with({.attribute = static_cast<std::uint16_t>(attribute)});
    const auto mad = parse_cm(bytes);
    if (attribute >= 0x0010 && attribute <= 0x001A) {
      ASSERT_TRUE(mad) << attribute;
      EXPECT_EQ(mad->message.index(), attribute - 0x0010);
    } else {
      ASSERT_FALSE(mad) << attribute;
      EXPECT_EQ(mad.error(), CmParseError::kUnknownAttribute) << attribute;
    }
  }
}

TEST(CmMessage, TransactionAndStatusAreKeptAndTheRestOfTheHeaderIsNotLookedAt) {
  const Mad bytes = mad_with({.status = 0x1234,
                              .class_specific = 0xFFFF,
                              .transaction = 0x0102030405060708,
                              .attribute = 0x0014,
                              .reserved = 0xFFFF,
                              .attribute_modifier = 0xFFFFFFFF});
  const CmMad mad = parse_cm(bytes).value();
  EXPECT_EQ(mad.status, 0x1234);
  EXPECT_EQ(mad.transaction, 0x0102030405060708U);
  Mad encoded;
  encode_cm(mad, encoded);
  EXPECT_EQ(MadHeader::parse(encoded.data()),
            (MadHeader{.status = 0x1234, .transaction = 0x0102030405060708, .attribute = 0x0014}));
}

TEST(CmMessage, OptionsOfAnEnhancedConnectionStandInTheHeader) {
  const CmEce ece{.vendor_id = 0x0A0B0C, .options = 0x01020304};
  for (const CmMessage& message : {CmMessage(CmReq{.ece = ece}), CmMessage(CmRep{.ece = ece}),
                                   CmMessage(CmSidrRep{.ece = ece})}) {
    Mad bytes;
    encode_cm({.transaction = 1, .message = message}, bytes);
    EXPECT_EQ(MadHeader::parse(bytes.data()).attribute_modifier, 0x01020304U);
    EXPECT_EQ(parse_cm(bytes).value().message, message);
  }
}

TEST(CmMessage, VendorOfAnEnhancedConnectionHas24Bits) {
  Mad bytes;
  encode_cm({.message = CmReq{.ece = {.vendor_id = 0xFF0A0B0C}}}, bytes);
  EXPECT_EQ(std::get<CmReq>(parse_cm(bytes).value().message).ece.vendor_id, 0x0A0B0CU);
  EXPECT_EQ(bytes[MadHeader::kSize + 4], std::byte{0});
}

TEST(CmMessage, AnyBytesAreOneReadableLine) {
  for (std::uint16_t attribute = 0x0010; attribute <= 0x001A; ++attribute) {
    const std::string line = to_string(parse_cm(mad_with({.attribute = attribute})).value());
    EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) << line;
  }
}

std::string line_of(CmMessage message) {
  return to_string(CmMad{.transaction = 0x2FE4A1CD7, .message = std::move(message)});
}

TEST(CmMessage, LinesOfAConnection) {
  CmReq req{.local_id = 0xD71C4AFE,
            .service_id = 0x1061C06,
            .local_qp = 0x24,
            .responder_resources = 4,
            .initiator_depth = 1,
            .starting_psn = 4711,
            .retry_count = 7,
            .path_mtu = 3,
            .rnr_retry_count = 6,
            .primary = {.local_gid = Address::from_ipv4(0x0A4D0002),
                        .remote_gid = Address::from_ipv4(0x0A4D0001)}};
  EXPECT_EQ(line_of(req),
            "REQ id 0xd71c4afe service 0x1061c06 RC qp 0x000024 psn 4711 resources 4 depth 1 "
            "retries 7 rnr-retries 6 mtu 3 10.77.0.2 -> 10.77.0.1 transaction 0x2fe4a1cd7");
  req.transport = CmTransport::kExtended;
  req.extended_transport = kCmExtendedXrc;
  req.pkey = 0x8001;
  req.shared_receive_queue = true;
  EXPECT_EQ(line_of(req),
            "REQ id 0xd71c4afe service 0x1061c06 extended 1 qp 0x000024 psn 4711 resources 4 depth "
            "1 retries 7 rnr-retries 6 mtu 3 pkey 0x8001 srq 10.77.0.2 -> 10.77.0.1 transaction "
            "0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmMra{.local_id = 0x12, .remote_id = 0x34, .service_timeout = 20}),
            "MRA id 0x12 remote 0x34 of REQ timeout 20 transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmRep{.local_id = 0x12,
                          .remote_id = 0x34,
                          .local_qp = 0x1A,
                          .starting_psn = 5,
                          .responder_resources = 1,
                          .initiator_depth = 2,
                          .rnr_retry_count = 7,
                          .shared_receive_queue = true}),
            "REP id 0x12 remote 0x34 qp 0x00001a psn 5 resources 1 depth 2 rnr-retries 7 srq "
            "transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmRtu{.local_id = 0x12, .remote_id = 0x34}),
            "RTU id 0x12 remote 0x34 transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmDreq{.local_id = 0x12, .remote_id = 0x34, .remote_qp = 0x1A}),
            "DREQ id 0x12 remote 0x34 qp 0x00001a transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmDrep{.local_id = 0x12, .remote_id = 0x34}),
            "DREP id 0x12 remote 0x34 transaction 0x2fe4a1cd7");
}

TEST(CmMessage, LinesOfRefusals) {
  EXPECT_EQ(line_of(CmRej{.local_id = 0x12,
                          .remote_id = 0x34,
                          .subject = CmSubject::kRep,
                          .reason = RejectReason::kConsumer}),
            "REJ id 0x12 remote 0x34 of REP reason 28 (consumer) transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmRej{.subject = CmSubject{3}, .reason = RejectReason{99}}),
            "REJ id 0x0 remote 0x0 of reserved reason 99 (unknown reason) transaction 0x2fe4a1cd7");
  EXPECT_EQ(to_string(CmMad{.transaction = 1, .status = 0xC, .message = CmRtu{}}),
            "RTU id 0x0 remote 0x0 transaction 0x1 mad-status 0x000c");
}

TEST(CmMessage, LinesOfServiceIdResolutionAndPaths) {
  EXPECT_EQ(line_of(CmSidrReq{.request_id = 0x12, .service_id = 0x1111C06}),
            "SIDR REQ id 0x12 service 0x1111c06 transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmSidrReq{.request_id = 0x12, .pkey = 0x8001, .service_id = 0x1111C06}),
            "SIDR REQ id 0x12 service 0x1111c06 pkey 0x8001 transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmSidrRep{.request_id = 0x12,
                              .status = SidrStatus::kNoQp,
                              .qp = 0x1B,
                              .service_id = 0x1111C06,
                              .qkey = 0x1234567}),
            "SIDR REP id 0x12 service 0x1111c06 status 3 (no queue pair) qp 0x00001b qkey "
            "0x1234567 transaction 0x2fe4a1cd7");
  EXPECT_TRUE(line_of(CmSidrRep{.ece = {.vendor_id = 0x2C9, .options = 0x1F}})
                  .contains(" qkey 0x0 ece 0x0002c9/0x1f "));
  EXPECT_EQ(line_of(CmLap{.local_id = 0x12,
                          .remote_id = 0x34,
                          .remote_qp = 0x1A,
                          .alternate = {.local_gid = Address::from_ipv4(0x0A4D0002),
                                        .remote_gid = Address::from_ipv4(0x0A4D0001)}}),
            "LAP id 0x12 remote 0x34 qp 0x00001a 10.77.0.2 -> 10.77.0.1 transaction 0x2fe4a1cd7");
  EXPECT_EQ(line_of(CmApr{.local_id = 0x12, .remote_id = 0x34, .status = CmApr::kUnsupported}),
            "APR id 0x12 remote 0x34 status 2 transaction 0x2fe4a1cd7");
}

TEST(CmMessage, EveryErrorHasAName) {
  for (const CmParseError error : {CmParseError::kSize, CmParseError::kBadVersion,
                                   CmParseError::kOtherClass, CmParseError::kBadClassVersion,
                                   CmParseError::kOtherMethod, CmParseError::kUnknownAttribute}) {
    EXPECT_NE(to_string(error), "unknown error");
  }
  EXPECT_EQ(to_string(CmParseError{99}), "unknown error");
}

TEST(CmMessage, EveryReasonHasANameOfItsOwn) {
  // 34 is not assigned.
  std::set<std::string_view> names;
  for (std::uint16_t reason = 1; reason <= 35; ++reason) {
    if (reason != 34) names.insert(to_string(RejectReason{reason}));
  }
  EXPECT_EQ(names.size(), 34U);
  EXPECT_FALSE(names.contains("unknown reason"));
  for (const std::uint16_t reason : std::to_array<std::uint16_t>({0, 34, 36, 0xFFFF}))
    EXPECT_EQ(to_string(RejectReason{reason}), "unknown reason");
}

TEST(CmMessage, EveryTransportAndSidrStatusHasAName) {
  const auto line_with = [](CmTransport transport) {
    return line_of(CmReq{.transport = transport});
  };
  EXPECT_TRUE(line_with(CmTransport::kUc).contains(" UC "));
  EXPECT_TRUE(line_with(CmTransport::kRd).contains(" RD "));
  EXPECT_TRUE(line_with(CmTransport{4}).contains(" reserved "));
  std::set<std::string> lines;
  for (std::uint8_t status = 0; status <= 6; ++status) {
    const std::string line = line_of(CmSidrRep{.status = SidrStatus{status}});
    EXPECT_EQ(line.contains("(reserved)"), status == 6) << line;
    lines.insert(line);
  }
  EXPECT_EQ(lines.size(), 7U);
  EXPECT_TRUE(line_of(CmMra{.subject = CmSubject::kOther}).contains(" of other "));
}

}  // namespace
}  // namespace verbena::wire
