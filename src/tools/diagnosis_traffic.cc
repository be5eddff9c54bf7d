// SPDX-License-Identifier: Apache-2.0
//
// Sends as any verbs program would: through the C ABI, which here is that of our own library,
// linked in.
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/result.h"
#include "tools/diagnosis.h"

namespace verbena::tools {
namespace {

using Verdict = Finding::Verdict;

constexpr std::size_t kBytes = 256 << 10;
constexpr std::chrono::seconds kPatience{5};
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

template <auto Destroy>
struct Destroyer {
  void operator()(auto* object) const { static_cast<void>(Destroy(object)); }
};
using Context = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using Domain = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using Queue = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using Region = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;
using Pair = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;

std::unexpected<Error> failed(const char* what, int error) {
  return fail(static_cast<std::errc>(error), fmt::format("{}: {}", what, std::strerror(error)));
}

/// A queue pair that is connected to itself, and the memory that it writes from and to.
struct Loop {
  Context context;
  Domain domain;
  Queue queue;
  std::vector<char> memory = std::vector<char>(2 * kBytes);
  Region region;
  Pair pair;
};

Result<void> connect_to_itself(ibv_qp* pair, const ibv_gid& gid, ibv_mtu mtu) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kRights;
  int error = ibv_modify_qp(pair, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return failed("ibv_modify_qp to INIT", error);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu;
  attr.dest_qp_num = pair->qp_num;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.hop_limit = 64;
  error = ibv_modify_qp(pair, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return failed("ibv_modify_qp to RTR", error);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  error = ibv_modify_qp(pair, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return failed("ibv_modify_qp to RTS", error);
  return {};
}

Result<Loop> make_loop(ibv_device* device) {
  Loop loop;
  errno = 0;
  loop.context.reset(ibv_open_device(device));
  if (!loop.context) return failed("ibv_open_device", errno);
  loop.domain.reset(ibv_alloc_pd(loop.context.get()));
  loop.queue.reset(ibv_create_cq(loop.context.get(), 4, nullptr, nullptr, 0));
  if (!loop.domain || !loop.queue) return failed("making a queue", errno);
  loop.region.reset(ibv_reg_mr(loop.domain.get(), loop.memory.data(), loop.memory.size(), kRights));
  if (!loop.region) return failed("ibv_reg_mr", errno);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = loop.queue.get();
  init.cap = {.max_send_wr = 1,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  loop.pair.reset(ibv_create_qp(loop.domain.get(), &init));
  if (!loop.pair) return failed("ibv_create_qp", errno);
  ibv_port_attr port{};
  ibv_gid gid{};
  if (const int error = ibv_query_port(loop.context.get(), 1, &port); error != 0)
    return failed("ibv_query_port", error);
  if (ibv_query_gid(loop.context.get(), 1, 0, &gid) != 0) return failed("ibv_query_gid", errno);
  if (port.state != IBV_PORT_ACTIVE)
    return fail(std::errc::network_down, "the port is down (verbena port up)");
  VERBENA_TRY(connect_to_itself(loop.pair.get(), gid, port.active_mtu));
  return loop;
}

/// Writes the memory's first half to its second, by way of the network.
Result<void> write_around(Loop& loop) {
  for (std::size_t i = 0; i < kBytes; ++i) loop.memory[i] = static_cast<char>(i * 37 + i / 251);
  ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(loop.memory.data()),
                .length = kBytes,
                .lkey = loop.region->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {.remote_addr = piece.addr + kBytes, .rkey = loop.region->rkey};
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(loop.pair.get(), &request, &bad); error != 0)
    return failed("ibv_post_send", error);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  ibv_wc completion{};
  int count = 0;
  while (count == 0) {
    count = ibv_poll_cq(loop.queue.get(), 1, &completion);
    if (std::chrono::steady_clock::now() > end)
      return fail(std::errc::timed_out, "the data did not arrive: is UDP filtered here?");
  }
  if (count < 0) return failed("ibv_poll_cq", EIO);
  if (completion.status != IBV_WC_SUCCESS)
    return fail(std::errc::io_error,
                fmt::format("the data did not arrive: {}", ibv_wc_status_str(completion.status)));
  const auto half = loop.memory.begin() + kBytes;
  if (!std::equal(loop.memory.begin(), half, half))
    return fail(std::errc::io_error, "what arrived is not what was sent");
  return {};
}

Finding examine_device(ibv_device* device) {
  Finding finding{.subject = "traffic"};
  const char* const name = ibv_get_device_name(device);
  auto loop = make_loop(device);
  const auto written = loop ? write_around(*loop) : std::unexpected(loop.error());
  if (written) {
    finding.what = fmt::format("{} wrote {} KiB to itself, and they arrived", name, kBytes >> 10);
    return finding;
  }
  finding.verdict = Verdict::kProblem;
  finding.what = fmt::format("{}: {}", name, written.error().message);
  finding.remedy = "see what is said above; VERBENA_LOG=debug tells more";
  return finding;
}

}  // namespace

std::vector<Finding> examine_traffic() {
  int count = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(ibv_get_device_list(&count),
                                                                  ibv_free_device_list);
  if (!list)
    return {{.verdict = Verdict::kProblem,
             .subject = "traffic",
             .what = failed("cannot list the devices", errno).error().message,
             .remedy = "see what is said above"}};
  std::vector<Finding> findings;
  findings.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) findings.push_back(examine_device(list.get()[i]));
  return findings;
}

}  // namespace verbena::tools
