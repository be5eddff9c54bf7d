// SPDX-License-Identifier: Apache-2.0
#include "verbena/qp_attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace verbena::verbs {
namespace {

constexpr unsigned kPkeyPort = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr unsigned kPathOf = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr unsigned kResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr unsigned kRequester =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr unsigned kMayAtRtr = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
// A rate limit is Linux', for whatever sends.
constexpr unsigned kMayAtRts = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
                               IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT;
constexpr unsigned kMayInSqd = kPkeyPort | IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
                               IBV_QP_PATH_MIG_STATE | kRequester | kResponder;

/// What a change must bring, and what it may, by the kind of service.
struct Kind {
  unsigned must = 0;
  unsigned may = 0;
};
struct Transition {
  qp_state from;
  qp_state to;
  Kind connected;  ///< RC, and both of XRC but for what they have no half for
  Kind unreliable;
  Kind datagram;
  Kind raw;
};

constexpr unsigned kMayUc = kMayAtRts & ~IBV_QP_MIN_RNR_TIMER;
constexpr unsigned kMayUd = IBV_QP_CUR_STATE | IBV_QP_QKEY | IBV_QP_RATE_LIMIT;
constexpr unsigned kMayRaw = IBV_QP_CUR_STATE | IBV_QP_RATE_LIMIT;
constexpr std::array kTransitions{
    Transition{qp_state::reset,
               qp_state::init,
               {kPkeyPort | IBV_QP_ACCESS_FLAGS},
               {kPkeyPort | IBV_QP_ACCESS_FLAGS},
               {kPkeyPort | IBV_QP_QKEY},
               {IBV_QP_PORT}},
    Transition{qp_state::init,
               qp_state::init,
               {0, kPkeyPort | IBV_QP_ACCESS_FLAGS},
               {0, kPkeyPort | IBV_QP_ACCESS_FLAGS},
               {0, kPkeyPort | IBV_QP_QKEY},
               {}},
    Transition{qp_state::init,
               qp_state::rtr,
               {kPathOf | kResponder, kMayAtRtr},
               {kPathOf, kMayAtRtr},
               {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
               {}},
    Transition{qp_state::rtr,
               qp_state::rts,
               {kRequester | IBV_QP_SQ_PSN, kMayAtRts},
               {IBV_QP_SQ_PSN, kMayUc},
               {IBV_QP_SQ_PSN, kMayUd},
               {0, kMayRaw}},
    Transition{
        qp_state::rts, qp_state::rts, {0, kMayAtRts}, {0, kMayUc}, {0, kMayUd}, {0, kMayRaw}},
    Transition{qp_state::rts,
               qp_state::sqd,
               {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
               {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
               {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
               {}},
    Transition{
        qp_state::sqd, qp_state::rts, {0, kMayAtRts}, {0, kMayUc}, {0, kMayUd}, {0, kMayRaw}},
    Transition{qp_state::sqd,
               qp_state::sqd,
               {0, kMayInSqd},
               {0, kMayInSqd & ~(kRequester | kResponder | IBV_QP_PORT)},
               {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
               {}},
    Transition{qp_state::sqe,
               qp_state::rts,
               {},
               {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
               {0, kMayUd},
               {0, kMayRaw}},
};

/// XRC's two ends have one half each of what an RC queue pair has (IBA 14.2).
Kind of_type(const Transition& row, ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UC: return row.unreliable;
    case IBV_QPT_UD: return row.datagram;
    case IBV_QPT_RAW_PACKET: return row.raw;
    case IBV_QPT_XRC_SEND:
      return {row.connected.must & ~kResponder, row.connected.may & ~kResponder};
    case IBV_QPT_XRC_RECV: {
      const unsigned sends =
          (kRequester & ~static_cast<unsigned>(IBV_QP_TIMEOUT)) | IBV_QP_RATE_LIMIT;
      return {row.connected.must & ~sends, row.connected.may & ~sends};
    }
    default: return row.connected;
  }
}

struct Bit {
  unsigned bit;
  const char* name;
};
constexpr std::array kBits{
    Bit{IBV_QP_STATE, "IBV_QP_STATE"},
    Bit{IBV_QP_CUR_STATE, "IBV_QP_CUR_STATE"},
    Bit{IBV_QP_EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY"},
    Bit{IBV_QP_ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS"},
    Bit{IBV_QP_PKEY_INDEX, "IBV_QP_PKEY_INDEX"},
    Bit{IBV_QP_PORT, "IBV_QP_PORT"},
    Bit{IBV_QP_QKEY, "IBV_QP_QKEY"},
    Bit{IBV_QP_AV, "IBV_QP_AV"},
    Bit{IBV_QP_PATH_MTU, "IBV_QP_PATH_MTU"},
    Bit{IBV_QP_TIMEOUT, "IBV_QP_TIMEOUT"},
    Bit{IBV_QP_RETRY_CNT, "IBV_QP_RETRY_CNT"},
    Bit{IBV_QP_RNR_RETRY, "IBV_QP_RNR_RETRY"},
    Bit{IBV_QP_RQ_PSN, "IBV_QP_RQ_PSN"},
    Bit{IBV_QP_MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC"},
    Bit{IBV_QP_ALT_PATH, "IBV_QP_ALT_PATH"},
    Bit{IBV_QP_MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER"},
    Bit{IBV_QP_SQ_PSN, "IBV_QP_SQ_PSN"},
    Bit{IBV_QP_MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC"},
    Bit{IBV_QP_PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE"},
    Bit{IBV_QP_CAP, "IBV_QP_CAP"},
    Bit{IBV_QP_DEST_QPN, "IBV_QP_DEST_QPN"},
    Bit{IBV_QP_RATE_LIMIT, "IBV_QP_RATE_LIMIT"},
};

}  // namespace

unsigned qp_attributes::mask() const noexcept {
  unsigned mask = 0;
  const auto add = [&mask](bool set, unsigned bit) { mask |= set ? bit : 0U; };
  add(state.has_value(), IBV_QP_STATE);
  add(current_state.has_value(), IBV_QP_CUR_STATE);
  add(rights.has_value(), IBV_QP_ACCESS_FLAGS);
  add(of.has_value(), IBV_QP_PORT);
  add(pkey_index.has_value(), IBV_QP_PKEY_INDEX);
  add(key.has_value(), IBV_QP_QKEY);
  add(way.has_value(), IBV_QP_AV);
  add(path_mtu.has_value(), IBV_QP_PATH_MTU);
  add(dest_qp.has_value(), IBV_QP_DEST_QPN);
  add(rq_psn.has_value(), IBV_QP_RQ_PSN);
  add(sq_psn.has_value(), IBV_QP_SQ_PSN);
  add(max_rd_atomic.has_value(), IBV_QP_MAX_QP_RD_ATOMIC);
  add(max_dest_rd_atomic.has_value(), IBV_QP_MAX_DEST_RD_ATOMIC);
  add(min_rnr_timer.has_value(), IBV_QP_MIN_RNR_TIMER);
  add(timeout.has_value(), IBV_QP_TIMEOUT);
  add(retry_count.has_value(), IBV_QP_RETRY_CNT);
  add(rnr_retry.has_value(), IBV_QP_RNR_RETRY);
  add(sqd_async_notify.has_value(), IBV_QP_EN_SQD_ASYNC_NOTIFY);
  add(alternate_way.has_value(), IBV_QP_ALT_PATH);
  add(rate_limit.has_value(), IBV_QP_RATE_LIMIT);
  return mask;
}

ibv_qp_attr qp_attributes::native() const noexcept {
  ibv_qp_attr to{};
  to.qp_state = static_cast<ibv_qp_state>(state.value_or(qp_state::reset));
  to.cur_qp_state = static_cast<ibv_qp_state>(current_state.value_or(qp_state::reset));
  to.qp_access_flags = static_cast<unsigned>(rights.value_or(access::none));
  to.port_num = of.value_or(port{}).value();
  to.pkey_index = pkey_index.value_or(0);
  to.qkey = key.value_or(qkey{}).value();
  if (way) to.ah_attr = way->native();
  to.path_mtu = static_cast<ibv_mtu>(path_mtu.value_or(mtu::bytes_256));
  to.dest_qp_num = dest_qp.value_or(qp_number{}).value();
  to.rq_psn = rq_psn.value_or(psn{}).value();
  to.sq_psn = sq_psn.value_or(psn{}).value();
  to.max_rd_atomic = max_rd_atomic.value_or(0);
  to.max_dest_rd_atomic = max_dest_rd_atomic.value_or(0);
  to.min_rnr_timer = min_rnr_timer.value_or(rnr_timer{}).code();
  to.timeout = timeout.value_or(ack_timeout{}).exponent();
  to.retry_cnt = retry_count.value_or(0);
  to.rnr_retry = rnr_retry.value_or(0);
  to.en_sqd_async_notify = sqd_async_notify.value_or(false) ? 1 : 0;
  if (alternate_way) {
    to.alt_ah_attr = alternate_way->native();
    to.alt_port_num = alternate_way->from.value();
    to.alt_timeout = to.timeout;
  }
  to.rate_limit = rate_limit.value_or(0);
  return to;
}

std::string names_of_mask(unsigned mask) {
  std::vector<std::string_view> names;
  for (const Bit& bit : kBits)
    if ((mask & bit.bit) != 0) names.emplace_back(bit.name);
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, " | "));
}

Result<> check_transition(ibv_qp_type type, qp_state from, qp_state to, unsigned mask) {
  constexpr unsigned kAlways = IBV_QP_STATE;
  const auto refuse = [&](std::string what) {
    return fail(std::errc::invalid_argument, "queue_pair::modify",
                fmt::format("from {} to {}: {}", name_of(from), name_of(to), what));
  };
  // From anywhere, with nothing else.
  if (to == qp_state::reset || to == qp_state::err) {
    const unsigned superfluous = mask & ~kAlways;
    if (superfluous == 0) return {};
    return refuse("must not be there: " + names_of_mask(superfluous));
  }
  const auto row = std::ranges::find_if(
      kTransitions, [&](const Transition& one) { return one.from == from && one.to == to; });
  // Only queue pairs that go on after an error in sending have SQE (IBA 10.3.1).
  const bool has_sqe = type == IBV_QPT_UC || type == IBV_QPT_UD || type == IBV_QPT_RAW_PACKET;
  if (row == kTransitions.end() || (from == qp_state::sqe && !has_sqe))
    return refuse("there is no such transition");
  const Kind kind = of_type(*row, type);
  const unsigned missing = kind.must & ~mask;
  const unsigned superfluous = mask & ~(kind.must | kind.may | kAlways);
  if (missing != 0 && superfluous != 0)
    return refuse(fmt::format("missing: {}; must not be there: {}", names_of_mask(missing),
                              names_of_mask(superfluous)));
  if (missing != 0) return refuse("missing: " + names_of_mask(missing));
  if (superfluous != 0) return refuse("must not be there: " + names_of_mask(superfluous));
  return {};
}

}  // namespace verbena::verbs
