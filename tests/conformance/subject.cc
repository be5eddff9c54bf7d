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

// IBV_ACCESS_FLUSH_GLOBAL, which headers of older versions do not have.
constexpr unsigned kFlushGlobal = 1U << 8;

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

ibv_mtu mtu_of(std::uint64_t bytes) {
  switch (bytes) {
    case 256: return IBV_MTU_256;
    case 512: return IBV_MTU_512;
    case 2048: return IBV_MTU_2048;
    case 4096: return IBV_MTU_4096;
    default: return IBV_MTU_1024;
  }
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
  const auto entries =
      static_cast<int>(std::min<std::uint64_t>(number(fields, "cq", kDepth), kDepth));
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
  if (::inet_pton(AF_INET6, ((ipv4 ? "::ffff:" : "") + gid->second).c_str(), path_.grh.dgid.raw) !=
      1)
    return "error: the gid is no address";
  peer_ = static_cast<std::uint32_t>(number(fields, "peer", 0));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = access_of(fields, "lwra");
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
  if (type_ != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
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

// What lines say.

std::uint64_t Subject::number(const Fields& fields, std::string_view name,
                              std::uint64_t otherwise) {
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : parse_number(found->second).value_or(otherwise);
}

unsigned Subject::access_of(const Fields& fields, std::string_view otherwise) {
  const auto found = fields.find("access");
  unsigned access = 0;
  for (const char letter : found == fields.end() ? otherwise : std::string_view(found->second)) {
    if (letter == 'l') access |= IBV_ACCESS_LOCAL_WRITE;
    if (letter == 'w') access |= IBV_ACCESS_REMOTE_WRITE;
    if (letter == 'r') access |= IBV_ACCESS_REMOTE_READ;
    if (letter == 'a') access |= IBV_ACCESS_REMOTE_ATOMIC;
    if (letter == 'f') access |= kFlushGlobal;
  }
  return access;
}

std::string Subject::error(std::string_view what) {
  return fmt::format("error: {}: {}", what, std::strerror(errno));
}

}  // namespace verbena::conformance
