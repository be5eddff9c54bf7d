// SPDX-License-Identifier: Apache-2.0
#include "conformance/subject.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "conformance/pattern.h"
#include "conformance/values.h"

namespace verbena::conformance {
namespace {

constexpr std::uint32_t kDepth = 64;
constexpr std::size_t kSlot = 8 << 10;  ///< of the memory for receives, for each
constexpr std::size_t kSlots = 16;
constexpr std::size_t kLocal = 64 << 10;  ///< of what is sent from, and of what READs bring
constexpr std::uint32_t kReceiveLength = 4096;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

std::string error(std::string_view what) {
  return fmt::format("error: {}: {}", what, std::strerror(errno));
}

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

std::uint64_t number(const std::map<std::string, std::string, std::less<>>& fields,
                     std::string_view name, std::uint64_t otherwise) {
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : parse_number(found->second).value_or(otherwise);
}

ibv_mtu mtu_of(std::uint64_t bytes) {
  switch (bytes) {
    case 256: return IBV_MTU_256;
    case 512: return IBV_MTU_512;
    case 2048: return IBV_MTU_2048;
    case 4096: return IBV_MTU_4096;
    default: return IBV_MTU_1024;
  }
}

unsigned access_of(std::string_view letters) {
  unsigned access = 0;
  for (const char letter : letters) {
    if (letter == 'l') access |= IBV_ACCESS_LOCAL_WRITE;
    if (letter == 'w') access |= IBV_ACCESS_REMOTE_WRITE;
    if (letter == 'r') access |= IBV_ACCESS_REMOTE_READ;
    if (letter == 'a') access |= IBV_ACCESS_REMOTE_ATOMIC;
  }
  return access;
}

}  // namespace

Subject::Subject(ibv_context* context, int gid_index,
                 const std::function<void(ibv_context*)>& unblock)
    : context_(context), gid_index_(gid_index) {
  unblock(context);
}

Subject::~Subject() { close(); }

std::string Subject::obey(std::string_view line) {
  std::string verb;
  std::string word;
  Fields fields;
  for (int position = 0; !line.empty(); ++position) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view part = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    if (position == 0) verb = part;
    if (position == 1 && equals == part.size()) word = part;
    if (position > 0)
      fields[std::string(part.substr(0, equals))] = part.substr(std::min(equals + 1, part.size()));
  }
  if (verb == "hello") return hello();
  if (verb == "open") return open(fields);
  if (verb == "close") {
    close();
    return "ok";
  }
  if (qp_ == nullptr) return "error: no queue pair is open";
  if (verb == "recv") return receive(fields);
  if (verb == "post") return post(word, fields);
  if (verb == "window") return bind(word, fields);
  if (verb == "poll") return poll();
  if (verb == "event") return event();
  if (verb == "state") return state();
  if (verb == "modify") return modify(word);
  if (verb == "compare") return compare(word, fields);
  return "error: an unknown verb";
}

// Life.

std::string Subject::hello() const {
  ibv_gid gid{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (ibv_query_gid(context_, 1, gid_index_, &gid) != 0) return error("ibv_query_gid");
  ::inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  return fmt::format("ok device={} gid={}", ibv_get_device_name(context_->device), text.data());
}

std::string Subject::open(const Fields& fields) {
  close();
  std::string answer = make_memory();
  if (!answer.starts_with("error")) {
    const std::string regions = answer;
    answer = make_queues(fields);
    if (answer == "ok") answer = make_queue_pair(fields);
    if (answer == "ok") answer = connect(fields);
    if (answer == "ok") return fmt::format("ok qpn={}{}", qp_->qp_num, regions);
  }
  close();
  return answer;
}

/// Returns what the tester is told of the regions.
std::string Subject::make_memory() {
  pd_ = ibv_alloc_pd(context_);
  other_pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr || other_pd_ == nullptr) return error("ibv_alloc_pd");
  struct Kind {
    const char* name;
    std::size_t size;
    unsigned access;
    bool foreign;
  };
  const Kind kinds[] = {
      {"region", kRegionSize, kAll, false},
      {"readonly", kRegionSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, false},
      {"writeonly", kRegionSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, false},
      {"foreign", kRegionSize, kAll, true},
      {"stale", kRegionSize, kAll, false},
      {"receives", kSlot * kSlots, IBV_ACCESS_LOCAL_WRITE, false},
      {"local", kLocal, IBV_ACCESS_LOCAL_WRITE, false},
      {"landing", kLocal, IBV_ACCESS_LOCAL_WRITE, false},
  };
  std::size_t size = 0;
  for (const Kind& kind : kinds) {
    regions_[kind.name].offset = size;
    size += kind.size;
  }
  memory_.assign(size, std::byte{});
  std::string told;
  for (const Kind& kind : kinds) {
    Region& region = regions_[kind.name];
    std::byte* const at = memory_.data() + region.offset;
    const bool remote = kind.size == kRegionSize;
    for (std::size_t i = 0; remote && i < kind.size; ++i) at[i] = initial_pattern(i);
    region.mr = ibv_reg_mr(kind.foreign ? other_pd_ : pd_, at, kind.size, kind.access);
    if (region.mr == nullptr) return error("ibv_reg_mr");
    if (remote)
      told += fmt::format(" {0}.address={1} {0}.rkey={2}", kind.name,
                          reinterpret_cast<std::uintptr_t>(at), region.mr->rkey);
  }
  for (std::size_t i = 0; i < kLocal; ++i)
    memory_[regions_["local"].offset + i] = payload_pattern(i);
  ibv_dereg_mr(std::exchange(regions_["stale"].mr, nullptr));
  return told;
}

std::string Subject::make_queues(const Fields& fields) {
  const auto entries = static_cast<int>(std::min<std::uint64_t>(number(fields, "cq", kDepth), kDepth));
  send_cq_ = ibv_create_cq(context_, kDepth, nullptr, nullptr, 0);
  receive_cq_ = ibv_create_cq(context_, entries, nullptr, nullptr, 0);
  if (send_cq_ == nullptr || receive_cq_ == nullptr) return error("ibv_create_cq");
  if (!fields.contains("srq")) return "ok";
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = kDepth, .max_sge = 1, .srq_limit = 0};
  srq_ = ibv_create_srq(pd_, &init);
  return srq_ != nullptr ? "ok" : error("ibv_create_srq");
}

std::string Subject::make_queue_pair(const Fields& fields) {
  const auto type = fields.find("type");
  const std::string_view name = type == fields.end() ? "" : std::string_view(type->second);
  type_ = name == "ud" ? IBV_QPT_UD : name == "uc" ? IBV_QPT_UC : IBV_QPT_RC;
  ibv_qp_init_attr init{};
  init.send_cq = send_cq_;
  init.recv_cq = receive_cq_;
  init.srq = srq_;
  init.qp_type = type_;
  init.cap = {.max_send_wr = kDepth / 2,
              .max_recv_wr = kDepth / 2,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 32};
  qp_ = ibv_create_qp(pd_, &init);
  if (qp_ != nullptr) return "ok";
  return errno == EOPNOTSUPP ? fmt::format("unsupported: queue pairs of type {}", name)
                             : error("ibv_create_qp");
}

std::string Subject::connect(const Fields& fields) {
  const auto gid = fields.find("gid");
  if (gid == fields.end()) return "error: no gid";
  const bool ipv4 = gid->second.find(':') == std::string::npos;
  path_ = {};
  path_.is_global = 1;
  path_.port_num = 1;
  path_.grh.hop_limit = 64;
  path_.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
  if (::inet_pton(AF_INET6, ((ipv4 ? "::ffff:" : "") + gid->second).c_str(), path_.grh.dgid.raw) != 1)
    return "error: the gid is no address";
  peer_ = static_cast<std::uint32_t>(number(fields, "peer", 0));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  const auto access = fields.find("access");
  attributes.qp_access_flags = access_of(access == fields.end() ? "lwra" : access->second);
  attributes.qkey = static_cast<std::uint32_t>(number(fields, "qkey", 0));
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                   (type_ == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  errno = ibv_modify_qp(qp_, &attributes, mask);
  if (errno == 0) errno = to_rtr(fields);
  if (errno == 0 && !fields.contains("rtr")) errno = to_rts(fields);
  if (errno != 0) return error("ibv_modify_qp");
  if (type_ == IBV_QPT_UD) {
    ah_ = ibv_create_ah(pd_, &path_);
    if (ah_ == nullptr) return error("ibv_create_ah");
  }
  return "ok";
}

int Subject::to_rtr(const Fields& fields) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_of(number(fields, "mtu", 1024));
  attributes.dest_qp_num = peer_;
  attributes.rq_psn = static_cast<std::uint32_t>(number(fields, "rq-psn", 0));
  attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(number(fields, "rd", 4));
  attributes.min_rnr_timer = static_cast<std::uint8_t>(number(fields, "rnr-timer", 12));
  attributes.ah_attr = path_;
  int mask = IBV_QP_STATE;
  if (type_ != IBV_QPT_UD)
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (type_ == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(qp_, &attributes, mask);
}

int Subject::to_rts(const Fields& fields) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = static_cast<std::uint32_t>(number(fields, "sq-psn", 0));
  attributes.timeout = static_cast<std::uint8_t>(number(fields, "timeout", 0));
  attributes.retry_cnt = static_cast<std::uint8_t>(number(fields, "retry", 7));
  attributes.rnr_retry = static_cast<std::uint8_t>(number(fields, "rnr", 7));
  attributes.max_rd_atomic = static_cast<std::uint8_t>(number(fields, "rd", 4));
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (type_ == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(qp_, &attributes, mask);
}

void Subject::close() {
  if (ah_ != nullptr) ibv_destroy_ah(std::exchange(ah_, nullptr));
  if (qp_ != nullptr) ibv_destroy_qp(std::exchange(qp_, nullptr));
  if (srq_ != nullptr) ibv_destroy_srq(std::exchange(srq_, nullptr));
  if (window_ != nullptr) ibv_dealloc_mw(std::exchange(window_, nullptr));
  if (send_cq_ != nullptr) ibv_destroy_cq(std::exchange(send_cq_, nullptr));
  if (receive_cq_ != nullptr) ibv_destroy_cq(std::exchange(receive_cq_, nullptr));
  for (const auto& [name, region] : regions_) {
    if (region.mr != nullptr) ibv_dereg_mr(region.mr);
  }
  regions_.clear();
  if (pd_ != nullptr) ibv_dealloc_pd(std::exchange(pd_, nullptr));
  if (other_pd_ != nullptr) ibv_dealloc_pd(std::exchange(other_pd_, nullptr));
  receives_ = 0;
}

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
  const auto access = fields.find("access");
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(memory_.data()) + region.offset +
                                number(fields, "offset", 4096);
  const ibv_mw_bind_info info{
      .mr = region.mr,
      .addr = address,
      .length = number(fields, "length", 4096),
      .mw_access_flags = access_of(access == fields.end() ? "wra" : access->second)};
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
    const int mask = state == IBV_QPS_SQD ? IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY : IBV_QP_STATE;
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
