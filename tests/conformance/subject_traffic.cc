// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "conformance/pattern.h"
#include "conformance/subject.h"
#include "conformance/values.h"

namespace verbena::conformance {
namespace {

constexpr std::uint32_t kReceiveLength = 4096;

std::string_view status_name(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS: return "success";
    case IBV_WC_LOC_LEN_ERR: return "local-length";
    case IBV_WC_LOC_QP_OP_ERR: return "local-operation";
    case IBV_WC_LOC_PROT_ERR: return "local-protection";
    case IBV_WC_WR_FLUSH_ERR: return "flushed";
    case IBV_WC_MW_BIND_ERR: return "window-bind";
    case IBV_WC_BAD_RESP_ERR: return "bad-response";
    case IBV_WC_LOC_ACCESS_ERR: return "local-access";
    case IBV_WC_REM_INV_REQ_ERR: return "remote-invalid-request";
    case IBV_WC_REM_ACCESS_ERR: return "remote-access";
    case IBV_WC_REM_OP_ERR: return "remote-operation";
    case IBV_WC_RETRY_EXC_ERR: return "retries-exhausted";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "rnr-retries-exhausted";
    default: return "other";
  }
}

std::string_view opcode_of(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_SEND: return "send";
    case IBV_WC_RDMA_WRITE: return "write";
    case IBV_WC_RDMA_READ: return "read";
    case IBV_WC_COMP_SWAP: return "swap";
    case IBV_WC_FETCH_ADD: return "add";
    case IBV_WC_BIND_MW: return "bind";
    case IBV_WC_LOCAL_INV: return "invalidate";
    case IBV_WC_RECV: return "receive";
    case IBV_WC_RECV_RDMA_WITH_IMM: return "receive-write";
    default: return "other";
  }
}

}  // namespace

// Posting.

std::string Subject::receive(const Fields& fields) {
  const std::uint64_t count = number(fields, "count", 1);
  const auto length = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(number(fields, "length", kReceiveLength), kSlot));
  const Region& region = regions_["receives"];
  for (std::uint64_t i = 0; i < count && receives_ < kSlots; ++i, ++receives_) {
    ibv_sge piece{.addr = reinterpret_cast<std::uintptr_t>(memory_.data()) + region.offset +
                          receives_ * kSlot,
                  .length = length,
                  .lkey = fields.contains("wrong-key") ? ~region.mr->lkey : region.mr->lkey};
    ibv_recv_wr request{.wr_id = receives_, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    errno = srq_ != nullptr ? ibv_post_srq_recv(srq_, &request, &bad)
                            : ibv_post_recv(qp_, &request, &bad);
    if (errno != 0) return error("ibv_post_recv");
  }
  const auto limit = fields.find("srq-limit");
  if (limit == fields.end()) return "ok";
  ibv_srq_attr attributes{};
  attributes.srq_limit = static_cast<std::uint32_t>(number(fields, "srq-limit", 0));
  errno = ibv_modify_srq(srq_, &attributes, IBV_SRQ_LIMIT);
  return errno == 0 ? "ok" : error("ibv_modify_srq");
}

std::string Subject::post(std::string_view what, const Fields& fields) {
  constexpr std::array<std::pair<std::string_view, ibv_wr_opcode>, 8> kOpcodes = {{
      {"send", IBV_WR_SEND},
      {"send-imm", IBV_WR_SEND_WITH_IMM},
      {"send-inv", IBV_WR_SEND_WITH_INV},
      {"write", IBV_WR_RDMA_WRITE},
      {"write-imm", IBV_WR_RDMA_WRITE_WITH_IMM},
      {"read", IBV_WR_RDMA_READ},
      {"add", IBV_WR_ATOMIC_FETCH_AND_ADD},
      {"swap", IBV_WR_ATOMIC_CMP_AND_SWP},
  }};
  const auto* const known =
      std::ranges::find(kOpcodes, what, &std::pair<std::string_view, ibv_wr_opcode>::first);
  if (known == kOpcodes.end()) return "error: an unknown request";
  const bool atomic = what == "add" || what == "swap";
  const bool brings = atomic || what == "read";
  const std::uint64_t length = number(fields, "length", atomic ? 8 : 16);
  const std::uint64_t from = brings ? 0 : number(fields, "data", 0);
  if (from > kLocal || length > kLocal - from) return "error: beyond the local memory";
  const Region& region = regions_[brings ? "landing" : "local"];
  ibv_sge piece{.addr = reinterpret_cast<std::uintptr_t>(memory_.data()) + region.offset + from,
                .length = static_cast<std::uint32_t>(length),
                .lkey = region.mr->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = length == 0 ? 0 : 1;
  request.opcode = known->second;
  request.send_flags = 0;
  if (!fields.contains("unsignaled")) request.send_flags |= IBV_SEND_SIGNALED;
  if (fields.contains("se")) request.send_flags |= IBV_SEND_SOLICITED;
  if (fields.contains("fence")) request.send_flags |= IBV_SEND_FENCE;
  if (fields.contains("inline")) request.send_flags |= IBV_SEND_INLINE;
  request.imm_data = htonl(static_cast<std::uint32_t>(number(fields, "imm", 0)));
  if (what == "send-inv")
    request.invalidate_rkey = static_cast<std::uint32_t>(number(fields, "inv", 0));
  const std::uint64_t address = number(fields, "address", 0x10000);
  const auto rkey = static_cast<std::uint32_t>(number(fields, "rkey", 0x1234));
  if (type_ == IBV_QPT_UD) {
    request.wr.ud = {.ah = ah_,
                     .remote_qpn = static_cast<std::uint32_t>(number(fields, "qpn", peer_)),
                     .remote_qkey = static_cast<std::uint32_t>(number(fields, "qkey", 0))};
  } else if (atomic) {
    request.wr.atomic = {.remote_addr = address,
                         .compare_add = number(fields, what == "add" ? "add" : "compare", 1),
                         .swap = number(fields, "swap", 0),
                         .rkey = rkey};
  } else {
    request.wr.rdma = {.remote_addr = address, .rkey = rkey};
  }
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(qp_, &request, &bad);
  if (errno == EOPNOTSUPP) return fmt::format("unsupported: {}", what);
  return errno == 0 ? "ok" : error("ibv_post_send");
}

std::string Subject::bind(std::string_view type, const Fields& fields) {
  window_ = ibv_alloc_mw(pd_, type == "1" ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
  if (window_ == nullptr) return fmt::format("unsupported: memory windows of type {}", type);
  const Region& region = regions_["region"];
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(memory_.data()) + region.offset +
                                number(fields, "offset", 4096);
  const ibv_mw_bind_info info{.mr = region.mr,
                              .addr = address,
                              .length = number(fields, "length", 4096),
                              .mw_access_flags = access_of(fields, "wra")};
  std::uint32_t rkey = 0;
  if (type == "1") {
    ibv_mw_bind bind{.wr_id = 0, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
    errno = ibv_bind_mw(qp_, window_, &bind);
    rkey = window_->rkey;
  } else {
    rkey = ibv_inc_rkey(window_->rkey);
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw = {.mw = window_, .rkey = rkey, .bind_info = info};
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(qp_, &request, &bad);
  }
  if (errno != 0) return error("binding");
  return fmt::format("ok window.address={} window.rkey={}", address, rkey);
}

// Seeing.

std::string Subject::poll() {
  for (ibv_cq* const cq : {send_cq_, receive_cq_}) {
    ibv_wc completion{};
    const int count = ibv_poll_cq(cq, 1, &completion);
    if (count < 0) return "error: ibv_poll_cq";
    if (count == 0) continue;
    std::string text = fmt::format("ok {} status={}", cq == send_cq_ ? "send" : "recv",
                                   status_name(completion.status));
    if (completion.status != IBV_WC_SUCCESS) return text;
    text += fmt::format(" opcode={}", opcode_of(completion.opcode));
    if (cq == send_cq_) return text;
    text += fmt::format(" length={} source={} sl={}", completion.byte_len, completion.src_qp,
                        completion.sl);
    if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0)
      text += fmt::format(" imm={}", ntohl(completion.imm_data));
    if ((completion.wc_flags & IBV_WC_WITH_INV) != 0)
      text += fmt::format(" inv={}", completion.invalidated_rkey);
    return text;
  }
  return "ok none";
}

std::string Subject::event() {
  ibv_async_event event{};
  if (ibv_get_async_event(context_, &event) != 0) return "ok none";
  ibv_ack_async_event(&event);
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL: return "ok qp-fatal";
    case IBV_EVENT_QP_REQ_ERR: return "ok qp-request-error";
    case IBV_EVENT_QP_ACCESS_ERR: return "ok qp-access-error";
    case IBV_EVENT_COMM_EST: return "ok communication-established";
    case IBV_EVENT_SQ_DRAINED: return "ok send-queue-drained";
    case IBV_EVENT_QP_LAST_WQE_REACHED: return "ok last-receive-reached";
    case IBV_EVENT_SRQ_LIMIT_REACHED: return "ok srq-limit-reached";
    case IBV_EVENT_CQ_ERR: return "ok cq-error";
    default: return fmt::format("ok event-{}", static_cast<int>(event.event_type));
  }
}

std::string Subject::state() {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  errno = ibv_query_qp(qp_, &attributes, IBV_QP_STATE, &init);
  if (errno != 0) return error("ibv_query_qp");
  constexpr std::array kNames = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  const auto index = static_cast<std::size_t>(attributes.qp_state);
  return fmt::format("ok {}", index < kNames.size() ? kNames[index] : "unknown");
}

std::string Subject::modify(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, ibv_qp_state>, 4> kStates = {
      {{"SQD", IBV_QPS_SQD}, {"RTS", IBV_QPS_RTS}, {"RESET", IBV_QPS_RESET}, {"ERR", IBV_QPS_ERR}}};
  for (const auto& [known, state] : kStates) {
    if (known != name) continue;
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.en_sqd_async_notify = 1;
    const int mask =
        state == IBV_QPS_SQD ? IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY : IBV_QP_STATE;
    errno = ibv_modify_qp(qp_, &attributes, mask);
    return errno == 0 ? "ok" : error("ibv_modify_qp");
  }
  return "error: an unknown state";
}

std::string Subject::compare(std::string_view place, const Fields& fields) {
  const std::size_t plus = std::min(place.find('+'), place.size());
  std::string_view name = place.substr(0, plus);
  std::size_t offset = plus == place.size() ? 0 : parse_number(place.substr(plus + 1)).value_or(0);
  std::size_t slot = 0;
  if (name.starts_with("recv")) {
    slot = parse_number(name.substr(4)).value_or(0);
    name = "receives";
  }
  const auto region = regions_.find(name);
  const std::uint64_t length = number(fields, "length", 16);
  if (region == regions_.end() || slot >= kSlots) return "error: an unknown place";
  const std::size_t at = region->second.offset + slot * kSlot + offset;
  if (at > memory_.size() || length > memory_.size() - at) return "error: beyond the memory";
  const auto is = fields.find("is");
  if (is == fields.end()) return "error: is what?";
  const auto from = parse_number(is->second);
  for (std::size_t i = 0; i < length; ++i) {
    const std::byte wanted = is->second == "initial"     ? initial_pattern(offset + i)
                             : is->second == "untouched" ? std::byte{}
                                                         : payload_pattern(from.value_or(0) + i);
    if (memory_[at + i] != wanted)
      return fmt::format("error: byte {} is {:#04x}, must be {:#04x}", i,
                         std::to_integer<unsigned>(memory_[at + i]),
                         std::to_integer<unsigned>(wanted));
  }
  return "ok";
}

}  // namespace verbena::conformance
