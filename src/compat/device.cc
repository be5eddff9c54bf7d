// SPDX-License-Identifier: Apache-2.0
// The device list: ibv_get_device_list(3), ibv_get_device_name(3), ibv_get_device_guid(3),
// ibv_get_device_index(3).
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "base/log.h"
#include "compat/abi.h"
#include "compat/device_table.h"
#include "compat/errno.h"
#include "compat/real.h"

/// In libverbena.so: a librdmacm of the program that does not see our files gets to see them
/// (`interpose/librdmacm.cc`). Null where the library is linked in.
extern "C" __attribute__((weak, visibility("hidden"))) void verbena_lead_librdmacm();

namespace verbena::compat {
namespace {

/// What stands before the array that the program gets.
struct ListHead {
  ibv_device** real = nullptr;  ///< the system's list, to be freed with ours
};

ListHead* head_of(ibv_device** list) { return reinterpret_cast<ListHead*>(list) - 1; }

struct RealList {
  ibv_device** devices = nullptr;
  std::size_t count = 0;
};

RealList real_list() {
  if (!lists_real_devices()) return {};
  const real::Unredirected guard;
  int count = 0;
  ibv_device** const list = real::call<"ibv_get_device_list">(&ibv_get_device_list, &count);
  return {list, list != nullptr && count > 0 ? static_cast<std::size_t>(count) : 0};
}

std::span<Device* const> our_devices() {
  auto ours = devices();
  if (ours) return *ours;
  // Programs say no more than "no device found": the reason must be said here.
  log(LogLevel::kError, "no device: {}", ours.error().message);
  return {};
}

ibv_device** make_list(int* count) {
  const std::span<Device* const> ours = our_devices();
  const RealList others = real_list();
  const std::size_t size = ours.size() + others.count;
  auto* head =
      static_cast<ListHead*>(std::calloc(1, sizeof(ListHead) + (size + 1) * sizeof(ibv_device*)));
  if (head == nullptr) {
    if (others.devices != nullptr)
      real::call<"ibv_free_device_list">(&ibv_free_device_list, others.devices);
    errno = ENOMEM;
    return nullptr;
  }
  head->real = others.devices;
  auto** const list = reinterpret_cast<ibv_device**>(head + 1);
  std::size_t place = 0;
  for (Device* device : ours) list[place++] = device;
  for (std::size_t i = 0; i < others.count; ++i) list[place++] = others.devices[i];
  if (count != nullptr) *count = static_cast<int>(size);
  return list;
}

}  // namespace

VERBENA_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  try {
    const int before = errno;
    if (verbena_lead_librdmacm != nullptr) verbena_lead_librdmacm();
    ibv_device** const list = make_list(num_devices);
    if (list != nullptr) errno = before;
    return list;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

VERBENA_EXPORT void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  ListHead* const head = head_of(list);
  if (head->real != nullptr) real::call<"ibv_free_device_list">(&ibv_free_device_list, head->real);
  std::free(head);
}

VERBENA_EXPORT const char* ibv_get_device_name(ibv_device* device) { return device->name; }

VERBENA_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  if (const Device* ours = find_device(device)) return htobe64(ours->config.guid);
  return real::call<"ibv_get_device_guid">(&ibv_get_device_guid, device);
}

VERBENA_EXPORT int ibv_get_device_index(ibv_device* device) {
  if (const Device* ours = find_device(device)) return ours->index;
  return real::call<"ibv_get_device_index">(&ibv_get_device_index, device);
}

}  // namespace verbena::compat
