// SPDX-License-Identifier: Apache-2.0
#include "engine/qp_state.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <tuple>

#include "engine/transport.h"

namespace verbena::engine {
namespace {

constexpr std::array kStates = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                                QpState::kSqd,   QpState::kSqe,  QpState::kErr};
constexpr std::array kTypes = {QpType::kRc,      QpType::kUc,         QpType::kUd,
                               QpType::kXrcSend, QpType::kXrcReceive, QpType::kRawPacket};

TEST(QpStateTable, EveryCell) {
  using enum QpState;
  // Transitions beside "any to RESET or ERR"; everything else is forbidden.
  const std::map<std::pair<QpState, QpState>, bool> allowed = {
      {{kReset, kInit}, true}, {{kInit, kInit}, true}, {{kInit, kRtr}, true},
      {{kRtr, kRts}, true},    {{kRts, kRts}, true},   {{kRts, kSqd}, true},
      {{kSqd, kRts}, true},    {{kSqd, kSqd}, true},   {{kSqe, kRts}, true}};
  for (const QpType type : kTypes) {
    for (const QpState from : kStates) {
      for (const QpState to : kStates) {
        bool expected = to == kReset || to == kErr || allowed.contains({from, to});
        if (is_reliable(type) && from == kSqe && to == kRts) expected = false;
        EXPECT_EQ(transition(type, from, to).allowed, expected)
            << to_string(from) << " to " << to_string(to);
      }
    }
  }
}

TEST(QpStateTable, RequiredAndOptionalAttributesAreEnforcedBitByBit) {
  for (const QpType type : kTypes) {
    for (const QpState from : kStates) {
      for (const QpState to : kStates) {
        const Transition cell = transition(type, from, to);
        if (!cell.allowed) {
          EXPECT_FALSE(check_transition(type, from, to, kMaskState));
          continue;
        }
        EXPECT_EQ(cell.required & cell.optional, 0u);
        EXPECT_TRUE(check_transition(type, from, to, kMaskState | cell.required));
        EXPECT_TRUE(check_transition(type, from, to, kMaskState | cell.required | cell.optional));
        for (std::uint32_t bit = 2; bit != 0; bit <<= 1) {
          const bool required = (cell.required & bit) != 0;
          const bool known = ((cell.required | cell.optional) & bit) != 0;
          EXPECT_EQ(
              check_transition(type, from, to, kMaskState | (cell.required & ~bit)).has_value(),
              !required);
          EXPECT_EQ(check_transition(type, from, to, kMaskState | cell.required | bit).has_value(),
                    known);
        }
      }
    }
  }
}

TEST(QpStateTable, ErrorsNameTheAttributes) {
  const auto missing =
      check_transition(QpType::kRc, QpState::kReset, QpState::kInit, kMaskState | kMaskPort);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().condition, std::errc::invalid_argument);
  EXPECT_EQ(missing.error().message, "RESET to INIT needs IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX");
  const auto extra =
      check_transition(QpType::kUd, QpState::kInit, QpState::kRtr, kMaskState | kMaskPathMtu);
  ASSERT_FALSE(extra);
  EXPECT_EQ(extra.error().message, "INIT to RTR does not take IBV_QP_PATH_MTU");
}

}  // namespace
}  // namespace verbena::engine
