// SPDX-License-Identifier: Apache-2.0
#include "engine/types.h"

namespace verbena::engine {

std::string_view to_string(QpType type) {
  switch (type) {
    case QpType::kRc: return "RC";
    case QpType::kUc: return "UC";
    case QpType::kUd: return "UD";
    case QpType::kRawPacket: return "RAW_PACKET";
    case QpType::kXrcSend: return "XRC_SEND";
    case QpType::kXrcReceive: return "XRC_RECV";
  }
  return "unknown";
}

std::string_view to_string(QpState state) {
  switch (state) {
    case QpState::kReset: return "RESET";
    case QpState::kInit: return "INIT";
    case QpState::kRtr: return "RTR";
    case QpState::kRts: return "RTS";
    case QpState::kSqd: return "SQD";
    case QpState::kSqe: return "SQE";
    case QpState::kErr: return "ERR";
  }
  return "unknown";
}

std::string_view to_string(Status status) {
  switch (status) {
    case Status::kSuccess: return "success";
    case Status::kLocalLengthError: return "local length error";
    case Status::kLocalQpOperationError: return "local QP operation error";
    case Status::kLocalProtectionError: return "local protection error";
    case Status::kFlushError: return "work request flushed";
    case Status::kWindowBindError: return "memory window bind error";
    case Status::kBadResponseError: return "bad response";
    case Status::kLocalAccessError: return "local access error";
    case Status::kRemoteInvalidRequest: return "remote invalid request";
    case Status::kRemoteAccessError: return "remote access error";
    case Status::kRemoteOperationError: return "remote operation error";
    case Status::kRetryExceeded: return "transport retry counter exceeded";
    case Status::kRnrRetryExceeded: return "RNR retry counter exceeded";
    case Status::kRemoteAborted: return "remote aborted";
    case Status::kFatalError: return "fatal error";
    case Status::kGeneralError: return "general error";
    case Status::kTagError: return "tag matching error";
    case Status::kRendezvousIncomplete: return "rendezvous incomplete";
  }
  return "unknown";
}

std::string_view to_string(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite: return "WRITE";
    case SendOpcode::kWriteWithImm: return "WRITE_WITH_IMM";
    case SendOpcode::kSend: return "SEND";
    case SendOpcode::kSendWithImm: return "SEND_WITH_IMM";
    case SendOpcode::kRead: return "READ";
    case SendOpcode::kCompareSwap: return "CMP_AND_SWP";
    case SendOpcode::kFetchAdd: return "FETCH_AND_ADD";
    case SendOpcode::kLocalInvalidate: return "LOCAL_INV";
    case SendOpcode::kBindWindow: return "BIND_WINDOW";
    case SendOpcode::kSendWithInvalidate: return "SEND_WITH_INV";
    case SendOpcode::kFlush: return "FLUSH";
    case SendOpcode::kAtomicWrite: return "ATOMIC_WRITE";
  }
  return "unknown";
}

}  // namespace verbena::engine
