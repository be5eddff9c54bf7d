// SPDX-License-Identifier: Apache-2.0
#include "compat/qp_attributes.h"

#include "compat/path.h"
#include "compat/query.h"

namespace verbena::compat {
namespace {

// The engine counts as the C ABI does, so that a mask or a state is the same number in both.
constexpr unsigned mask_of(engine::QpMask mask) { return mask; }
static_assert(mask_of(engine::kMaskState) == IBV_QP_STATE);
static_assert(mask_of(engine::kMaskCurrentState) == IBV_QP_CUR_STATE);
static_assert(mask_of(engine::kMaskSqdNotify) == IBV_QP_EN_SQD_ASYNC_NOTIFY);
static_assert(mask_of(engine::kMaskAccess) == IBV_QP_ACCESS_FLAGS);
static_assert(mask_of(engine::kMaskPkeyIndex) == IBV_QP_PKEY_INDEX);
static_assert(mask_of(engine::kMaskPort) == IBV_QP_PORT);
static_assert(mask_of(engine::kMaskQkey) == IBV_QP_QKEY);
static_assert(mask_of(engine::kMaskPath) == IBV_QP_AV);
static_assert(mask_of(engine::kMaskPathMtu) == IBV_QP_PATH_MTU);
static_assert(mask_of(engine::kMaskTimeout) == IBV_QP_TIMEOUT);
static_assert(mask_of(engine::kMaskRetryCount) == IBV_QP_RETRY_CNT);
static_assert(mask_of(engine::kMaskRnrRetry) == IBV_QP_RNR_RETRY);
static_assert(mask_of(engine::kMaskRqPsn) == IBV_QP_RQ_PSN);
static_assert(mask_of(engine::kMaskMaxRdAtomic) == IBV_QP_MAX_QP_RD_ATOMIC);
static_assert(mask_of(engine::kMaskAlternatePath) == IBV_QP_ALT_PATH);
static_assert(mask_of(engine::kMaskMinRnrTimer) == IBV_QP_MIN_RNR_TIMER);
static_assert(mask_of(engine::kMaskSqPsn) == IBV_QP_SQ_PSN);
static_assert(mask_of(engine::kMaskMaxDestRdAtomic) == IBV_QP_MAX_DEST_RD_ATOMIC);
static_assert(mask_of(engine::kMaskPathMigration) == IBV_QP_PATH_MIG_STATE);
static_assert(mask_of(engine::kMaskCapabilities) == IBV_QP_CAP);
static_assert(mask_of(engine::kMaskDestinationQp) == IBV_QP_DEST_QPN);
static_assert(mask_of(engine::kMaskRateLimit) == IBV_QP_RATE_LIMIT);

constexpr int state_of(engine::QpState state) { return static_cast<int>(state); }
static_assert(state_of(engine::QpState::kReset) == IBV_QPS_RESET);
static_assert(state_of(engine::QpState::kInit) == IBV_QPS_INIT);
static_assert(state_of(engine::QpState::kRtr) == IBV_QPS_RTR);
static_assert(state_of(engine::QpState::kRts) == IBV_QPS_RTS);
static_assert(state_of(engine::QpState::kSqd) == IBV_QPS_SQD);
static_assert(state_of(engine::QpState::kSqe) == IBV_QPS_SQE);
static_assert(state_of(engine::QpState::kErr) == IBV_QPS_ERR);

constexpr std::uint32_t kKnownMask = ((1u << 21) - 1) | IBV_QP_RATE_LIMIT;

// Programs set for XRC queue pairs what they set for RC, and Linux passes over the other
// direction's part of it.
constexpr std::uint32_t kUselessForSender = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr std::uint32_t kUselessForTarget =
    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;

Result<engine::QpState> to_state(std::uint32_t state) {
  if (state > IBV_QPS_ERR) return fail(std::errc::invalid_argument, "no such state");
  return static_cast<engine::QpState>(state);
}

Result<void> check_values(const Qp& qp, const ibv_qp_attr& attr, std::uint32_t mask) {
  const nic::NicConfig& config = qp.nic->config();
  if ((mask & ~kKnownMask) != 0)
    return fail(std::errc::invalid_argument, "unknown bits in the mask");
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != kPort) {
    return fail(std::errc::invalid_argument, "the device has port 1 only");
  }
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index >= kPkeyTableLength) {
    return fail(std::errc::invalid_argument, "no such entry in the P_Key table");
  }
  const std::uint32_t mtu = number_of(attr.path_mtu);
  if ((mask & IBV_QP_PATH_MTU) != 0 && (mtu < IBV_MTU_256 || mtu > to_mtu(config.max_mtu))) {
    return fail(std::errc::invalid_argument, "the path MTU is above the port's");
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > config.limits.max_rd_atomic) {
    return fail(std::errc::invalid_argument, "max_rd_atomic is above the device's limit");
  }
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && number_of(attr.path_mig_state) != IBV_MIG_MIGRATED)
    return fail(std::errc::invalid_argument, "paths do not migrate on RoCE");
  if ((mask & IBV_QP_RATE_LIMIT) != 0 && attr.rate_limit > kMaxRateLimit)
    return fail(std::errc::invalid_argument, "the rate limit is above the device's");
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 &&
      attr.max_dest_rd_atomic > config.limits.max_rd_atomic) {
    return fail(std::errc::invalid_argument, "max_dest_rd_atomic is above the device's limit");
  }
  return {};
}

}  // namespace

std::uint32_t meaningful(ibv_qp_type type, std::uint32_t mask) {
  switch (type) {
    case IBV_QPT_XRC_SEND: return mask & ~kUselessForSender;
    case IBV_QPT_XRC_RECV: return mask & ~kUselessForTarget;
    default: return mask;
  }
}

Result<engine::QpAttributes> to_engine(const Qp& qp, const ibv_qp_attr& attr, std::uint32_t mask) {
  VERBENA_TRY(check_values(qp, attr, mask));
  engine::QpAttributes to;
  if ((mask & IBV_QP_STATE) != 0) to.state = VERBENA_TRY(to_state(number_of(attr.qp_state)));
  if ((mask & IBV_QP_CUR_STATE) != 0)
    to.current_state = VERBENA_TRY(to_state(number_of(attr.cur_qp_state)));
  if ((mask & IBV_QP_AV) != 0) {
    const std::uint32_t remote = (mask & IBV_QP_DEST_QPN) != 0 ? attr.dest_qp_num : 0;
    to.path = VERBENA_TRY(to_path(*qp.nic, attr.ah_attr, qp.qp_base.qp_num, remote));
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) to.path_mtu = to_bytes(attr.path_mtu);
  to.sqd_notify = attr.en_sqd_async_notify != 0;
  to.access = attr.qp_access_flags;
  to.pkey_index = attr.pkey_index;
  to.port = attr.port_num;
  to.qkey = attr.qkey;
  to.timeout = attr.timeout;
  to.retry_count = attr.retry_cnt;
  to.rnr_retry = attr.rnr_retry;
  to.rq_psn = attr.rq_psn;
  to.sq_psn = attr.sq_psn;
  to.max_rd_atomic = attr.max_rd_atomic;
  to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  to.min_rnr_timer = attr.min_rnr_timer;
  to.destination_qp = attr.dest_qp_num;
  if ((mask & IBV_QP_RATE_LIMIT) != 0) to.rate_limit = attr.rate_limit;
  return to;
}

ibv_qp_attr from_engine(const Qp& qp, const engine::QpAttributes& attributes) {
  ibv_qp_attr to{};
  to.qp_state = static_cast<ibv_qp_state>(attributes.state);
  to.cur_qp_state = to.qp_state;
  to.path_mtu = to_mtu(attributes.path_mtu);
  to.path_mig_state = IBV_MIG_MIGRATED;
  to.qkey = attributes.qkey;
  to.rq_psn = attributes.rq_psn;
  to.sq_psn = attributes.sq_psn;
  to.dest_qp_num = attributes.destination_qp;
  to.qp_access_flags = attributes.access;
  to.cap = qp.init.cap;
  to.ah_attr = from_path(*qp.nic, attributes.path);
  to.pkey_index = attributes.pkey_index;
  to.en_sqd_async_notify = attributes.sqd_notify ? 1 : 0;
  to.sq_draining = attributes.sq_draining ? 1 : 0;
  to.max_rd_atomic = attributes.max_rd_atomic;
  to.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  to.min_rnr_timer = attributes.min_rnr_timer;
  to.port_num = attributes.port;
  to.timeout = attributes.timeout;
  to.retry_cnt = attributes.retry_count;
  to.rnr_retry = attributes.rnr_retry;
  to.rate_limit = attributes.rate_limit;
  return to;
}

}  // namespace verbena::compat
