// SPDX-License-Identifier: Apache-2.0
#include "engine/qp_state.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

namespace verbena::engine {
namespace {

constexpr std::uint32_t kAnyTransition = 0;

/// One row: the transition, and for each type what it requires and what it may carry. From any
/// state a queue pair may go to RESET and ERR with no attribute, which is not repeated here.
struct Row {
  QpState from;
  QpState to;
  struct Attributes {
    std::uint32_t required;
    std::uint32_t optional;
    bool allowed = true;
  } ud, uc, rc, xrc_send, xrc_receive, raw;
};

constexpr std::uint32_t kConnectedInit = kMaskPkeyIndex | kMaskPort | kMaskAccess;
constexpr std::uint32_t kDatagramInit = kMaskPkeyIndex | kMaskPort | kMaskQkey;
constexpr std::uint32_t kConnect = kMaskPath | kMaskPathMtu | kMaskDestinationQp | kMaskRqPsn;
constexpr std::uint32_t kConnectOptional = kMaskAlternatePath | kMaskAccess | kMaskPkeyIndex;
constexpr std::uint32_t kUcRunning =
    kMaskCurrentState | kMaskAlternatePath | kMaskAccess | kMaskPathMigration | kMaskRateLimit;
constexpr std::uint32_t kRcRunning = kUcRunning | kMaskMinRnrTimer;
constexpr std::uint32_t kTargetRunning = kRcRunning & ~kMaskRateLimit;
/// What RC has for either direction, which the XRC types share out between them.
constexpr std::uint32_t kResponderRoom = kMaskMaxDestRdAtomic | kMaskMinRnrTimer;
constexpr std::uint32_t kRequesterRoom = kMaskMaxRdAtomic | kMaskRetryCount | kMaskRnrRetry;
constexpr std::uint32_t kReliableDrained = kMaskPort | kMaskPath | kMaskTimeout |
                                           kMaskAlternatePath | kMaskAccess | kMaskPkeyIndex |
                                           kMaskPathMigration;
constexpr std::uint32_t kDatagramRunning = kMaskCurrentState | kMaskQkey | kMaskRateLimit;

// ibv_modify_qp(3) gives the required ones; the optional ones are those of the IBA's table of queue
// pair state transition properties. The XRC types have RC's without what only the other direction
// needs, as in Linux. Whatever sends requests takes a rate limit where it runs, which Linux has for
// raw packets only; those have none here, and no attribute but the port.
constexpr std::array kTable = {
    Row{.from = QpState::kReset,
        .to = QpState::kInit,
        .ud = {kDatagramInit, 0},
        .uc = {kConnectedInit, 0},
        .rc = {kConnectedInit, 0},
        .xrc_send = {kConnectedInit, 0},
        .xrc_receive = {kConnectedInit, 0},
        .raw = {kMaskPort, 0}},
    Row{.from = QpState::kInit,
        .to = QpState::kInit,
        .ud = {0, kDatagramInit},
        .uc = {0, kConnectedInit},
        .rc = {0, kConnectedInit},
        .xrc_send = {0, kConnectedInit},
        .xrc_receive = {0, kConnectedInit},
        .raw = {0, 0}},
    Row{.from = QpState::kInit,
        .to = QpState::kRtr,
        .ud = {0, kMaskPkeyIndex | kMaskQkey},
        .uc = {kConnect, kConnectOptional},
        .rc = {kConnect | kResponderRoom, kConnectOptional},
        .xrc_send = {kConnect, kConnectOptional},
        .xrc_receive = {kConnect | kResponderRoom, kConnectOptional},
        .raw = {0, 0}},
    Row{.from = QpState::kRtr,
        .to = QpState::kRts,
        .ud = {kMaskSqPsn, kDatagramRunning},
        .uc = {kMaskSqPsn, kUcRunning},
        .rc = {kMaskSqPsn | kMaskTimeout | kRequesterRoom, kRcRunning},
        .xrc_send = {kMaskSqPsn | kMaskTimeout | kRequesterRoom, kUcRunning},
        .xrc_receive = {kMaskSqPsn | kMaskTimeout, kTargetRunning},
        .raw = {0, 0}},
    Row{.from = QpState::kRts,
        .to = QpState::kRts,
        .ud = {0, kDatagramRunning},
        .uc = {0, kUcRunning},
        .rc = {0, kRcRunning},
        .xrc_send = {0, kUcRunning},
        .xrc_receive = {0, kTargetRunning},
        .raw = {0, 0}},
    Row{.from = QpState::kRts,
        .to = QpState::kSqd,
        .ud = {0, kMaskSqdNotify},
        .uc = {0, kMaskSqdNotify},
        .rc = {0, kMaskSqdNotify},
        .xrc_send = {0, kMaskSqdNotify},
        .xrc_receive = {0, kMaskSqdNotify},
        .raw = {0, 0}},
    Row{.from = QpState::kSqd,
        .to = QpState::kRts,
        .ud = {0, kDatagramRunning},
        .uc = {0, kUcRunning},
        .rc = {0, kRcRunning},
        .xrc_send = {0, kUcRunning},
        .xrc_receive = {0, kTargetRunning},
        .raw = {0, 0}},
    Row{.from = QpState::kSqd,
        .to = QpState::kSqd,
        .ud = {0, kMaskPkeyIndex | kMaskQkey},
        .uc = {0,
               kMaskPath | kMaskAlternatePath | kMaskAccess | kMaskPkeyIndex | kMaskPathMigration},
        .rc = {0, kReliableDrained | kRequesterRoom | kResponderRoom},
        .xrc_send = {0, kReliableDrained | kRequesterRoom},
        .xrc_receive = {0, kReliableDrained | kResponderRoom},
        .raw = {0, 0}},
    Row{.from = QpState::kSqe,
        .to = QpState::kRts,
        .ud = {0, kDatagramRunning},
        .uc = {0, kMaskCurrentState | kMaskAccess},
        .rc = {0, 0, false},
        .xrc_send = {0, 0, false},
        .xrc_receive = {0, 0, false},
        .raw = {0, 0}},
};

struct MaskName {
  std::uint32_t bit;
  std::string_view name;
};

constexpr std::array kMaskNames = {
    MaskName{kMaskCurrentState, "IBV_QP_CUR_STATE"},
    MaskName{kMaskSqdNotify, "IBV_QP_EN_SQD_ASYNC_NOTIFY"},
    MaskName{kMaskAccess, "IBV_QP_ACCESS_FLAGS"},
    MaskName{kMaskPkeyIndex, "IBV_QP_PKEY_INDEX"},
    MaskName{kMaskPort, "IBV_QP_PORT"},
    MaskName{kMaskQkey, "IBV_QP_QKEY"},
    MaskName{kMaskPath, "IBV_QP_AV"},
    MaskName{kMaskPathMtu, "IBV_QP_PATH_MTU"},
    MaskName{kMaskTimeout, "IBV_QP_TIMEOUT"},
    MaskName{kMaskRetryCount, "IBV_QP_RETRY_CNT"},
    MaskName{kMaskRnrRetry, "IBV_QP_RNR_RETRY"},
    MaskName{kMaskRqPsn, "IBV_QP_RQ_PSN"},
    MaskName{kMaskMaxRdAtomic, "IBV_QP_MAX_QP_RD_ATOMIC"},
    MaskName{kMaskAlternatePath, "IBV_QP_ALT_PATH"},
    MaskName{kMaskMinRnrTimer, "IBV_QP_MIN_RNR_TIMER"},
    MaskName{kMaskSqPsn, "IBV_QP_SQ_PSN"},
    MaskName{kMaskMaxDestRdAtomic, "IBV_QP_MAX_DEST_RD_ATOMIC"},
    MaskName{kMaskPathMigration, "IBV_QP_PATH_MIG_STATE"},
    MaskName{kMaskCapabilities, "IBV_QP_CAP"},
    MaskName{kMaskDestinationQp, "IBV_QP_DEST_QPN"},
    MaskName{kMaskRateLimit, "IBV_QP_RATE_LIMIT"},
};

std::string names_of(std::uint32_t mask) {
  std::string names;
  for (const auto& [bit, name] : kMaskNames) {
    if ((mask & bit) == 0) continue;
    names += names.empty() ? "" : ", ";
    names += name;
    mask &= ~bit;
  }
  if (mask != 0) names += fmt::format("{}0x{:x}", names.empty() ? "" : ", ", mask);
  return names;
}

const Row::Attributes& cell_of(const Row& row, QpType type) {
  switch (type) {
    case QpType::kRc: return row.rc;
    case QpType::kUc: return row.uc;
    case QpType::kUd: return row.ud;
    case QpType::kXrcSend: return row.xrc_send;
    case QpType::kRawPacket: return row.raw;
    case QpType::kXrcReceive: break;
  }
  return row.xrc_receive;
}

}  // namespace

Transition transition(QpType type, QpState from, QpState to) {
  if (to == QpState::kReset || to == QpState::kErr) return {true, kAnyTransition, kAnyTransition};
  for (const Row& row : kTable) {
    if (row.from != from || row.to != to) continue;
    const Row::Attributes& cell = cell_of(row, type);
    if (!cell.allowed) break;
    return {true, cell.required, cell.optional};
  }
  return {};
}

Result<void> check_transition(QpType type, QpState from, QpState to, std::uint32_t mask) {
  const Transition cell = transition(type, from, to);
  if (!cell.allowed) {
    return fail(std::errc::invalid_argument, fmt::format("a queue pair cannot go from {} to {}",
                                                         to_string(from), to_string(to)));
  }
  mask &= ~std::uint32_t{kMaskState};
  if (const std::uint32_t missing = cell.required & ~mask; missing != 0) {
    return fail(std::errc::invalid_argument, fmt::format("{} to {} needs {}", to_string(from),
                                                         to_string(to), names_of(missing)));
  }
  if (const std::uint32_t extra = mask & ~(cell.required | cell.optional); extra != 0) {
    return fail(
        std::errc::invalid_argument,
        fmt::format("{} to {} does not take {}", to_string(from), to_string(to), names_of(extra)));
  }
  return {};
}

}  // namespace verbena::engine
