// SPDX-License-Identifier: Apache-2.0
#include "cm/state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace verbena::cm {
namespace {

std::vector<State> states() {
  std::vector<State> all;
  for (std::size_t i = 0; i < kStates; ++i) all.push_back(static_cast<State>(i));
  return all;
}

/// The states in which a message leads to the action.
std::set<State> where(Received message, Action wanted) {
  std::set<State> found;
  for (const State state : states())
    if (action(state, message) == wanted) found.insert(state);
  return found;
}

std::set<State> where(Call call) {
  std::set<State> found;
  for (const State state : states())
    if (may(state, call)) found.insert(state);
  return found;
}

using enum State;
using Set = std::set<State>;

// The table read by columns: all that is not named here is ignored, which the last test counts.
TEST(States, ARepeatedReq) {
  EXPECT_EQ(where(Received::kReq, Action::kDelay), Set{kReqReceived});
  EXPECT_EQ(where(Received::kReq, Action::kRepeatReply), Set{kRepSent});
  EXPECT_EQ(where(Received::kReq, Action::kRejectStale), Set{kTimewait});
}

TEST(States, AnAnswerThatTakesTime) {
  EXPECT_EQ(where(Received::kMra, Action::kTake), (Set{kReqSent, kRepSent}));
}

TEST(States, ARejection) {
  EXPECT_EQ(where(Received::kRej, Action::kTake),
            (Set{kReqSent, kMraReqReceived, kRepReceived, kReqReceived, kRepSent, kMraRepReceived,
                 kEstablished, kDreqSent}));
}

TEST(States, AReply) {
  EXPECT_EQ(where(Received::kRep, Action::kTake), (Set{kReqSent, kMraReqReceived}));
  EXPECT_EQ(where(Received::kRep, Action::kDelay), Set{kRepReceived});
  EXPECT_EQ(where(Received::kRep, Action::kRepeatReply), Set{kEstablished});
}

TEST(States, ReadyToUse) {
  EXPECT_EQ(where(Received::kRtu, Action::kTake), (Set{kRepSent, kMraRepReceived}));
}

TEST(States, TheEnd) {
  EXPECT_EQ(where(Received::kDreq, Action::kTake),
            (Set{kRepReceived, kRepSent, kMraRepReceived, kEstablished, kDreqSent}));
  EXPECT_EQ(where(Received::kDreq, Action::kRepeatReply), Set{kTimewait});
  EXPECT_EQ(where(Received::kDrep, Action::kTake), Set{kDreqSent});
}

TEST(States, AnotherPath) {
  EXPECT_EQ(where(Received::kLap, Action::kRefuseLap), Set{kEstablished});
}

TEST(States, WhatIsNotNamedAboveIsIgnored) {
  std::size_t ignored = 0;
  for (std::size_t message = 0; message < kReceived; ++message)
    ignored += where(static_cast<Received>(message), Action::kIgnore).size();
  EXPECT_EQ(ignored, kStates * kReceived - (3 + 2 + 8 + 4 + 2 + 7 + 1));
}

TEST(States, WhatAProgramMayAskFor) {
  EXPECT_EQ(where(Call::kAccept), Set{kReqReceived});
  EXPECT_EQ(where(Call::kReject), (Set{kReqReceived, kRepReceived, kRepSent, kMraRepReceived}));
  EXPECT_EQ(where(Call::kConfirm), Set{kRepReceived});
  EXPECT_EQ(where(Call::kEstablished), (Set{kRepSent, kMraRepReceived, kEstablished}));
  EXPECT_EQ(where(Call::kDisconnect), (Set{kEstablished, kDreqSent, kDreqReceived}));
}

TEST(States, EachHasAName) {
  std::set<std::string_view> names;
  for (const State state : states()) names.insert(to_string(state));
  EXPECT_EQ(names.size(), kStates);
  EXPECT_FALSE(names.contains(""));
}

}  // namespace
}  // namespace verbena::cm
