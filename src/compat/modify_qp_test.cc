// SPDX-License-Identifier: Apache-2.0
//
// ibv_modify_qp(3), attribute by attribute: in each transition of each type, what is required, what
// may come along (and is told by ibv_query_qp afterwards), and what is refused and changes nothing.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

constexpr int kAllBits = ((1 << 21) - 1) | IBV_QP_RATE_LIMIT;

/// One transition of one type, as Linux's table has it (`ib_modify_qp_is_ok`), with rate limits for
/// whatever sends requests and without them for raw packets.
struct Cell {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr int kConnectedInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kDatagramInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRtrAnswers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtrMore = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRtsTries =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN;
constexpr int kRtsMore = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kTimer = IBV_QP_MIN_RNR_TIMER;
constexpr int kRate = IBV_QP_RATE_LIMIT;
constexpr int kDatagramMore = IBV_QP_CUR_STATE | IBV_QP_QKEY | kRate;
constexpr int kNotify = IBV_QP_EN_SQD_ASYNC_NOTIFY;
constexpr int kDrained =
    IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE;
constexpr int kReliableDrained = kDrained | IBV_QP_PORT | IBV_QP_TIMEOUT;
constexpr int kRequests = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

/// A connected type's cells, by what its two directions add.
std::vector<Cell> connected(int answers, int requests, int running, int drained) {
  return {{IBV_QPS_RESET, IBV_QPS_INIT, kConnectedInit, 0},
          {IBV_QPS_INIT, IBV_QPS_INIT, 0, kConnectedInit},
          {IBV_QPS_INIT, IBV_QPS_RTR, kRtr | answers, kRtrMore},
          {IBV_QPS_RTR, IBV_QPS_RTS, requests, running},
          {IBV_QPS_RTS, IBV_QPS_RTS, 0, running},
          {IBV_QPS_RTS, IBV_QPS_SQD, 0, kNotify},
          {IBV_QPS_SQD, IBV_QPS_RTS, 0, running},
          {IBV_QPS_SQD, IBV_QPS_SQD, 0, drained}};
}

std::vector<Cell> datagrams() {
  return {{IBV_QPS_RESET, IBV_QPS_INIT, kDatagramInit, 0},
          {IBV_QPS_INIT, IBV_QPS_INIT, 0, kDatagramInit},
          {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
          {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kDatagramMore},
          {IBV_QPS_RTS, IBV_QPS_RTS, 0, kDatagramMore},
          {IBV_QPS_RTS, IBV_QPS_SQD, 0, kNotify},
          {IBV_QPS_SQD, IBV_QPS_RTS, 0, kDatagramMore},
          {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
          {IBV_QPS_SQE, IBV_QPS_RTS, 0, kDatagramMore}};
}

std::vector<Cell> frames() {
  return {{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT, 0},
          {IBV_QPS_INIT, IBV_QPS_INIT, 0, 0},
          {IBV_QPS_INIT, IBV_QPS_RTR, 0, 0},
          {IBV_QPS_RTR, IBV_QPS_RTS, 0, 0},
          {IBV_QPS_RTS, IBV_QPS_RTS, 0, 0},
          {IBV_QPS_RTS, IBV_QPS_SQD, 0, 0},
          {IBV_QPS_SQD, IBV_QPS_RTS, 0, 0},
          {IBV_QPS_SQD, IBV_QPS_SQD, 0, 0}};
}

std::vector<Cell> cells_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return connected(kRtrAnswers, kRtsTries, kRtsMore | kTimer | kRate,
                       kReliableDrained | kRequests | kRtrAnswers);
    case IBV_QPT_UC: {
      std::vector<Cell> cells = connected(0, IBV_QP_SQ_PSN, kRtsMore | kRate, kDrained);
      cells.push_back({IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS});
      return cells;
    }
    case IBV_QPT_XRC_SEND:
      return connected(0, kRtsTries, kRtsMore | kRate, kReliableDrained | kRequests);
    case IBV_QPT_XRC_RECV:
      return connected(kRtrAnswers, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, kRtsMore | kTimer,
                       kReliableDrained | kRtrAnswers);
    case IBV_QPT_RAW_PACKET: return frames();
    default: return datagrams();
  }
}

/// What XRC queue pairs are given for the direction that they do not have, which is passed over.
int passed_over(ibv_qp_type type) {
  if (type == IBV_QPT_XRC_SEND) return kRtrAnswers;
  if (type == IBV_QPT_XRC_RECV) return kRequests;
  return 0;
}

/// Whether a query tells what was set; nothing for what is no attribute that stays.
std::optional<bool> tells(int bit, const ibv_qp_attr& now, const ibv_qp_attr& set) {
  switch (bit) {
    case IBV_QP_EN_SQD_ASYNC_NOTIFY: return now.en_sqd_async_notify == set.en_sqd_async_notify;
    case IBV_QP_ACCESS_FLAGS: return now.qp_access_flags == set.qp_access_flags;
    case IBV_QP_PKEY_INDEX: return now.pkey_index == set.pkey_index;
    case IBV_QP_PORT: return now.port_num == set.port_num;
    case IBV_QP_QKEY: return now.qkey == set.qkey;
    case IBV_QP_AV:
      return now.ah_attr.grh.hop_limit == set.ah_attr.grh.hop_limit &&
             std::memcmp(&now.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, sizeof(ibv_gid)) == 0;
    case IBV_QP_PATH_MTU: return now.path_mtu == set.path_mtu;
    case IBV_QP_TIMEOUT: return now.timeout == set.timeout;
    case IBV_QP_RETRY_CNT: return now.retry_cnt == set.retry_cnt;
    case IBV_QP_RNR_RETRY: return now.rnr_retry == set.rnr_retry;
    case IBV_QP_RQ_PSN: return now.rq_psn == set.rq_psn;
    case IBV_QP_MAX_QP_RD_ATOMIC: return now.max_rd_atomic == set.max_rd_atomic;
    case IBV_QP_MIN_RNR_TIMER: return now.min_rnr_timer == set.min_rnr_timer;
    case IBV_QP_SQ_PSN: return now.sq_psn == set.sq_psn;
    case IBV_QP_MAX_DEST_RD_ATOMIC: return now.max_dest_rd_atomic == set.max_dest_rd_atomic;
    case IBV_QP_PATH_MIG_STATE: return now.path_mig_state == IBV_MIG_MIGRATED;
    case IBV_QP_DEST_QPN: return now.dest_qp_num == set.dest_qp_num;
    case IBV_QP_RATE_LIMIT: return now.rate_limit == set.rate_limit;
    default: return std::nullopt;
  }
}

std::string& last_line() {
  static std::string line;
  return line;
}

class ModifyQp : public ::testing::TestWithParam<ibv_qp_type> {
 protected:
  ModifyQp() : type(GetParam()), cells(cells_of(type)), qp(make()) {
    EXPECT_NE(qp, nullptr);
    set_log_sink([](LogLevel, std::string_view line) { last_line() = line; });
    set_log_level(LogLevel::kInfo);
  }
  ~ModifyQp() override {
    set_log_sink(nullptr);
    set_log_level(LogLevel::kWarning);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_close_xrcd(domain), 0);
  }

  ibv_qp* make() {
    ibv_xrcd_init_attr open{.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                            .fd = -1,
                            .oflags = O_CREAT};
    domain = ibv_open_xrcd(end.context, &open);
    ibv_qp_init_attr_ex init{};
    init.qp_type = type;
    init.send_cq = init.recv_cq = end.cq;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
    init.pd = end.pd;
    init.xrcd = domain;
    return ibv_create_qp_ex(end.context, &init);
  }

  /// What brings a queue pair up, or, in the second set, changes every attribute of that.
  ibv_qp_attr values(ibv_qp_state from, ibv_qp_state to, bool second) const {
    ibv_qp_attr attr{};
    attr.qp_state = to;
    attr.cur_qp_state = from;
    attr.path_mtu = second ? IBV_MTU_512 : IBV_MTU_1024;
    attr.path_mig_state = IBV_MIG_MIGRATED;
    attr.qkey = second ? 0x777 : 0x111;
    attr.rq_psn = second ? 0x1234 : 1;
    attr.sq_psn = second ? 0x5678 : 2;
    attr.dest_qp_num = second ? 77 : 76;
    attr.qp_access_flags = second ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ : 0;
    attr.ah_attr = testing::address_of(peer);
    attr.ah_attr.grh.hop_limit = second ? 33 : 64;
    attr.en_sqd_async_notify = second ? 1 : 0;
    attr.max_rd_atomic = second ? 3 : 1;
    attr.max_dest_rd_atomic = second ? 2 : 1;
    attr.min_rnr_timer = second ? 9 : 1;
    attr.port_num = 1;
    attr.timeout = second ? 17 : 14;
    attr.retry_cnt = second ? 5 : 7;
    attr.rnr_retry = second ? 6 : 7;
    attr.rate_limit = second ? 5000 : 0;
    return attr;
  }
  int modify(ibv_qp_attr attr, int mask) const { return ibv_modify_qp(qp, &attr, mask); }
  ibv_qp_attr query() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, kAllBits, &init), 0);
    return attr;
  }
  const Cell& cell(ibv_qp_state from, ibv_qp_state to) const {
    return *std::ranges::find_if(
        cells, [&](const Cell& each) { return each.from == from && each.to == to; });
  }
  void step(ibv_qp_state from, ibv_qp_state to) const {
    const int mask = IBV_QP_STATE | cell(from, to).required;
    ASSERT_EQ(modify(values(from, to, false), mask), 0) << last_line();
  }
  /// From wherever it is to `state`.
  void bring_to(ibv_qp_state state) const {
    ASSERT_EQ(modify(values(IBV_QPS_RESET, IBV_QPS_RESET, false), IBV_QP_STATE), 0);
    if (state == IBV_QPS_RESET) return;
    step(IBV_QPS_RESET, IBV_QPS_INIT);
    if (state == IBV_QPS_INIT) return;
    step(IBV_QPS_INIT, IBV_QPS_RTR);
    if (state == IBV_QPS_RTR) return;
    step(IBV_QPS_RTR, IBV_QPS_RTS);
    if (state == IBV_QPS_SQD) return step(IBV_QPS_RTS, IBV_QPS_SQD);
    if (state == IBV_QPS_SQE) return fail_a_send();
  }
  /// Unreliable ones go to SQE by a request that fails.
  void fail_a_send() const {
    ibv_ah_attr to = testing::address_of(peer);
    ibv_ah* const ah = ibv_create_ah(end.pd, &to);
    ibv_sge piece{.addr = end.address(0), .length = 8, .lkey = end.mr->lkey ^ 1};
    ibv_send_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {.ah = ah, .remote_qpn = 5, .remote_qkey = 5};
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    EXPECT_EQ(end.await().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(query().qp_state, IBV_QPS_SQE);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
  }

  /// One bit beside or without what is required.
  void try_bit(const Cell& in, int bit) const {
    const ibv_qp_attr second = values(in.from, in.to, true);
    const int all = IBV_QP_STATE | in.required;
    const bool required = (in.required & bit) != 0;
    const bool accepted = ((in.optional | passed_over(type)) & bit) != 0;
    if (required) {
      EXPECT_EQ(modify(second, all & ~bit), EINVAL);
    } else if (!accepted) {
      EXPECT_EQ(modify(second, all | bit), EINVAL);
    }
    if (required || !accepted) {
      EXPECT_EQ(query().qp_state, in.from);
      EXPECT_FALSE(last_line().empty());
    }
    if (!required && !accepted) return;
    ASSERT_EQ(modify(second, all | bit), 0) << last_line();
    const ibv_qp_attr now = query();
    EXPECT_EQ(now.qp_state, in.to);
    EXPECT_EQ(qp->state, in.to);
    if ((passed_over(type) & bit) == 0) {
      EXPECT_TRUE(tells(bit, now, second).value_or(true));
    }
    bring_to(in.from);
  }

  Devices devices;
  End end{devices, 0};
  End peer{devices, 1};
  ibv_xrcd* domain = nullptr;
  ibv_qp_type type;
  std::vector<Cell> cells;
  ibv_qp* qp;
};

TEST_P(ModifyQp, TakesWhatATransitionNeedsAndMayHaveAndNothingElse) {
  for (const Cell& each : cells) {
    ASSERT_NO_FATAL_FAILURE(bring_to(each.from));
    for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
      SCOPED_TRACE(std::to_string(each.from) + " to " + std::to_string(each.to) + ", bit " +
                   std::to_string(bit));
      last_line().clear();
      ASSERT_NO_FATAL_FAILURE(try_bit(each, bit));
    }
    EXPECT_EQ(modify(values(each.from, each.to, true), IBV_QP_STATE | each.required), 0);
  }
}

TEST_P(ModifyQp, GoesNowhereElse) {
  for (const Cell& each : cells) {
    ASSERT_NO_FATAL_FAILURE(bring_to(each.from));
    for (int to = IBV_QPS_RESET; to <= IBV_QPS_SQE; ++to) {
      const auto state = static_cast<ibv_qp_state>(to);
      const bool known = std::ranges::any_of(
          cells, [&](const Cell& other) { return other.from == each.from && other.to == state; });
      if (known || state == IBV_QPS_RESET) continue;
      EXPECT_EQ(modify(values(each.from, state, true), IBV_QP_STATE), EINVAL)
          << each.from << " to " << to;
      EXPECT_EQ(query().qp_state, each.from);
    }
    EXPECT_EQ(modify(values(each.from, IBV_QPS_ERR, true), IBV_QP_STATE | IBV_QP_PORT), EINVAL);
    EXPECT_EQ(modify(values(each.from, IBV_QPS_ERR, true), IBV_QP_STATE), 0);
    EXPECT_EQ(query().qp_state, IBV_QPS_ERR);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ModifyQp,
                         ::testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
                                           IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET),
                         [](const auto& one) {
                           switch (one.param) {
                             case IBV_QPT_RC: return "Rc";
                             case IBV_QPT_UC: return "Uc";
                             case IBV_QPT_UD: return "Ud";
                             case IBV_QPT_XRC_SEND: return "XrcSend";
                             case IBV_QPT_XRC_RECV: return "XrcReceive";
                             default: return "RawPacket";
                           }
                         });

class ModifyRc : public ModifyQp {
 protected:
  /// What a changed value is answered with where everything else is right.
  template <typename Change>
  int with(const Cell& in, int bits, Change change) const {
    ibv_qp_attr attr = values(in.from, in.to, true);
    change(attr);
    const int error = modify(attr, IBV_QP_STATE | in.required | bits);
    EXPECT_EQ(query().qp_state, in.from);
    return error;
  }
};

TEST_P(ModifyRc, ValuesOutOfRangeChangeNothing) {
  using A = ibv_qp_attr;
  ASSERT_NO_FATAL_FAILURE(bring_to(IBV_QPS_RESET));
  const Cell& init = cell(IBV_QPS_RESET, IBV_QPS_INIT);
  EXPECT_EQ(with(init, 0, [](A& attr) { attr.port_num = 0; }), EINVAL);
  EXPECT_EQ(with(init, 0, [](A& attr) { attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(with(init, 0, [](A& attr) { attr.pkey_index = 1; }), EINVAL);
  ASSERT_NO_FATAL_FAILURE(bring_to(IBV_QPS_INIT));
  const Cell& rtr = cell(IBV_QPS_INIT, IBV_QPS_RTR);
  EXPECT_EQ(with(rtr, 0, [](A& attr) { attr.dest_qp_num = 1 << 24; }), EINVAL);
  EXPECT_EQ(with(rtr, 0, [](A& attr) { attr.min_rnr_timer = 32; }), EINVAL);
  EXPECT_EQ(with(rtr, 0, [](A& attr) { attr.max_dest_rd_atomic = 255; }), EINVAL);
  EXPECT_EQ(with(rtr, 0, [](A& attr) { attr.path_mtu = testing::wrong_value<ibv_mtu>(0); }),
            EINVAL);
  EXPECT_EQ(with(rtr, 0, [](A& attr) { attr.ah_attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(with(rtr, 0, [](A& attr) { attr.ah_attr.grh.sgid_index = 255; }), EINVAL);
  EXPECT_EQ(with(rtr, 0, [](A& attr) { attr.ah_attr.grh.dgid.raw[10] = 0; }), EINVAL);  // is IPv6
  ASSERT_NO_FATAL_FAILURE(bring_to(IBV_QPS_RTR));
  const Cell& rts = cell(IBV_QPS_RTR, IBV_QPS_RTS);
  EXPECT_EQ(with(rts, 0, [](A& attr) { attr.timeout = 32; }), EINVAL);
  EXPECT_EQ(with(rts, 0, [](A& attr) { attr.retry_cnt = 8; }), EINVAL);
  EXPECT_EQ(with(rts, 0, [](A& attr) { attr.rnr_retry = 8; }), EINVAL);
  EXPECT_EQ(with(rts, 0, [](A& attr) { attr.max_rd_atomic = 255; }), EINVAL);
  EXPECT_EQ(with(rts, IBV_QP_CUR_STATE, [](A& attr) { attr.cur_qp_state = IBV_QPS_RTS; }), EINVAL);
  EXPECT_EQ(with(rts, IBV_QP_CUR_STATE,
                 [](A& attr) { attr.cur_qp_state = testing::wrong_value<ibv_qp_state>(9); }),
            EINVAL);
  EXPECT_EQ(with(rts, 1 << 28, [](A&) {}), EINVAL);
  EXPECT_EQ(modify(values(IBV_QPS_RTR, IBV_QPS_RTS, true), IBV_QP_STATE | rts.required), 0);
}

/// As Linux on RoCE, which has no automatic path migration.
TEST_P(ModifyRc, PathsDoNotMigrate) {
  using A = ibv_qp_attr;
  ASSERT_NO_FATAL_FAILURE(bring_to(IBV_QPS_INIT));
  const auto alternate = [this](A& attr) {
    attr.alt_ah_attr = testing::address_of(peer);
    attr.alt_port_num = 1;
  };
  EXPECT_EQ(with(cell(IBV_QPS_INIT, IBV_QPS_RTR), IBV_QP_ALT_PATH, alternate), EINVAL);
  EXPECT_EQ(last_line(), "ibv_modify_qp: a RoCE queue pair has no alternate path");
  ASSERT_NO_FATAL_FAILURE(bring_to(IBV_QPS_RTR));
  const Cell& rts = cell(IBV_QPS_RTR, IBV_QPS_RTS);
  EXPECT_EQ(with(rts, IBV_QP_PATH_MIG_STATE, [](A& attr) { attr.path_mig_state = IBV_MIG_REARM; }),
            EINVAL);
  EXPECT_EQ(with(rts, IBV_QP_PATH_MIG_STATE, [](A& attr) { attr.path_mig_state = IBV_MIG_ARMED; }),
            EINVAL);
  EXPECT_EQ(last_line(), "ibv_modify_qp: paths do not migrate on RoCE");
}

TEST_P(ModifyRc, TheLogNamesWhatIsMissingOrTooMuch) {
  ASSERT_NO_FATAL_FAILURE(bring_to(IBV_QPS_RESET));
  const ibv_qp_attr attr = values(IBV_QPS_RESET, IBV_QPS_INIT, true);
  EXPECT_EQ(modify(attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
  EXPECT_EQ(last_line(),
            "ibv_modify_qp: RESET to INIT needs IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX");
  EXPECT_EQ(modify(attr, IBV_QP_STATE | kConnectedInit | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(last_line(), "ibv_modify_qp: RESET to INIT does not take IBV_QP_QKEY");
  EXPECT_EQ(modify(values(IBV_QPS_RESET, IBV_QPS_RTS, true), IBV_QP_STATE), EINVAL);
  EXPECT_EQ(last_line(), "ibv_modify_qp: a queue pair cannot go from RESET to RTS");
}

INSTANTIATE_TEST_SUITE_P(Values, ModifyRc, ::testing::Values(IBV_QPT_RC));

}  // namespace
}  // namespace verbena::compat
