// SPDX-License-Identifier: Apache-2.0
#include "compat/device_table.h"

#include <algorithm>
#include <mutex>
#include <string_view>

namespace verbena::compat {
namespace {

/// Devices are never freed while the process lives: programs keep pointers to them after
/// ibv_free_device_list.
struct Table {
  std::mutex lock;
  bool filled = false;
  bool live = true;
  std::vector<Device*> devices;
  std::uint32_t generation = 0;  ///< of the process that the live host belongs to
};

Table& table() {
  static auto* const leaked = new Table;
  return *leaked;
}

template <std::size_t kSize>
void put(char (&to)[kSize], std::string_view text) {
  const std::size_t size = std::min(text.size(), kSize - 1);
  std::copy_n(text.begin(), size, to);
  to[size] = '\0';
}

// Devices of the kernel count from 0; ours begin where no machine gets to.
constexpr int kFirstIndex = 900;

void fill(Table& table, std::span<const DeviceSpec> specs) {
  for (const DeviceSpec& spec : specs) {
    const int index = kFirstIndex + static_cast<int>(table.devices.size());
    table.devices.push_back(new Device(*spec.host, spec.config, index));
  }
  table.filled = true;
}

}  // namespace

Device::Device(nic::Host& the_host, nic::NicConfig the_config, int the_index)
    : ibv_device{}, host(&the_host), config(std::move(the_config)), index(the_index) {
  node_type = IBV_NODE_CA;
  transport_type = IBV_TRANSPORT_IB;
  const std::string verbs_name = "uverbs" + std::to_string(index);
  put(name, config.name);
  put(dev_name, verbs_name);
  put(dev_path, "/sys/class/infiniband_verbs/" + verbs_name);
  put(ibdev_path, "/sys/class/infiniband/" + config.name);
}

void set_devices(std::span<const DeviceSpec> devices) {
  clear_devices();
  Table& the_table = table();
  const std::scoped_lock lock(the_table.lock);
  the_table.live = false;
  fill(the_table, devices);
}

void clear_devices() {
  Table& the_table = table();
  const std::scoped_lock lock(the_table.lock);
  for (Device* device : the_table.devices) delete device;
  the_table.devices.clear();
  the_table.filled = false;
  the_table.live = true;
}

Result<std::span<Device* const>> devices() {
  watch_process();
  Table& the_table = table();
  const std::scoped_lock lock(the_table.lock);
  if (!the_table.filled) {
    const std::vector<DeviceSpec> specs = VERBENA_TRY(live_devices());
    fill(the_table, specs);
    the_table.generation = process_generation();
  } else if (the_table.live && is_dead(the_table.generation)) {
    nic::Host* host = VERBENA_TRY(renewed_live_host());
    for (Device* device : the_table.devices) device->host = host;
    the_table.generation = process_generation();
  }
  return std::span<Device* const>(the_table.devices);
}

Device* find_device(const ibv_device* device) {
  Table& the_table = table();
  const std::scoped_lock lock(the_table.lock);
  const auto found = std::ranges::find(the_table.devices, device);
  return found != the_table.devices.end() ? *found : nullptr;
}

bool lists_real_devices() {
  Table& the_table = table();
  const std::scoped_lock lock(the_table.lock);
  return the_table.live;
}

void lock_table() { table().lock.lock(); }
void unlock_table() { table().lock.unlock(); }

}  // namespace verbena::compat
