// SPDX-License-Identifier: Apache-2.0
// Extended reliable connections: ibv_open_xrcd(3), ibv_open_qp(3), ibv_get_srq_num(3).
//
// A domain is known to the context that opened it. Where the manual pages give no errno, ours are
// those of Linux.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "base/sys.h"
#include "compat/errno.h"
#include "compat/objects.h"

namespace verbena::compat {
namespace {

Result<nic::FileIdentity> identity_of(int fd) {
  struct statx seen{};
  if (sys::statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &seen) != 0)
    return fail(static_cast<std::errc>(errno), "the XRC domain's file cannot be looked at");
  constexpr std::uint64_t kSecond = 1'000'000'000;
  nic::FileIdentity identity{.device = makedev(seen.stx_dev_major, seen.stx_dev_minor),
                             .inode = seen.stx_ino};
  if ((seen.stx_mask & STATX_BTIME) != 0)
    identity.birth_ns =
        static_cast<std::uint64_t>(seen.stx_btime.tv_sec) * kSecond + seen.stx_btime.tv_nsec;
  return identity;
}

Result<ibv_xrcd*> open_domain(ibv_context* context, const ibv_xrcd_init_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(context));
  constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr.comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
    return fail(std::errc::operation_not_supported, "unknown comp_mask");
  if ((attr.comp_mask & kNeeded) != kNeeded)
    return fail(std::errc::invalid_argument, "an XRC domain needs fd and oflags");
  nic::XrcDomainInit init{.create = (attr.oflags & O_CREAT) != 0,
                          .exclusive = (attr.oflags & O_EXCL) != 0};
  if (attr.fd != -1) init.file = VERBENA_TRY(identity_of(attr.fd));
  auto domain = std::make_unique<Xrcd>();
  domain->domain = VERBENA_TRY(ours.nic->open_domain(init));
  domain->context = context;
  enter(ours, &Context::xrcds, *domain);
  return domain.release();
}

Result<void> close_domain(Xrcd& domain) {
  Context& ours = *VERBENA_TRY(alive(domain.context));
  VERBENA_TRY(ours.nic->close_domain(domain.domain));
  leave(ours, &Context::xrcds, domain);
  delete &domain;
  return {};
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) noexcept {
  return pointer_of("ibv_open_xrcd", [&] { return open_domain(context, *attr); });
}

int close_xrcd(ibv_xrcd* domain) noexcept {
  return status_of("ibv_close_xrcd", [&] { return close_domain(Xrcd::of(domain)); });
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) noexcept {
  return status_of("ibv_get_srq_num", [&]() -> Result<void> {
    static_cast<void>(VERBENA_TRY(alive(srq->context)));
    const std::uint32_t given = Srq::of(srq).nic->number(Srq::of(srq).queue);
    if (given == 0)
      return fail(std::errc::invalid_argument, "a basic shared receive queue has no number");
    *number = given;
    return {};
  });
}

}  // namespace verbena::compat
