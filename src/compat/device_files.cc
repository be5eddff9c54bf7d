// SPDX-License-Identifier: Apache-2.0
#include "compat/device_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "compat/cm_files.h"
#include "compat/counter_files.h"
#include "compat/device_table.h"
#include "compat/query.h"
#include "link/local_address.h"

namespace verbena::compat {
namespace {

using Kind = DeviceFile::Kind;

/// "0200:5242:0000:0001", as sysfs writes a GUID.
std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xFFFF,
                     guid >> 16 & 0xFFFF, guid & 0xFFFF);
}

std::string gid_text(const wire::Address& gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.gid.size(); i += 2) {
    text += fmt::format("{}{:04x}", i == 0 ? "" : ":", load_be<std::uint16_t>(gid.gid.data() + i));
  }
  return text;
}

/// Every processor, as a CPU mask in sysfs' form (groups of 32 bits) and as a list.
struct Processors {
  std::string mask{};
  std::string list{};
};

Processors all_processors() {
  const auto count = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF)));
  Processors all;
  const std::uint32_t partial = count % 32;
  if (partial != 0) all.mask = fmt::format("{:x}", (std::uint32_t{1} << partial) - 1);
  for (std::uint32_t i = 0; i < count / 32; ++i)
    all.mask += all.mask.empty() ? "ffffffff" : ",ffffffff";
  all.list = count == 1 ? "0" : fmt::format("0-{}", count - 1);
  return all;
}

class Files {
 public:
  explicit Files(std::string root) : root_(std::move(root)) {}

  void text(std::string_view name, std::string_view content) {
    add(name, Kind::kText, fmt::format("{}\n", content));
  }
  void link(std::string_view name, std::string target) {
    add(name, Kind::kLink, std::move(target));
  }
  void folder(std::string_view name) { add(name, Kind::kFolder, {}); }
  [[nodiscard]] std::vector<DeviceFile> take() { return std::move(files_); }

 private:
  void add(std::string_view name, Kind kind, std::string content) {
    files_.push_back({fmt::format("{}/{}", root_, name), kind, std::move(content)});
  }

  std::string root_;
  std::vector<DeviceFile> files_;
};

void add_gids(Files& files, const nic::GidTable& gids, bool roce_v1) {
  for (std::size_t index = 0; index < gids.size(); ++index) {
    const wire::Address& gid = gids[index];
    files.text(fmt::format("ports/1/gids/{}", index), gid_text(gid));
    if (gid.is_zero()) continue;
    files.text(fmt::format("ports/1/gid_attrs/types/{}", index),
               roce_v1 ? "IB/RoCE v1" : "RoCE v2");
    if (const auto local = link::find_local(gid))
      files.text(fmt::format("ports/1/gid_attrs/ndevs/{}", index), local->interface);
  }
}

void add_port(Files& files, const nic::PortReport& port, bool roce_v1) {
  files.text("ports/1/state", port.state.up ? "4: ACTIVE" : "1: DOWN");
  files.text("ports/1/phys_state", port.state.up ? "5: LinkUp" : "3: Disabled");
  files.text("ports/1/link_layer", "Ethernet");
  files.text("ports/1/rate", kRate);
  files.text("ports/1/lid", "0x0");
  files.text("ports/1/lid_mask_count", "0");
  files.text("ports/1/sm_lid", "0x0");
  files.text("ports/1/sm_sl", "0");
  files.text("ports/1/cap_mask", fmt::format("0x{:08x}", IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS));
  files.text("ports/1/pkeys/0", fmt::format("0x{:04x}", kDefaultPkey));
  add_gids(files, port.state.gids, roce_v1);
  for (const auto& [name, count] : counter_files(port))
    files.text(fmt::format("ports/1/{}", name), std::to_string(count));
}

std::vector<DeviceFile> class_files(const Device& device, const std::string& interface) {
  Files files(device.ibdev_path);
  files.text("node_type", "1: CA");
  files.text("node_guid", guid_text(device.config.guid));
  files.text("sys_image_guid", guid_text(device.config.guid));
  files.text("node_desc",
             device.config.roce_v1 ? "Verbena software RoCE v1" : "Verbena software RoCE v2");
  files.text("fw_ver", kFirmwareVersion);
  files.text("hw_rev", "0");

  const Processors processors = all_processors();
  files.text("device/numa_node", "-1");  // no node is nearer than another
  files.text("device/local_cpus", processors.mask);
  files.text("device/local_cpulist", processors.list);
  files.text("device/vendor", fmt::format("0x{:x}", kVendorId));
  files.text("device/device", fmt::format("0x{:x}", kVendorPartId));
  files.folder(fmt::format("device/infiniband/{}", device.config.name));
  files.folder(fmt::format("device/infiniband_verbs/{}", device.dev_name));
  if (!interface.empty())
    files.link(fmt::format("device/net/{}", interface), "/sys/class/net/" + interface);
  return files.take();
}

std::vector<DeviceFile> verbs_files(const Device& device) {
  Files files(device.dev_path);
  files.text("ibdev", device.config.name);
  files.text("abi_version", "1");
  files.link("device", fmt::format("../../infiniband/{}/device", device.config.name));
  return files.take();
}

std::vector<DeviceFile> fixed_files_of(const Device& device) {
  std::vector<DeviceFile> files = class_files(device, device.config.interface);
  std::ranges::move(verbs_files(device), std::back_inserter(files));
  // What programs ask is whether it is a character device that they may open.
  files.push_back({fmt::format("{}/{}", kNodeRoot, device.dev_name), Kind::kLink, "/dev/null"});
  return files;
}

}  // namespace

std::vector<DeviceFile> files_of(const Device& device) {
  std::vector<DeviceFile> files = fixed_files_of(device);
  std::ranges::move(live_files_of(device), std::back_inserter(files));
  return files;
}

std::vector<DeviceFile> common_files() {
  std::vector<DeviceFile> files = cm_files();
  files.push_back({fmt::format("{}/abi_version", kVerbsRoot), Kind::kText, "6\n"});
  return files;
}

std::string live_folder(const Device& device) {
  return fmt::format("{}/ports/1", device.ibdev_path);
}

std::vector<DeviceFile> live_files_of(const Device& device) {
  Files files(device.ibdev_path);
  add_port(files, device.host->port(device.config.address), device.config.roce_v1);
  return files.take();
}

std::optional<std::string> read_device_file(std::string_view path) {
  const auto ours = devices();
  if (!ours || ours->empty()) return std::nullopt;
  const auto text_in = [&](const std::vector<DeviceFile>& files) {
    const auto found = std::ranges::find(files, path, &DeviceFile::path);
    const bool is_text = found != files.end() && found->kind == Kind::kText;
    return is_text ? std::optional(found->content) : std::nullopt;
  };
  for (const Device* device : *ours) {
    if (!path.starts_with(device->ibdev_path) && !path.starts_with(device->dev_path)) continue;
    const bool live = path.starts_with(live_folder(*device));
    if (auto text = text_in(live ? live_files_of(*device) : fixed_files_of(*device))) return text;
  }
  return text_in(common_files());
}

}  // namespace verbena::compat
