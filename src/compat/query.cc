// SPDX-License-Identifier: Apache-2.0
// What a device, its port and its tables are: ibv_query_device(3), ibv_query_port(3),
// ibv_query_gid(3), ibv_query_gid_ex(3), ibv_query_pkey(3), ibv_query_rt_values_ex(3).
#include "compat/query.h"

#include <endian.h>

#include <algorithm>
#include <cstring>

#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/real.h"
#include "link/local_address.h"
#include "nic/work_queue.h"

namespace verbena::compat {
namespace {

constexpr int to_int(std::uint64_t value) {
  return static_cast<int>(std::min<std::uint64_t>(value, std::numeric_limits<int>::max()));
}

void fill_objects(const nic::Limits& limits, ibv_device_attr& attr) {
  attr.max_mr_size = limits.max_mr_size;
  attr.max_qp = to_int(limits.max_qp);
  attr.max_qp_wr = to_int(limits.max_qp_wr);
  attr.max_sge = to_int(limits.max_sge);
  attr.max_sge_rd = to_int(limits.max_sge);
  attr.max_raw_ethy_qp = attr.max_qp;
  attr.max_srq = to_int(limits.max_srq);
  attr.max_srq_wr = to_int(limits.max_srq_wr);
  attr.max_srq_sge = to_int(limits.max_sge);
  attr.max_cq = to_int(limits.max_cq);
  attr.max_cqe = to_int(limits.max_cqe);
  attr.max_mr = to_int(limits.max_mr);
  attr.max_mw = to_int(limits.max_mw);
  attr.max_pd = to_int(limits.max_pd);
  attr.max_ah = to_int(limits.max_ah);
  attr.max_qp_rd_atom = to_int(limits.max_rd_atomic);
  attr.max_qp_init_rd_atom = to_int(limits.max_rd_atomic);
  attr.max_mcast_grp = to_int(limits.max_mcast_grp);
  attr.max_mcast_qp_attach = to_int(limits.max_mcast_qp_attach);
  attr.max_total_mcast_qp_attach =
      to_int(std::uint64_t{limits.max_mcast_grp} * limits.max_mcast_qp_attach);
  attr.max_res_rd_atom = to_int(std::uint64_t{limits.max_rd_atomic} * limits.max_qp);
}

ibv_device_attr describe_device(const nic::NicConfig& config) {
  ibv_device_attr attr{};
  kFirmwareVersion.copy(attr.fw_ver, sizeof attr.fw_ver - 1);
  attr.node_guid = htobe64(config.guid);
  attr.sys_image_guid = attr.node_guid;
  // Any page size will do: the NIC reaches memory through the process's own mappings.
  attr.page_size_cap = 0xFFFFF000;
  attr.vendor_id = kVendorId;
  attr.vendor_part_id = kVendorPartId;
  attr.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                          IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE |
                          IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
                          IBV_DEVICE_MANAGED_FLOW_STEERING;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_pkeys = kPkeyTableLength;
  attr.local_ca_ack_delay =
      15;  // 4.096 µs · 2^15 = 134 ms, more than a busy machine lets an ACK wait
  attr.phys_port_cnt = kPort;
  fill_objects(config.limits, attr);
  return attr;
}

/// Nothing is pinned: every operation works on memory that is brought in when it is used.
ibv_odp_caps describe_paging() {
  constexpr std::uint32_t kMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
  constexpr std::uint32_t kDatagram = kMessages | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr std::uint32_t kUnreliable = kMessages | IBV_ODP_SUPPORT_WRITE;
  return {.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
          .per_transport_caps = {.rc_odp_caps = kDatagram | kUnreliable | IBV_ODP_SUPPORT_READ |
                                                IBV_ODP_SUPPORT_ATOMIC,
                                 .uc_odp_caps = kUnreliable,
                                 .ud_odp_caps = kDatagram}};
}

ibv_rss_caps describe_spreading(const nic::Limits& limits) {
  return {.supported_qpts = 1U << IBV_QPT_RAW_PACKET,
          .max_rwq_indirection_tables = limits.max_qp,
          .max_rwq_indirection_table_size = 1U << nic::IndirectionTable::kMaxLogSize,
          .rx_hash_fields_mask = nic::kHashFields,
          .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ};
}

/// List operations are over when they were posted, so their number has no bound of its own.
constexpr ibv_tm_caps kTagMatching{.max_rndv_hdr_size = engine::kMaxRendezvousRequest,
                                   .max_num_tags = nic::kMaxTags,
                                   .flags = IBV_TM_CAP_RC,
                                   .max_ops = nic::kMaxTags,
                                   .max_sge = nic::kMaxTagPieces};

ibv_port_attr describe_port(const nic::Nic& nic) {
  const nic::PortState port = nic.port();
  ibv_port_attr attr{};
  attr.state = port.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = to_mtu(nic.config().max_mtu);
  attr.gid_tbl_len = static_cast<int>(port.gids.size());
  attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr.max_msg_sz = kMaxMessage;
  attr.pkey_tbl_len = kPkeyTableLength;
  attr.max_vl_num = 1;
  attr.active_width = kWidth4x;
  attr.active_speed = kSpeedQdr;
  attr.phys_state = port.up ? kLinkUp : kLinkDisabled;
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  return attr;
}

Result<wire::Address> gid_entry(ibv_context* context, std::uint32_t port, std::uint64_t index) {
  Context& ours = *VERBENA_TRY(alive(context));
  if (port != kPort) return fail(std::errc::invalid_argument, "the device has port 1 only");
  if (index >= nic::kGids)
    return fail(std::errc::invalid_argument, "no such entry in the GID table");
  return ours.nic->port().gids[index];
}

ibv_gid_entry describe_gid(const nic::Nic& nic, const wire::Address& gid, std::uint32_t index) {
  ibv_gid_entry entry{};
  std::memcpy(entry.gid.raw, gid.gid.data(), sizeof entry.gid.raw);
  entry.gid_index = index;
  entry.port_num = kPort;
  entry.gid_type = nic.config().roce_v1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  if (const auto local = link::find_local(gid)) entry.ndev_ifindex = local->index;
  return entry;
}

/// Writes as much of `from` as a caller's older or newer struct holds, and zeros behind it.
template <typename T>
void write_sized(void* to, std::size_t size, const T& from) {
  const std::size_t known = std::min(size, sizeof from);
  std::memcpy(to, &from, known);
  if (size > known) std::memset(static_cast<std::byte*>(to) + known, 0, size - known);
}

Result<void> query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                          ibv_gid_entry* entry, std::uint32_t flags, std::size_t size) {
  if (flags != 0) return fail(std::errc::invalid_argument, "no flags are defined");
  const wire::Address gid = VERBENA_TRY(gid_entry(context, port, index));
  // An entry that is empty is nothing to be told about (ibv_query_gid_ex(3)).
  if (gid.is_zero()) return fail(std::errc::no_message_available);
  write_sized(entry, size, describe_gid(*Context::of(context).nic, gid, index));
  return {};
}

}  // namespace

ibv_mtu to_mtu(std::uint32_t bytes) {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

// What a device is, a forked child may ask as well: programs look at max_dm_size before they
// allocate device memory.

int query_device(ibv_context* context, ibv_device_attr* attr) noexcept {
  return status_of("ibv_query_device", [&]() -> Result<void> {
    *attr = describe_device(Context::of(context).nic->config());
    return {};
  });
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t size) noexcept {
  return status_of("ibv_query_device_ex", [&]() -> Result<void> {
    const Context& ours = Context::of(context);
    if (input != nullptr && input->comp_mask != 0) return fail(std::errc::invalid_argument);
    if (size < sizeof(ibv_device_attr)) return fail(std::errc::invalid_argument);
    ibv_device_attr_ex all{};
    all.orig_attr = describe_device(ours.nic->config());
    all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
    all.completion_timestamp_mask = ~std::uint64_t{0};
    all.hca_core_clock = kClockKilohertz;
    all.phys_port_cnt_ex = kPort;
    all.odp_caps = describe_paging();
    all.packet_pacing_caps = {
        .qp_rate_limit_min = 1, .qp_rate_limit_max = kMaxRateLimit, .supported_qpts = kRateLimited};
    all.xrc_odp_caps = all.odp_caps.per_transport_caps.rc_odp_caps;
    all.rss_caps = describe_spreading(ours.nic->config().limits);
    all.max_wq_type_rq = ours.nic->config().limits.max_qp;
    all.tm_caps = kTagMatching;
    all.cq_mod_caps = {.max_cq_count = std::numeric_limits<std::uint16_t>::max(),
                       .max_cq_period = std::numeric_limits<std::uint16_t>::max()};
    all.max_dm_size = ours.nic->config().limits.max_dm_size;
    write_sized(attr, size, all);
    return {};
  });
}

int query_port(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attr,
               std::size_t size) noexcept {
  return status_of("ibv_query_port", [&]() -> Result<void> {
    Context& ours = *VERBENA_TRY(alive(context));
    if (port_num != kPort) return fail(std::errc::invalid_argument, "the device has port 1 only");
    write_sized(attr, size, describe_port(*ours.nic));
    return {};
  });
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) noexcept {
  return status_of("ibv_query_rt_values_ex", [&]() -> Result<void> {
    Context& ours = *VERBENA_TRY(alive(context));
    if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) {
      return fail(std::errc::operation_not_supported, "only the raw clock can be read");
    }
    // The clock that completions are stamped with: nanoseconds of the host's time line.
    const auto now = ours.nic->host().now().time_since_epoch();
    constexpr std::int64_t kSecond = 1'000'000'000;
    values->raw_clock.tv_sec = static_cast<time_t>(now.count() / kSecond);
    values->raw_clock.tv_nsec = static_cast<long>(now.count() % kSecond);
    return {};
  });
}

VERBENA_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  if (!is_ours(context)) return real::call<"ibv_query_device">(&ibv_query_device, context, attr);
  return query_device(context, attr);
}

VERBENA_EXPORT int ibv_query_port(ibv_context* context, uint8_t port_num,
                                  _compat_ibv_port_attr* attr) {
  if (!is_ours(context))
    return real::call<"ibv_query_port">(&ibv_query_port, context, port_num, attr);
  return query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(attr), kCompatPortAttrSize);
}

VERBENA_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) {
  if (!is_ours(context))
    return real::call<"ibv_query_gid">(&ibv_query_gid, context, port_num, index, gid);
  return minus_one_of("ibv_query_gid", [&]() -> Result<void> {
    // A negative index becomes a large one, which is not in the table either.
    const wire::Address entry =
        VERBENA_TRY(gid_entry(context, port_num, static_cast<std::uint64_t>(index)));
    std::memcpy(gid->raw, entry.gid.data(), sizeof gid->raw);
    return {};
  });
}

VERBENA_EXPORT int
_ibv_query_gid_ex(  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)
    ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry,
    uint32_t flags, size_t entry_size) {
  if (!is_ours(context)) {
    return real::call<"_ibv_query_gid_ex">(&_ibv_query_gid_ex, context, port_num, gid_index, entry,
                                           flags, entry_size);
  }
  return status_of("ibv_query_gid_ex", [&] {
    return query_gid_ex(context, port_num, gid_index, entry, flags, entry_size);
  });
}

VERBENA_EXPORT ssize_t
_ibv_query_gid_table(  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)
    ibv_context* context, ibv_gid_entry* entries, size_t max_entries, uint32_t flags,
    size_t entry_size) {
  if (!is_ours(context)) {
    return real::call<"_ibv_query_gid_table">(&_ibv_query_gid_table, context, entries, max_entries,
                                              flags, entry_size);
  }
  if (is_dead(Context::of(context).generation)) return -EIO;
  if (flags != 0 || entry_size == 0) return -EINVAL;
  const nic::GidTable gids = Context::of(context).nic->port().gids;
  std::size_t written = 0;
  for (std::uint32_t index = 0; index < gids.size(); ++index) {
    if (gids[index].is_zero()) continue;
    if (written == max_entries) return -EINVAL;  // the table does not fit (ibv_query_gid_table(3))
    auto* to = reinterpret_cast<std::byte*>(entries) + written * entry_size;
    write_sized(to, entry_size, describe_gid(*Context::of(context).nic, gids[index], index));
    ++written;
  }
  return static_cast<ssize_t>(written);
}

VERBENA_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                                      ibv_gid_type_sysfs* type) {
  if (!is_ours(context)) {
    return real::call<"ibv_query_gid_type">(&ibv_query_gid_type, context, port_num, index, type);
  }
  return minus_one_of("ibv_query_gid_type", [&]() -> Result<void> {
    static_cast<void>(VERBENA_TRY(gid_entry(context, port_num, index)));
    const bool v1 = Context::of(context).nic->config().roce_v1;
    *type = v1 ? IBV_GID_TYPE_SYSFS_IB_ROCE_V1 : IBV_GID_TYPE_SYSFS_ROCE_V2;
    return {};
  });
}

VERBENA_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey) {
  if (!is_ours(context))
    return real::call<"ibv_query_pkey">(&ibv_query_pkey, context, port_num, index, pkey);
  return minus_one_of("ibv_query_pkey", [&]() -> Result<void> {
    static_cast<void>(VERBENA_TRY(alive(context)));
    if (port_num != kPort || index < 0 || index >= kPkeyTableLength)
      return fail(std::errc::invalid_argument);
    *pkey = htobe16(kDefaultPkey);
    return {};
  });
}

VERBENA_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port_num, __be16 pkey) {
  if (!is_ours(context))
    return real::call<"ibv_get_pkey_index">(&ibv_get_pkey_index, context, port_num, pkey);
  if (port_num == kPort && pkey == htobe16(kDefaultPkey)) return 0;
  errno = EINVAL;
  return -1;
}

}  // namespace verbena::compat
