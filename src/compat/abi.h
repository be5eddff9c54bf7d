// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

// For callers the header wraps these in macros; we define the functions behind them.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/// An entry point that programs bind to. Everything else in the library is hidden.
#define VERBENA_EXPORT extern "C" __attribute__((visibility("default")))

// Entry points that libibverbs exports without declaring them to everybody: ibv_devinfo, pyverbs
// and librdmacm import them (symbol table of libibverbs 1.14).
extern "C" {

/// How sysfs counts GID types, in contrast to ibv_gid_type.
enum ibv_gid_type_sysfs {
  IBV_GID_TYPE_SYSFS_IB_ROCE_V1,  // NOLINT(readability-identifier-naming): a name of the C ABI
  IBV_GID_TYPE_SYSFS_ROCE_V2,     // NOLINT(readability-identifier-naming)
};

int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                       ibv_gid_type_sysfs* type);
const char* ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);
int ibv_dontfork_range(void* base, size_t size);
int ibv_dofork_range(void* base, size_t size);

}  // extern "C"

namespace verbena::compat {

/// The number in an enumeration that a caller filled in: it may be one that C++ lets no enumeration
/// have.
template <typename Enumeration>
[[nodiscard]] inline std::uint32_t number_of(const Enumeration& value) {
  static_assert(sizeof value == sizeof(std::uint32_t));
  std::uint32_t number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

// The layout of libibverbs 1.14 on 64-bit machines, as programs were compiled against it.
static_assert(sizeof(verbs_context) == 648);
static_assert(offsetof(verbs_context, context) == 320);
static_assert(offsetof(verbs_context, sz) == 312);
static_assert(sizeof(ibv_device) == 664);
static_assert(sizeof(ibv_context) == 328);

/// The exported ibv_query_port writes only what the oldest programs know of; the inline one writes
/// all.
inline constexpr std::size_t kCompatPortAttrSize = 48;
static_assert(sizeof(ibv_port_attr) == 52);
static_assert(offsetof(ibv_port_attr, link_layer) == 46 &&
              offsetof(ibv_port_attr, port_cap_flags2) == 48);

static_assert(sizeof(ibv_wc) == 48);
static_assert(sizeof(ibv_sge) == 16);
static_assert(sizeof(ibv_send_wr) == 128);
static_assert(sizeof(ibv_recv_wr) == 32);
static_assert(sizeof(ibv_qp_attr) == 144);
static_assert(sizeof(ibv_device_attr) == 232);
static_assert(sizeof(ibv_gid_entry) == 32);

}  // namespace verbena::compat
