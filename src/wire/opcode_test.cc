// SPDX-License-Identifier: Apache-2.0
#include "wire/opcode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

namespace verbena::wire {
namespace {

using enum Operation;
using enum Place;

/// The RC operations by the low five bits, as the specification orders them: the headers behind the
/// BTH as letters (F FETH, R RETH, A AtomicETH, a AETH, k AtomicAckETH, i immediate, v invalidate,
/// + payload), the size with the BTH, and whether it is a request.
struct Expected {
  Operation operation;
  Place place;
  const char* follows;
  unsigned header_size;
  bool is_request;
  const char* name;
};

constexpr Expected kRcOperations[] = {
    {kSend, kFirst, "+", 12, true, "SEND FIRST"},
    {kSend, kMiddle, "+", 12, true, "SEND MIDDLE"},
    {kSend, kLast, "+", 12, true, "SEND LAST"},
    {kSend, kLast, "i+", 16, true, "SEND LAST IMM"},
    {kSend, kOnly, "+", 12, true, "SEND ONLY"},
    {kSend, kOnly, "i+", 16, true, "SEND ONLY IMM"},
    {kWrite, kFirst, "R+", 28, true, "WRITE FIRST"},
    {kWrite, kMiddle, "+", 12, true, "WRITE MIDDLE"},
    {kWrite, kLast, "+", 12, true, "WRITE LAST"},
    {kWrite, kLast, "i+", 16, true, "WRITE LAST IMM"},
    {kWrite, kOnly, "R+", 28, true, "WRITE ONLY"},
    {kWrite, kOnly, "Ri+", 32, true, "WRITE ONLY IMM"},
    {kReadRequest, kOnly, "R", 28, true, "READ REQUEST"},
    {kReadResponse, kFirst, "a+", 16, false, "READ RESPONSE FIRST"},
    {kReadResponse, kMiddle, "+", 12, false, "READ RESPONSE MIDDLE"},
    {kReadResponse, kLast, "a+", 16, false, "READ RESPONSE LAST"},
    {kReadResponse, kOnly, "a+", 16, false, "READ RESPONSE ONLY"},
    {kAcknowledge, kOnly, "a", 16, false, "ACK"},
    {kAtomicAcknowledge, kOnly, "ak", 24, false, "ATOMIC ACK"},
    {kCompareSwap, kOnly, "A", 40, true, "COMPARE SWAP"},
    {kFetchAdd, kOnly, "A", 40, true, "FETCH ADD"},
    {kNone, kOnly, "", 0, false, ""},  // reserved
    {kSend, kLast, "v+", 16, true, "SEND LAST INV"},
    {kSend, kOnly, "v+", 16, true, "SEND ONLY INV"},
};

struct Row {
  Transport transport;
  Operation operation;
  Place place;
  std::string follows;
  unsigned header_size;
  std::string name;
};

/// What the table should say of an opcode, by the rules of the transports instead of by rows.
std::optional<Row> expected_row(unsigned value) {
  if (value == 0x81) return Row{Transport::kCnp, kCongestion, kOnly, "", 28, "CNP"};
  if (value == 0x1C) return Row{Transport::kRc, kFlush, kOnly, "FR", 32, "RC FLUSH"};
  if (value == 0x1D) return Row{Transport::kRc, kAtomicWrite, kOnly, "R+", 28, "RC ATOMIC WRITE"};
  const unsigned transport = value >> 5;
  const unsigned low = value & 0x1F;
  if (low >= std::size(kRcOperations) || kRcOperations[low].operation == kNone) return std::nullopt;
  const Expected& rc = kRcOperations[low];
  const std::string name = rc.name;
  switch (transport) {
    case 0:
      return Row{Transport::kRc, rc.operation, rc.place, rc.follows, rc.header_size, "RC " + name};
    case 1:
      if (low > 0x0B) return std::nullopt;  // neither responses nor invalidation
      return Row{Transport::kUc, rc.operation, rc.place, rc.follows, rc.header_size, "UC " + name};
    case 3:
      if (low != 4 && low != 5) return std::nullopt;  // SEND ONLY, with and without immediate
      return Row{Transport::kUd,     rc.operation, rc.place, std::string("D") + rc.follows,
                 rc.header_size + 8, "UD " + name};
    case 5: {
      const std::string follows = (rc.is_request ? "X" : "") + std::string(rc.follows);
      return Row{Transport::kXrc,
                 rc.operation,
                 rc.place,
                 follows,
                 rc.header_size + (rc.is_request ? 4U : 0U),
                 "XRC " + name};
    }
    default: return std::nullopt;
  }
}

class OpcodeTable : public testing::TestWithParam<unsigned> {};

TEST_P(OpcodeTable, EveryCell) {
  const OpcodeInfo& row = info(static_cast<Opcode>(GetParam()));
  const std::optional<Row> expected = expected_row(GetParam());
  ASSERT_EQ(row.known, expected.has_value());
  if (!expected) {
    EXPECT_EQ(row.transport, Transport::kUnknown);
    EXPECT_EQ(row.operation, kNone);
    EXPECT_EQ(row.header_size, 0);
    EXPECT_FALSE(row.has_payload);
    EXPECT_EQ(row.name, "unknown");
    return;
  }
  const auto has = [&](char letter) { return expected->follows.contains(letter); };
  EXPECT_EQ(row.transport, expected->transport);
  EXPECT_EQ(row.operation, expected->operation);
  EXPECT_EQ(row.place, expected->place);
  EXPECT_EQ(row.has_deth, has('D'));
  EXPECT_EQ(row.has_xrceth, has('X'));
  EXPECT_EQ(row.has_feth, has('F'));
  EXPECT_EQ(row.has_reth, has('R'));
  EXPECT_EQ(row.has_atomic_eth, has('A'));
  EXPECT_EQ(row.has_aeth, has('a'));
  EXPECT_EQ(row.has_atomic_ack_eth, has('k'));
  EXPECT_EQ(row.has_immediate, has('i'));
  EXPECT_EQ(row.has_ieth, has('v'));
  EXPECT_EQ(row.has_payload, has('+'));
  EXPECT_EQ(row.header_size, expected->header_size);
  EXPECT_EQ(row.name, expected->name);
}

INSTANTIATE_TEST_SUITE_P(All, OpcodeTable, testing::Range(0U, 256U));

TEST(Opcode, NamesAreUnique) {
  std::set<std::string_view> names;
  std::size_t known = 0;
  for (unsigned value = 0; value < 256; ++value) {
    const OpcodeInfo& row = info(static_cast<Opcode>(value));
    known += row.known;
    if (row.known) names.insert(row.name);
  }
  EXPECT_EQ(known, 63U);
  EXPECT_EQ(names.size(), known);
}

TEST(Opcode, TheTableIsThereAtCompileTime) {
  static_assert(info(Opcode::kRcWriteOnlyImm).header_size == 32);
  static_assert(!info(static_cast<Opcode>(0xFF)).known);
}

}  // namespace
}  // namespace verbena::wire
