// SPDX-License-Identifier: Apache-2.0
#include "cm/state.h"

#include <array>

#include "cm/mutants.h"

namespace verbena::cm {
namespace {

using enum Action;

struct Row {
  std::string_view name;
  std::array<Action, kReceived> actions;
  std::array<bool, kCalls> calls;
};

// As Linux's `cm.c`, but where it leaves the other end waiting: a REQ that comes again after the
// REP has gone gets that REP again at once, and one for a connection that is over hears that it is
// stale; who has not sent the RTU yet hears that it is over. Who waits for an RTU rejects and does
// not disconnect: a client without the REP would not know what is to end.
// clang-format off
constexpr std::array<Row, kStates> kTable{{
    //                       REQ           MRA      REJ      REP           RTU      DREQ          DREP     LAP            accept reject confirm establ. disconnect
    {"REQ sent",           {{kIgnore,      kTake,   kTake,   kTake,        kIgnore, kIgnore,      kIgnore, kIgnore}},    {{false, false, false, false, false}}},
    {"MRA for REQ received", {{kIgnore,    kIgnore,   kTake,   kTake,        kIgnore, kIgnore,      kIgnore, kIgnore}},    {{false, false, false, false, false}}},
    {"REP received",       {{kIgnore,      kIgnore, kTake,   kDelay,       kIgnore, kTake,        kIgnore, kIgnore}},    {{false, true,  true,  false, false}}},
    {"REQ received",       {{kDelay,       kIgnore, kTake,   kIgnore,      kIgnore, kIgnore,      kIgnore, kIgnore}},    {{true,  true,  false, false, false}}},
    {"REP sent",           {{kRepeatReply, kTake,   kTake,   kIgnore,      kTake,   kTake,        kIgnore, kIgnore}},    {{false, true,  false, true,  false}}},
    {"MRA for REP received", {{kIgnore,    kIgnore,   kTake,   kIgnore,      kTake,   kTake,        kIgnore, kIgnore}},    {{false, true,  false, true,  false}}},
    {"established",        {{kIgnore,      kIgnore, kTake,   kRepeatReply, kIgnore, kTake,        kIgnore, kRefuseLap}}, {{false, false, false, true,  true}}},
    {"DREQ sent",          {{kIgnore,      kIgnore, kTake,   kIgnore,      kIgnore, kTake,        kTake,   kIgnore}},    {{false, false, false, false, true}}},
    {"DREQ received",      {{kIgnore,      kIgnore, kIgnore, kIgnore,      kIgnore, kIgnore,      kIgnore, kIgnore}},    {{false, false, false, false, true}}},
    {"timewait",           {{kRejectStale, kIgnore, kIgnore, kIgnore,      kIgnore, kRepeatReply, kIgnore, kIgnore}},    {{false, false, false, false, false}}},
}};
// clang-format on

const Row& row(State state) { return kTable[static_cast<std::size_t>(state)]; }

}  // namespace

Action action(State state, Received message) {
  if (mutant(Mutant::kPatienceTwice) && state == State::kMraReqReceived &&
      message == Received::kMra)
    return kTake;
  return row(state).actions[static_cast<std::size_t>(message)];
}

bool may(State state, Call call) { return row(state).calls[static_cast<std::size_t>(call)]; }

std::string_view to_string(State state) { return row(state).name; }

}  // namespace verbena::cm
