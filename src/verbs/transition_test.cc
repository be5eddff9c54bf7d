// SPDX-License-Identifier: Apache-2.0
//
// Every pair of states of every service against a table that was written for this test: the
// required attributes are those of ibv_modify_qp(3), the optional ones those of the IBA's tables
// of state transitions, with the rate limit that Linux has beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <sstream>

#include "verbena/qp_attributes.h"

namespace verbena::verbs {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::array kStates{qp_state::reset, qp_state::init, qp_state::rtr, qp_state::rts,
                             qp_state::sqd,   qp_state::sqe,  qp_state::err};
constexpr std::array kTypes{IBV_QPT_RC,       IBV_QPT_UC,       IBV_QPT_UD,
                            IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET};
constexpr unsigned kState = IBV_QP_STATE;
constexpr unsigned kLastBit = IBV_QP_RATE_LIMIT;

struct Cell {
  std::string_view type;
  qp_state from;
  qp_state to;
  const char* required;
  const char* optional;
};

constexpr qp_state kReset = qp_state::reset;
constexpr qp_state kInit = qp_state::init;
constexpr qp_state kRtr = qp_state::rtr;
constexpr qp_state kRts = qp_state::rts;
constexpr qp_state kSqd = qp_state::sqd;
constexpr qp_state kSqe = qp_state::sqe;

// The transitions that there are, beside those to RESET and ERR.
constexpr std::array kCells{
    Cell{"RC", kReset, kInit, "PKEY_INDEX PORT ACCESS_FLAGS", ""},
    Cell{"RC", kInit, kInit, "", "PKEY_INDEX PORT ACCESS_FLAGS"},
    Cell{"RC", kInit, kRtr, "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
         "ALT_PATH ACCESS_FLAGS PKEY_INDEX"},
    Cell{"RC", kRtr, kRts, "SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC",
         "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT"},
    Cell{"RC", kRts, kRts, "",
         "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT"},
    Cell{"RC", kRts, kSqd, "", "EN_SQD_ASYNC_NOTIFY"},
    Cell{"RC", kSqd, kRts, "",
         "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT"},
    Cell{"RC", kSqd, kSqd, "",
         "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH "
         "ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE"},

    Cell{"UC", kReset, kInit, "PKEY_INDEX PORT ACCESS_FLAGS", ""},
    Cell{"UC", kInit, kInit, "", "PKEY_INDEX PORT ACCESS_FLAGS"},
    Cell{"UC", kInit, kRtr, "AV PATH_MTU DEST_QPN RQ_PSN", "ALT_PATH ACCESS_FLAGS PKEY_INDEX"},
    Cell{"UC", kRtr, kRts, "SQ_PSN", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT"},
    Cell{"UC", kRts, kRts, "", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT"},
    Cell{"UC", kRts, kSqd, "", "EN_SQD_ASYNC_NOTIFY"},
    Cell{"UC", kSqd, kRts, "", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT"},
    Cell{"UC", kSqd, kSqd, "", "AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE"},
    Cell{"UC", kSqe, kRts, "", "CUR_STATE ACCESS_FLAGS"},

    Cell{"UD", kReset, kInit, "PKEY_INDEX PORT QKEY", ""},
    Cell{"UD", kInit, kInit, "", "PKEY_INDEX PORT QKEY"},
    Cell{"UD", kInit, kRtr, "", "PKEY_INDEX QKEY"},
    Cell{"UD", kRtr, kRts, "SQ_PSN", "CUR_STATE QKEY RATE_LIMIT"},
    Cell{"UD", kRts, kRts, "", "CUR_STATE QKEY RATE_LIMIT"},
    Cell{"UD", kRts, kSqd, "", "EN_SQD_ASYNC_NOTIFY"},
    Cell{"UD", kSqd, kRts, "", "CUR_STATE QKEY RATE_LIMIT"},
    Cell{"UD", kSqd, kSqd, "", "PKEY_INDEX QKEY"},
    Cell{"UD", kSqe, kRts, "", "CUR_STATE QKEY RATE_LIMIT"},

    Cell{"XRC_SEND", kReset, kInit, "PKEY_INDEX PORT ACCESS_FLAGS", ""},
    Cell{"XRC_SEND", kInit, kInit, "", "PKEY_INDEX PORT ACCESS_FLAGS"},
    Cell{"XRC_SEND", kInit, kRtr, "AV PATH_MTU DEST_QPN RQ_PSN",
         "ALT_PATH ACCESS_FLAGS PKEY_INDEX"},
    Cell{"XRC_SEND", kRtr, kRts, "SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC",
         "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT"},
    Cell{"XRC_SEND", kRts, kRts, "", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT"},
    Cell{"XRC_SEND", kRts, kSqd, "", "EN_SQD_ASYNC_NOTIFY"},
    Cell{"XRC_SEND", kSqd, kRts, "", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT"},
    Cell{"XRC_SEND", kSqd, kSqd, "",
         "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX "
         "PATH_MIG_STATE"},

    Cell{"XRC_RECV", kReset, kInit, "PKEY_INDEX PORT ACCESS_FLAGS", ""},
    Cell{"XRC_RECV", kInit, kInit, "", "PKEY_INDEX PORT ACCESS_FLAGS"},
    Cell{"XRC_RECV", kInit, kRtr, "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
         "ALT_PATH ACCESS_FLAGS PKEY_INDEX"},
    Cell{"XRC_RECV", kRtr, kRts, "SQ_PSN TIMEOUT",
         "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"},
    Cell{"XRC_RECV", kRts, kRts, "",
         "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"},
    Cell{"XRC_RECV", kRts, kSqd, "", "EN_SQD_ASYNC_NOTIFY"},
    Cell{"XRC_RECV", kSqd, kRts, "",
         "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"},
    Cell{"XRC_RECV", kSqd, kSqd, "",
         "PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER "
         "PATH_MIG_STATE"},

    Cell{"RAW_PACKET", kReset, kInit, "PORT", ""},
    Cell{"RAW_PACKET", kInit, kInit, "", ""},
    Cell{"RAW_PACKET", kInit, kRtr, "", ""},
    Cell{"RAW_PACKET", kRtr, kRts, "", "CUR_STATE RATE_LIMIT"},
    Cell{"RAW_PACKET", kRts, kRts, "", "CUR_STATE RATE_LIMIT"},
    Cell{"RAW_PACKET", kRts, kSqd, "", ""},
    Cell{"RAW_PACKET", kSqd, kRts, "", "CUR_STATE RATE_LIMIT"},
    Cell{"RAW_PACKET", kSqd, kSqd, "", ""},
    Cell{"RAW_PACKET", kSqe, kRts, "", "CUR_STATE RATE_LIMIT"},
};

std::string_view name_of_type(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC: return rc::name;
    case IBV_QPT_UC: return uc::name;
    case IBV_QPT_UD: return ud::name;
    case IBV_QPT_XRC_SEND: return xrc_send::name;
    case IBV_QPT_XRC_RECV: return xrc_recv::name;
    default: return raw_packet::name;
  }
}

/// "AV SQ_PSN" by the names that the library gives to bits.
unsigned bits_of(const char* names) {
  unsigned bits = 0;
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    unsigned found = 0;
    for (unsigned bit = 1; bit <= kLastBit; bit <<= 1)
      if (names_of_mask(bit) == "IBV_QP_" + word) found = bit;
    EXPECT_NE(found, 0) << word;
    bits |= found;
  }
  return bits;
}

const Cell* find(ibv_qp_type type, qp_state from, qp_state to) {
  const auto found = std::ranges::find_if(kCells, [&](const Cell& cell) {
    return cell.type == name_of_type(type) && cell.from == from && cell.to == to;
  });
  return found == kCells.end() ? nullptr : &*found;
}

std::string refusal(ibv_qp_type type, qp_state from, qp_state to, unsigned mask) {
  const auto result = check_transition(type, from, to, mask);
  if (result) return "";
  EXPECT_EQ(result.error(), std::errc::invalid_argument);
  return std::string(result.error().context());
}

/// All masks that differ from the smallest right one in one bit.
void check_cell(ibv_qp_type type, qp_state from, qp_state to, unsigned required,
                unsigned optional) {
  SCOPED_TRACE(std::string(name_of_type(type)) + " from " + std::string(name_of(from)) + " to " +
               std::string(name_of(to)));
  EXPECT_EQ(refusal(type, from, to, kState | required), "");
  EXPECT_EQ(refusal(type, from, to, kState | required | optional), "");
  for (unsigned bit = 2; bit <= kLastBit; bit <<= 1) {
    const std::string name = names_of_mask(bit);
    if (name == "nothing") continue;  // a bit that is reserved
    if ((required & bit) != 0) {
      EXPECT_THAT(refusal(type, from, to, kState | (required & ~bit)),
                  HasSubstr("missing: " + name));
    } else if ((optional & bit) != 0) {
      EXPECT_EQ(refusal(type, from, to, kState | required | bit), "") << name;
    } else {
      EXPECT_THAT(refusal(type, from, to, kState | required | bit),
                  HasSubstr("must not be there: " + name));
    }
  }
}

TEST(Transition, EveryCellOfEveryServiceIsAsTheTableSays) {
  std::size_t checked = 0;
  for (const ibv_qp_type type : kTypes) {
    for (const qp_state from : kStates) {
      for (const qp_state to : kStates) {
        const Cell* const cell = find(type, from, to);
        if (to == qp_state::reset || to == qp_state::err) {
          check_cell(type, from, to, 0, 0);
        } else if (cell != nullptr) {
          check_cell(type, from, to, bits_of(cell->required), bits_of(cell->optional));
          ++checked;
        } else {
          EXPECT_THAT(refusal(type, from, to, kState), HasSubstr("there is no such transition"))
              << name_of_type(type) << name_of(from) << name_of(to);
        }
      }
    }
  }
  EXPECT_EQ(checked, kCells.size());
}

TEST(Transition, ARefusalNamesTheStatesAndBothKindsOfBits) {
  EXPECT_THAT(refusal(IBV_QPT_UD, qp_state::reset, qp_state::init, kState | IBV_QP_AV),
              "from RESET to INIT: missing: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY; must "
              "not be there: IBV_QP_AV");
  EXPECT_THAT(refusal(IBV_QPT_RC, qp_state::unknown, qp_state::rts, kState),
              StartsWith("from unknown to RTS"));
}

/// What is set, and nothing else, is in the mask: attribute by attribute.
TEST(Transition, TheMaskIsThatOfWhatIsSet) {
  EXPECT_EQ(qp_attributes{}.mask(), 0);
  EXPECT_EQ(qp_attributes{.state = qp_state::init}.mask(), IBV_QP_STATE);
  EXPECT_EQ(qp_attributes{.current_state = qp_state::rts}.mask(), IBV_QP_CUR_STATE);
  EXPECT_EQ(qp_attributes{.rights = access::none}.mask(), IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(qp_attributes{.of = port{1}}.mask(), IBV_QP_PORT);
  EXPECT_EQ(qp_attributes{.pkey_index = std::uint16_t{0}}.mask(), IBV_QP_PKEY_INDEX);
  EXPECT_EQ(qp_attributes{.key = qkey{0}}.mask(), IBV_QP_QKEY);
  EXPECT_EQ(qp_attributes{.way = path{}}.mask(), IBV_QP_AV);
  EXPECT_EQ(qp_attributes{.path_mtu = mtu::bytes_256}.mask(), IBV_QP_PATH_MTU);
  EXPECT_EQ(qp_attributes{.dest_qp = qp_number{0}}.mask(), IBV_QP_DEST_QPN);
  EXPECT_EQ(qp_attributes{.rq_psn = psn{0}}.mask(), IBV_QP_RQ_PSN);
  EXPECT_EQ(qp_attributes{.sq_psn = psn{0}}.mask(), IBV_QP_SQ_PSN);
  EXPECT_EQ(qp_attributes{.max_rd_atomic = std::uint8_t{0}}.mask(), IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_EQ(qp_attributes{.max_dest_rd_atomic = std::uint8_t{0}}.mask(), IBV_QP_MAX_DEST_RD_ATOMIC);
  EXPECT_EQ(qp_attributes{.min_rnr_timer = rnr_timer{}}.mask(), IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(qp_attributes{.timeout = ack_timeout{}}.mask(), IBV_QP_TIMEOUT);
  EXPECT_EQ(qp_attributes{.retry_count = std::uint8_t{0}}.mask(), IBV_QP_RETRY_CNT);
  EXPECT_EQ(qp_attributes{.rnr_retry = std::uint8_t{0}}.mask(), IBV_QP_RNR_RETRY);
  EXPECT_EQ(qp_attributes{.sqd_async_notify = false}.mask(), IBV_QP_EN_SQD_ASYNC_NOTIFY);
  EXPECT_EQ(qp_attributes{.alternate_way = path{}}.mask(), IBV_QP_ALT_PATH);
  EXPECT_EQ(qp_attributes{.rate_limit = 0U}.mask(), IBV_QP_RATE_LIMIT);
  EXPECT_EQ(names_of_mask(0), "nothing");
  EXPECT_EQ(names_of_mask(IBV_QP_CAP), "IBV_QP_CAP");
}

}  // namespace
}  // namespace verbena::verbs
