// SPDX-License-Identifier: Apache-2.0
// Completion queues whose completions are read field by field: ibv_create_cq_ex(3).
#include <endian.h>

#include <ctime>

#include "compat/cq.h"
#include "compat/errno.h"
#include "compat/tsan.h"

namespace verbena::compat {
namespace {

constexpr std::uint64_t kTimes =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
// But for IBV_WC_EX_WITH_CVLAN: no tag is taken off a frame here.
constexpr std::uint64_t kFields = std::uint64_t{IBV_WC_STANDARD_FLAGS} | kTimes |
                                  IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_TM_INFO;

/// Takes the next completion into the C object: ENOENT when there is none.
int take_next(ibv_cq_ex* c_cq) {
  Cq& cq = Cq::of(c_cq);
  if (is_dead(cq.generation)) return EIO;
  const auto polled = cq.nic->poll(cq.queue, {&cq.current, 1}, {&cq.current_made, 1});
  if (!polled) return to_errno(polled.error());
  if (*polled == 0) return ENOENT;
  take_over(&cq);
  cq.wr_id = cq.current.id;
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  return 0;
}

const engine::Completion& current(ibv_cq_ex* cq) { return Cq::of(cq).current; }

// From a start that finds a completion to the end the queue is the calling thread's, unless the
// program said that it has one thread only.
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Cq& ours = Cq::of(cq);
  if (!ours.one_reader) ours.reading.lock();
  const int error = take_next(cq);
  if (error != 0 && !ours.one_reader) ours.reading.unlock();
  return error;
}
int next_poll(ibv_cq_ex* cq) { return take_next(cq); }
void end_poll(ibv_cq_ex* cq) {
  Cq& ours = Cq::of(cq);
  if (!ours.one_reader) ours.reading.unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return static_cast<ibv_wc_opcode>(current(cq).opcode); }
std::uint32_t read_vendor_err(ibv_cq_ex* cq) { return current(cq).vendor_error; }
std::uint32_t read_byte_len(ibv_cq_ex* cq) { return current(cq).byte_count; }

__be32 read_imm_data(ibv_cq_ex* cq) {
  const engine::Completion& completion = current(cq);
  // The same function reads an invalidated key, which is in host order.
  return completion.with_invalidate ? completion.immediate_or_key
                                    : htobe32(completion.immediate_or_key);
}

std::uint32_t read_qp_num(ibv_cq_ex* cq) { return current(cq).qp_number; }
std::uint32_t read_src_qp(ibv_cq_ex* cq) { return current(cq).source_qp; }
unsigned int read_wc_flags(ibv_cq_ex* cq) { return wc_flags_of(current(cq)); }
std::uint32_t read_slid(ibv_cq_ex* /*cq*/) { return 0; }
std::uint8_t read_sl(ibv_cq_ex* cq) { return current(cq).service_level; }
std::uint8_t read_dlid_path_bits(ibv_cq_ex* /*cq*/) { return 0; }

std::uint32_t read_flow_tag(ibv_cq_ex* cq) { return static_cast<std::uint32_t>(current(cq).tag); }

void read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
  *info = {.tag = current(cq).tag, .priv = current(cq).application_context};
}

/// Nanoseconds of the host's time line (hca_core_clock), when the completion was made.
std::uint64_t read_completion_ts(ibv_cq_ex* cq) {
  return static_cast<std::uint64_t>(Cq::of(cq).current_made.time_since_epoch().count());
}

/// The same moment by the wall clock, which may have been set since.
std::uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
  const Cq& ours = Cq::of(cq);
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  const Duration since = ours.nic->host().now() - ours.current_made;
  return static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(wall.tv_nsec) - static_cast<std::uint64_t>(since.count());
}

/// The parent domain that a completion queue is made with; null for none.
Result<nic::ProtectionDomain*> parent_of(ibv_context* context, const ibv_cq_init_attr_ex& attr) {
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) == 0) return nullptr;
  if (attr.parent_domain == nullptr || attr.parent_domain->context != context)
    return fail(std::errc::invalid_argument, "no parent domain of this context");
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(attr.parent_domain));
  if (domain->base == nullptr)
    return fail(std::errc::invalid_argument, "the protection domain is no parent domain");
  return domain;
}

Result<ibv_cq_ex*> create_extended(ibv_context* context, const ibv_cq_init_attr_ex& attr) {
  constexpr std::uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr std::uint32_t kKnownFlags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if ((attr.comp_mask & ~kKnown) != 0)
    return fail(std::errc::operation_not_supported, "unknown comp_mask");
  const std::uint32_t flags = (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr.flags : 0;
  if ((flags & ~kKnownFlags) != 0) {
    return fail(std::errc::operation_not_supported, "a flag that this device does not have");
  }
  if ((attr.wc_flags & ~kFields) != 0) {
    return fail(std::errc::operation_not_supported, "a field that completions here do not have");
  }
  nic::ProtectionDomain* const parent = VERBENA_TRY(parent_of(context, attr));
  const nic::CqOptions options{.timestamps = (attr.wc_flags & kTimes) != 0,
                               .overwrites = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0};
  Cq& cq = *VERBENA_TRY(create_cq(context, attr.cqe, attr.cq_context, attr.channel,
                                  attr.comp_vector, parent, options));
  cq.one_reader = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  cq.start_poll = &start_poll;
  cq.next_poll = &next_poll;
  cq.end_poll = &end_poll;
  cq.read_opcode = &read_opcode;
  cq.read_vendor_err = &read_vendor_err;
  cq.read_byte_len = &read_byte_len;
  cq.read_imm_data = &read_imm_data;
  cq.read_qp_num = &read_qp_num;
  cq.read_src_qp = &read_src_qp;
  cq.read_wc_flags = &read_wc_flags;
  cq.read_slid = &read_slid;
  cq.read_sl = &read_sl;
  cq.read_dlid_path_bits = &read_dlid_path_bits;
  cq.read_flow_tag = &read_flow_tag;
  cq.read_tm_info = &read_tm_info;
  cq.read_completion_ts = &read_completion_ts;
  cq.read_completion_wallclock_ns = &read_completion_wallclock_ns;
  return &cq;
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept {
  return pointer_of("ibv_create_cq_ex", [&] { return create_extended(context, *attr); });
}

}  // namespace verbena::compat
