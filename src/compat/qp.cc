// SPDX-License-Identifier: Apache-2.0
// Queue pairs: ibv_create_qp(3), ibv_create_qp_ex(3), ibv_open_qp(3), ibv_modify_qp(3),
// ibv_modify_qp_rate_limit(3), ibv_query_qp(3).
#include <atomic>

#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/qp_attributes.h"
#include "compat/query.h"
#include "compat/real.h"
#include "compat/work_builder.h"
#include "nic/work_queue.h"

namespace verbena::compat {
namespace {

static_assert(static_cast<int>(engine::QpType::kRc) == IBV_QPT_RC);
static_assert(static_cast<int>(engine::QpType::kUc) == IBV_QPT_UC);
static_assert(static_cast<int>(engine::QpType::kUd) == IBV_QPT_UD);
static_assert(static_cast<int>(engine::QpType::kRawPacket) == IBV_QPT_RAW_PACKET);
static_assert(static_cast<int>(engine::QpType::kXrcSend) == IBV_QPT_XRC_SEND);
static_assert(static_cast<int>(engine::QpType::kXrcReceive) == IBV_QPT_XRC_RECV);

bool is_here(const ibv_context* context, const auto* object) {
  return object != nullptr && object->context == context;
}

/// Of everything but an XRC target, which has none of it.
Result<nic::QpInit> to_init(ibv_pd& pd, const ibv_qp_init_attr& attr) {
  const std::uint32_t type = number_of(attr.qp_type);
  if (type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD &&
      type != IBV_QPT_RAW_PACKET && type != IBV_QPT_XRC_SEND)
    return fail(std::errc::operation_not_supported, "queue pairs are RC, UC, UD, raw or XRC");
  const bool receives = type != IBV_QPT_XRC_SEND;
  if (!is_here(pd.context, attr.send_cq) || (receives && !is_here(pd.context, attr.recv_cq)))
    return fail(std::errc::invalid_argument, "a queue pair needs completion queues of its context");
  const bool shares = receives && attr.srq != nullptr;
  if (shares && (!is_here(pd.context, attr.srq) || Srq::of(attr.srq).is_xrc()))
    return fail(std::errc::invalid_argument, "no basic shared receive queue of this context");
  nic::QpInit init;
  init.type = static_cast<engine::QpType>(type);
  init.pd = VERBENA_TRY(domain_of(&pd));
  init.send_cq = Cq::of(attr.send_cq).queue;
  init.max_send_wr = attr.cap.max_send_wr;
  init.max_send_sge = attr.cap.max_send_sge;
  init.max_inline = attr.cap.max_inline_data;
  init.signal_all = attr.sq_sig_all != 0;
  if (!receives) return init;
  init.receive_cq = Cq::of(attr.recv_cq).queue;
  if (shares) init.srq = Srq::of(attr.srq).queue;
  init.max_receive_wr = attr.cap.max_recv_wr;
  init.max_receive_sge = attr.cap.max_recv_sge;
  return init;
}

/// Fills in what programs see of a queue pair that the NIC has made or opened for `qp`.
void set_public_part(Qp& qp, ibv_context* context, ibv_pd* pd, const ibv_qp_init_attr& attr) {
  const bool receives = attr.qp_type != IBV_QPT_XRC_SEND;
  ibv_qp& base = qp.qp_base;
  base.context = context;
  base.qp_context = attr.qp_context;
  base.pd = pd;
  base.send_cq = attr.send_cq;
  base.recv_cq = receives ? attr.recv_cq : nullptr;
  base.srq = receives ? attr.srq : nullptr;
  base.qp_num = base.handle = qp.nic->number(qp.pair);
  base.state = IBV_QPS_RESET;
  base.qp_type = attr.qp_type;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
  qp.init = attr;
  qp.max_send_sge = attr.cap.max_send_sge;
  qp.max_receive_sge = attr.cap.max_recv_sge;
}

/// `pd` is null for an XRC target.
Result<Qp*> create_qp(ibv_context* context, ibv_pd* pd, nic::QpInit init, ibv_qp_init_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(context));
  auto qp = std::make_unique<Qp>();
  qp->nic = ours.nic.get();
  qp->generation = ours.generation;
  qp->pair = VERBENA_TRY(ours.nic->create_qp(init, qp.get()));
  attr.cap = {init.max_send_wr, init.max_receive_wr, init.max_send_sge, init.max_receive_sge,
              init.max_inline};
  set_public_part(*qp, context, pd, attr);
  enter(ours, &Context::qps, *qp);
  return qp.release();
}

Result<Qp*> create_plain(ibv_pd& pd, ibv_qp_init_attr& attr, bool blocks_own_multicasts = false) {
  nic::QpInit init = VERBENA_TRY(to_init(pd, attr));
  init.blocks_own_multicasts = blocks_own_multicasts;
  return create_qp(pd.context, &pd, init, attr);
}

/// Nothing but the domain matters of what is given for a target (ibv_create_qp_ex(3)).
Result<Qp*> create_target(ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || !is_here(context, attr.xrcd))
    return fail(std::errc::invalid_argument, "no XRC domain of this context");
  ibv_qp_init_attr plain{};
  plain.qp_context = attr.qp_context;
  plain.qp_type = attr.qp_type;
  return create_qp(context, nullptr,
                   {.type = engine::QpType::kXrcReceive, .domain = Xrcd::of(attr.xrcd).domain},
                   plain);
}

bool blocks_own_multicasts(const ibv_qp_init_attr_ex& attr) {
  return (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
         (attr.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0;
}

Result<void> check_create_flags(const ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) == 0) return {};
  const std::uint32_t known = attr.qp_type == IBV_QPT_UD ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
  if ((attr.create_flags & ~known) == 0) return {};
  return fail(std::errc::operation_not_supported, "a create flag that the type does not know");
}

/// How one spreads that is made with a table of work queues.
Result<nic::Spreading> to_spreading(ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t kNeeded = IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
  const ibv_rx_hash_conf& hash = attr.rx_hash_conf;
  if ((attr.comp_mask & kNeeded) != kNeeded || !is_here(context, attr.rwq_ind_tbl))
    return fail(std::errc::invalid_argument, "a hash and a table of this context are needed");
  if (number_of(attr.qp_type) != IBV_QPT_RAW_PACKET || attr.cap.max_send_wr != 0 ||
      hash.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ ||
      (hash.rx_hash_fields_mask & ~std::uint64_t{nic::kHashFields}) != 0)
    return fail(
        std::errc::operation_not_supported,
        "raw packet queue pairs spread, by Toeplitz of addresses and ports, and do not send");
  if (hash.rx_hash_key_len != wire::Toeplitz::kKeySize || hash.rx_hash_key == nullptr)
    return fail(std::errc::invalid_argument, "the key of a Toeplitz hash has 40 bytes");
  nic::Spreading spreading{.table = IndTable::of(attr.rwq_ind_tbl).table,
                           .fields = static_cast<std::uint32_t>(hash.rx_hash_fields_mask)};
  std::memcpy(spreading.key.data(), hash.rx_hash_key, spreading.key.size());
  return spreading;
}

/// Nothing but the domain matters of what is given beside the table (ibv_create_qp_ex(3)).
Result<Qp*> create_spreading(ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  nic::QpInit init{.type = engine::QpType::kRawPacket, .pd = VERBENA_TRY(domain_of(attr.pd))};
  init.spreading = VERBENA_TRY(to_spreading(context, attr));
  ibv_qp_init_attr plain{};
  plain.qp_context = attr.qp_context;
  plain.qp_type = attr.qp_type;
  return create_qp(context, attr.pd, init, plain);
}

Result<Qp*> create_from_extended(ibv_context* context, ibv_qp_init_attr_ex& attr) {
  if (attr.qp_type == IBV_QPT_XRC_RECV) {
    Qp* const target = VERBENA_TRY(create_target(context, attr));
    attr.cap = target->init.cap;
    // It has no use for one, but librdmacm looks there for the one that its id has.
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) != 0) target->qp_base.pd = attr.pd;
    return target;
  }
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || !is_here(context, attr.pd))
    return fail(std::errc::invalid_argument, "no protection domain of this context");
  if ((attr.comp_mask & (IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE)) != 0)
    return create_spreading(context, attr);
  // The extended attributes begin with the plain ones, as the header's ibv_create_qp_ex relies on.
  static_assert(offsetof(ibv_qp_init_attr_ex, comp_mask) ==
                offsetof(ibv_qp_init_attr, sq_sig_all) + sizeof(int));
  ibv_qp_init_attr plain;
  std::memcpy(&plain, &attr, sizeof plain);
  Qp* const qp = VERBENA_TRY(create_plain(*attr.pd, plain, blocks_own_multicasts(attr)));
  attr.cap = plain.cap;
  return qp;
}

Result<ibv_qp*> create_extended(ibv_context* context, ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                                   IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                   IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
  if ((attr.comp_mask & ~kKnown) != 0)
    return fail(std::errc::operation_not_supported, "unknown comp_mask");
  VERBENA_TRY(check_create_flags(attr));
  const bool builds = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (builds) VERBENA_TRY(check_send_operations(number_of(attr.qp_type), attr.send_ops_flags));
  Qp* const qp = VERBENA_TRY(create_from_extended(context, attr));
  if (builds) install_work_builder(*qp);
  return qp->plain();
}

Result<ibv_qp*> open_target(ibv_context* context, const ibv_qp_open_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(context));
  constexpr std::uint32_t kNeeded =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (attr.comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
    return fail(std::errc::operation_not_supported, "unknown comp_mask");
  if ((attr.comp_mask & kNeeded) != kNeeded || !is_here(context, attr.xrcd))
    return fail(std::errc::invalid_argument, "number, XRC domain and type are needed");
  if (number_of(attr.qp_type) != IBV_QPT_XRC_RECV)
    return fail(std::errc::invalid_argument, "only XRC_RECV queue pairs are shared");
  auto qp = std::make_unique<Qp>();
  qp->nic = ours.nic.get();
  qp->generation = ours.generation;
  qp->pair = VERBENA_TRY(ours.nic->open_qp(Xrcd::of(attr.xrcd).domain, attr.qp_num, qp.get()));
  ibv_qp_init_attr init{};
  if ((attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) init.qp_context = attr.qp_context;
  init.qp_type = IBV_QPT_XRC_RECV;
  set_public_part(*qp, context, nullptr, init);
  qp->qp_base.state = static_cast<ibv_qp_state>(ours.nic->query_qp(qp->pair).state);
  enter(ours, &Context::qps, *qp);
  return qp.release()->plain();
}

/// In the public part, too, whichever threads change and ask at once.
void show_state(Qp& qp, ibv_qp_state state) {
  std::atomic_ref(qp.qp_base.state).store(state, std::memory_order_relaxed);
}

Result<void> modify_qp(Qp& qp, const ibv_qp_attr& attr, int mask) {
  static_cast<void>(VERBENA_TRY(alive(qp.qp_base.context)));
  const std::uint32_t bits = meaningful(qp.qp_base.qp_type, static_cast<std::uint32_t>(mask));
  const engine::QpAttributes attributes = VERBENA_TRY(to_engine(qp, attr, bits));
  VERBENA_TRY(qp.nic->modify_qp(qp.pair, attributes, bits));
  if ((bits & IBV_QP_STATE) != 0) show_state(qp, attr.qp_state);
  return {};
}

/// The typical size of a packet is a hint for schedulers that count packets; this one counts bytes.
Result<void> limit_rate(const Qp& qp, const ibv_qp_rate_limit_attr& attr) {
  static_cast<void>(VERBENA_TRY(alive(qp.qp_base.context)));
  if (attr.comp_mask != 0) return fail(std::errc::invalid_argument, "unknown comp_mask");
  if (attr.rate_limit > kMaxRateLimit)
    return fail(std::errc::invalid_argument, "the rate limit is above the device's");
  if (attr.rate_limit == 0 && (attr.max_burst_sz != 0 || attr.typical_pkt_sz != 0))
    return fail(std::errc::invalid_argument, "a burst or a packet size without a rate limit");
  engine::QpAttributes attributes;
  attributes.rate_limit = attr.rate_limit;
  attributes.rate_burst = attr.max_burst_sz;
  return qp.nic->modify_qp(qp.pair, attributes, engine::kMaskRateLimit);
}

Result<void> query_qp(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr* init) {
  static_cast<void>(VERBENA_TRY(alive(qp.qp_base.context)));
  attr = from_engine(qp, qp.nic->query_qp(qp.pair));
  show_state(qp, attr.qp_state);
  if (init != nullptr) *init = qp.init;
  return {};
}

Result<void> destroy_qp(Qp& qp) {
  Context& ours = *VERBENA_TRY(alive(qp.qp_base.context));
  VERBENA_TRY(ours.nic->destroy_qp(qp.pair, &qp));
  leave(ours, &Context::qps, qp);
  delete &qp;
  return {};
}

}  // namespace

Qp::~Qp() = default;

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept {
  return pointer_of("ibv_create_qp_ex", [&] { return create_extended(context, *attr); });
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) noexcept {
  return pointer_of("ibv_open_qp", [&] { return open_target(context, *attr); });
}

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) noexcept {
  return status_of("ibv_modify_qp_rate_limit", [&] { return limit_rate(Qp::of(qp), *attr); });
}

VERBENA_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (!is_ours(pd->context)) return real::call<"ibv_create_qp">(&ibv_create_qp, pd, attr);
  return pointer_of("ibv_create_qp", [&]() -> Result<ibv_qp*> {
    return VERBENA_TRY(create_plain(*pd, *attr))->plain();
  });
}

VERBENA_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  if (!is_ours(qp->context))
    return real::call<"ibv_modify_qp">(&ibv_modify_qp, qp, attr, attr_mask);
  return status_of("ibv_modify_qp", [&] { return modify_qp(Qp::of(qp), *attr, attr_mask); });
}

VERBENA_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask,
                                ibv_qp_init_attr* init_attr) {
  if (!is_ours(qp->context))
    return real::call<"ibv_query_qp">(&ibv_query_qp, qp, attr, attr_mask, init_attr);
  return status_of("ibv_query_qp", [&] { return query_qp(Qp::of(qp), *attr, init_attr); });
}

VERBENA_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  if (!is_ours(qp->context)) return real::call<"ibv_destroy_qp">(&ibv_destroy_qp, qp);
  return status_of("ibv_destroy_qp", [&] { return destroy_qp(Qp::of(qp)); });
}

// 0 is "no promise", which is always right (ibv_query_qp_data_in_order(3)).
VERBENA_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  if (!is_ours(qp->context)) {
    return real::call<"ibv_query_qp_data_in_order">(&ibv_query_qp_data_in_order, qp, op, flags);
  }
  return 0;
}

VERBENA_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  if (!is_ours(qp->context)) return real::call<"ibv_qp_to_qp_ex">(&ibv_qp_to_qp_ex, qp);
  Qp& ours = Qp::of(qp);
  return ours.builder != nullptr ? &ours : nullptr;  // null: it was not made with send_ops_flags
}

}  // namespace verbena::compat
