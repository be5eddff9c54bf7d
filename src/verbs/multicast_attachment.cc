// SPDX-License-Identifier: Apache-2.0
#include "verbena/multicast_attachment.h"

#include <utility>

namespace verbena::verbs {

struct multicast_attachment::membership {
  ibv_qp* qp;
  detail::keep parent;
  gid group;
  lid group_lid;

  membership(ibv_qp* the_qp, detail::keep the_parent, const gid& the_group, lid the_lid)
      : qp(the_qp), parent(std::move(the_parent)), group(the_group), group_lid(the_lid) {}
  membership(const membership&) = delete;
  membership& operator=(const membership&) = delete;
  ~membership() {
    if (const auto left = leave(); !left)
      detail::report_lost("ibv_detach_mcast", left.error().code().value());
  }
  /// Once.
  Result<> leave() {
    ibv_qp* const from = std::exchange(qp, nullptr);
    if (from == nullptr) return {};
    const ibv_gid id = group.native();
    return detail::from_errno(ibv_detach_mcast(from, &id, group_lid.value()), "ibv_detach_mcast");
  }
};

multicast_attachment::multicast_attachment(std::unique_ptr<membership> joined) noexcept
    : joined_(std::move(joined)) {}
multicast_attachment::multicast_attachment(multicast_attachment&&) noexcept = default;
multicast_attachment& multicast_attachment::operator=(multicast_attachment&&) noexcept = default;
multicast_attachment::~multicast_attachment() = default;

Result<multicast_attachment> multicast_attachment::attach(ibv_qp* qp, detail::keep parent,
                                                          const gid& group, lid group_lid) {
  if (!group.is_multicast())
    return fail(std::errc::invalid_argument, "attach_multicast",
                group.to_string() + " is no multicast address");
  const ibv_gid id = group.native();
  VERBENA_TRY(detail::from_errno(ibv_attach_mcast(qp, &id, group_lid.value()), "ibv_attach_mcast"));
  return multicast_attachment(
      std::make_unique<membership>(qp, std::move(parent), group, group_lid));
}

gid multicast_attachment::group() const noexcept {
  return joined_ == nullptr ? gid() : joined_->group;
}

Result<> multicast_attachment::detach() {
  if (joined_ == nullptr)
    return fail(std::errc::bad_file_descriptor, "multicast_attachment::detach",
                "it was moved from or has left already");
  const std::unique_ptr<membership> joined = std::move(joined_);
  return joined->leave();
}

}  // namespace verbena::verbs
