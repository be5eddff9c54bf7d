// SPDX-License-Identifier: Apache-2.0
// Another context on a device that is open, and other handles for its objects:
// ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3).
//
// Within a process: a NIC reaches the memory of its own process only, so that the objects of
// another one's would be names without anything behind them.
#include "compat/errno.h"
#include "compat/mr.h"
#include "compat/objects.h"
#include "compat/open_contexts.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

/// Events of the device come to whichever of the contexts asks first.
Result<ibv_context*> import_device(const FileIdentity& identity, int cmd_fd) {
  Origin origin = VERBENA_TRY(find_origin(identity));
  auto context =
      std::make_unique<Context>(*origin.device, std::move(origin.nic), sys::OwnedFd(cmd_fd));
  enter_context(*context);
  return context.release()->plain();
}

std::unexpected<Error> no_such_handle() {
  return fail(std::errc::invalid_argument, "the device has no such object");
}

Result<ibv_pd*> import_pd(ibv_context* context, std::uint32_t handle) {
  Context& ours = *VERBENA_TRY(alive(context));
  auto pd = std::make_unique<Pd>();
  for_sharing(ours, [&](const Context& sharing) {
    for (const Pd* original : sharing.pds) {
      // A parent domain has its protection domain's handle.
      const bool is = original->domain != nullptr && original->domain->base == nullptr;
      if (is && original->handle == handle) pd->domain = original->domain;
    }
    return pd->domain != nullptr;
  });
  if (pd->domain == nullptr) return no_such_handle();
  note_import();
  pd->context = context;
  pd->handle = handle;
  enter(ours, &Context::pds, *pd);
  return pd.release();
}

Result<ibv_mr*> import_mr(ibv_pd* pd, std::uint32_t handle) {
  Context& ours = *VERBENA_TRY(alive(pd->context));
  auto mr = std::make_unique<Mr>();
  for_sharing(ours, [&](const Context& sharing) {
    for (const Mr* original : sharing.mrs) {
      if (original->region == nullptr || original->handle != handle) continue;
      mr->region = original->region;
      mr->backing = original->backing;
      mr->first = original->first;
      mr->access = original->access;
      mr->length = original->length;
      mr->rkey = original->rkey;
    }
    return mr->region != nullptr;
  });
  if (mr->region == nullptr) return no_such_handle();
  if (mr->region->pd->number != VERBENA_TRY(domain_of(pd))->number)
    return fail(std::errc::invalid_argument, "the region is of another protection domain");
  note_import();
  const std::uint32_t rkey = mr->rkey;
  ibv_mr* const imported = give_out(std::move(mr), pd);
  imported->rkey = rkey;
  return imported;
}

Result<ibv_dm*> import_dm(ibv_context* context, std::uint32_t handle) {
  Context& ours = *VERBENA_TRY(alive(context));
  std::shared_ptr<nic::DeviceMemory> memory;
  for_sharing(ours, [&](const Context& sharing) {
    for (const Dm* original : sharing.dms) {
      if (original->handle == handle) memory = original->memory;
    }
    return memory != nullptr;
  });
  if (memory == nullptr) return no_such_handle();
  return give_out(std::move(memory), context);
}

/// The C object goes, and nothing of the NIC's.
template <typename Object>
void unimport(Object& object, std::list<Object*> Context::* list) {
  Context& ours = Context::of(object.context);
  if (is_dead(ours.generation)) return;
  leave(ours, list, object);
  delete &object;
}

}  // namespace

VERBENA_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  const auto identity = command_file(cmd_fd);
  if (!identity) return real::call<"ibv_import_device">(&ibv_import_device, cmd_fd);
  return pointer_of("ibv_import_device", [&] { return import_device(*identity, cmd_fd); });
}

VERBENA_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t pd_handle) {
  if (!is_ours(context)) return real::call<"ibv_import_pd">(&ibv_import_pd, context, pd_handle);
  return pointer_of("ibv_import_pd", [&] { return import_pd(context, pd_handle); });
}

VERBENA_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  if (!is_ours(pd->context)) return real::call<"ibv_unimport_pd">(&ibv_unimport_pd, pd);
  unimport(Pd::of(pd), &Context::pds);
}

VERBENA_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t mr_handle) {
  if (!is_ours(pd->context)) return real::call<"ibv_import_mr">(&ibv_import_mr, pd, mr_handle);
  return pointer_of("ibv_import_mr", [&] { return import_mr(pd, mr_handle); });
}

VERBENA_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  if (!is_ours(mr->context)) return real::call<"ibv_unimport_mr">(&ibv_unimport_mr, mr);
  unimport(Mr::of(mr), &Context::mrs);
}

VERBENA_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t dm_handle) {
  if (!is_ours(context)) return real::call<"ibv_import_dm">(&ibv_import_dm, context, dm_handle);
  return pointer_of("ibv_import_dm", [&] { return import_dm(context, dm_handle); });
}

VERBENA_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  if (!is_ours(dm->context)) return real::call<"ibv_unimport_dm">(&ibv_unimport_dm, dm);
  unimport(Dm::of(dm), &Context::dms);
}

}  // namespace verbena::compat
