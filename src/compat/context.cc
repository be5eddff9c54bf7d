// SPDX-License-Identifier: Apache-2.0
// Opening and closing: ibv_open_device(3), ibv_close_device(3).
#include "base/log.h"
#include "compat/device_table.h"
#include "compat/errno.h"
#include "compat/fault_signals.h"
#include "compat/objects.h"
#include "compat/open_contexts.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

int compat_query_port(ibv_context* context, std::uint8_t port_num, _compat_ibv_port_attr* attr) {
  return query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(attr), kCompatPortAttrSize);
}

void set_operations(verbs_context& context) {
  ibv_context_ops& ops = context.context.ops;
  ops._compat_query_device = &query_device;
  ops._compat_query_port = &compat_query_port;
  ops.alloc_mw = &alloc_mw;
  ops.bind_mw = &bind_mw;
  ops.dealloc_mw = &dealloc_mw;
  ops.poll_cq = &poll_cq;
  ops.req_notify_cq = &req_notify_cq;
  ops.post_srq_recv = &post_srq_receive;
  ops.post_send = &post_send;
  ops.post_recv = &post_receive;

  context.query_port = &query_port;
  context.query_device_ex = &query_device_ex;
  context.query_rt_values = &query_rt_values;
  context.create_cq_ex = &create_cq_ex;
  context.modify_cq = &modify_cq;
  context.create_srq_ex = &create_srq_ex;
  context.post_srq_ops = &post_srq_ops;
  context.create_qp_ex = &create_qp_ex;
  context.open_qp = &open_qp;
  context.modify_qp_rate_limit = &modify_qp_rate_limit;
  context.open_xrcd = &open_xrcd;
  context.close_xrcd = &close_xrcd;
  context.get_srq_num = &get_srq_num;
  context.ibv_create_flow = &create_flow;
  context.ibv_destroy_flow = &destroy_flow;
  context.create_wq = &create_wq;
  context.modify_wq = &modify_wq;
  context.destroy_wq = &destroy_wq;
  context.create_rwq_ind_table = &create_rwq_ind_table;
  context.destroy_rwq_ind_table = &destroy_rwq_ind_table;
  context.alloc_dm = &alloc_dm;
  context.free_dm = &free_dm;
  context.reg_dm_mr = &reg_dm_mr;
  context.alloc_null_mr = &alloc_null_mr;
  context.alloc_td = &alloc_td;
  context.dealloc_td = &dealloc_td;
  context.alloc_parent_domain = &alloc_parent_domain;
  context.advise_mr = &advise_mr;
}

Result<ibv_context*> open_device(Device& device) {
  auto opened = nic::Nic::open(*device.host, device.config);
  if (!opened) {
    log(LogLevel::kError, "cannot open {}: {}", device.config.name, opened.error().message);
    return std::unexpected(opened.error());
  }
  watch_faults();
  auto command = VERBENA_TRY(make_command_file());
  auto context = std::make_unique<Context>(device, std::move(*opened), std::move(command));
  enter_context(*context);
  return context.release()->plain();
}

}  // namespace

verbs_ex_private* context_mark() {
  // A page of zeros: a later libibverbs that takes it for its own notes finds no operation there.
  alignas(64) static constinit std::array<std::byte, 4096> mark{};
  return reinterpret_cast<verbs_ex_private*>(mark.data());
}

Context::Context(Device& the_device, std::shared_ptr<nic::Nic> the_nic, sys::OwnedFd command_fd)
    : verbs_context{},
      device(&the_device),
      nic(std::move(the_nic)),
      identity(command_file(command_fd.get()).value_or(FileIdentity{})),
      generation(process_generation()) {
  sz = sizeof(verbs_context);
  priv = context_mark();
  context.device = device;
  context.cmd_fd = command_fd.release();
  context.async_fd = nic->async_notifier().descriptor();
  context.num_comp_vectors = 1;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
  set_operations(*this);
}

// The program may have closed the descriptor, and have another file under its number by now.
Context::~Context() {
  if (command_file(context.cmd_fd) == identity) sys::close(context.cmd_fd);
}

namespace {

Result<void> close_device(Context& context) {
  const bool shared = leave_context(context);
  if (is_dead(context.generation))
    return {};  // the NIC is the parent's; what is left here must not be touched
  if (!shared) destroy_leftovers(context);
  delete &context;
  return {};
}

}  // namespace

VERBENA_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  Device* const ours = find_device(device);
  if (ours == nullptr) return real::call<"ibv_open_device">(&ibv_open_device, device);
  return pointer_of("ibv_open_device", [&]() -> Result<ibv_context*> {
    static_cast<void>(VERBENA_TRY(devices()));  // in a forked child this renews the host
    return open_device(*ours);
  });
}

VERBENA_EXPORT int ibv_close_device(ibv_context* context) {
  if (!is_ours(context)) return real::call<"ibv_close_device">(&ibv_close_device, context);
  return minus_one_of("ibv_close_device", [&] { return close_device(Context::of(context)); });
}

}  // namespace verbena::compat
