// SPDX-License-Identifier: Apache-2.0
//
// Looks at the devices as any verbs program does: through the C ABI, which here is that of our own
// library, linked in.
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <CLI/CLI.hpp>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "tools/commands.h"
#include "tools/exit_status.h"
#include "tools/run_options.h"
#include "wire/address.h"

namespace verbena::tools {

namespace {

constexpr const char* kFooter = R"(Examples:
  verbena devices
  verbena devices --addr 127.0.0.1,::1 --json

Exit status: 0, or 1 with a sentence on standard error when a device cannot be opened.)";

struct DevicesOptions {
  RunOptions run{};
  bool json = false;
};

struct DeviceFacts {
  std::string name{};
  std::uint64_t guid = 0;
  bool active = false;
  std::uint32_t active_mtu = 0;
  std::uint32_t max_mtu = 0;
  std::vector<std::string> addresses{};
  ibv_device_attr limits{};
};

std::unexpected<Error> failed(const std::string& what, int number) {
  return fail(static_cast<std::errc>(number), fmt::format("{}: {}", what, std::strerror(number)));
}

std::uint32_t mtu_bytes(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

std::vector<std::string> addresses_of(ibv_context* context, int entries) {
  std::vector<std::string> addresses;
  for (int i = 0; i < entries; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(context, 1, i, &gid) != 0) continue;
    wire::Address address;
    std::memcpy(address.gid.data(), gid.raw, sizeof gid.raw);
    if (!address.is_zero()) addresses.push_back(wire::to_string(address));
  }
  return addresses;
}

Result<DeviceFacts> look_at(ibv_device* device) {
  DeviceFacts facts;
  facts.name = ibv_get_device_name(device);
  errno = 0;
  const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(ibv_open_device(device),
                                                                    ibv_close_device);
  if (!context) return failed(fmt::format("cannot open the device {}", facts.name), errno);
  const __be64 guid = ibv_get_device_guid(device);
  facts.guid = load_be<std::uint64_t>(reinterpret_cast<const std::byte*>(&guid));
  if (const int error = ibv_query_device(context.get(), &facts.limits); error != 0) {
    return failed(fmt::format("cannot query the device {}", facts.name), error);
  }
  ibv_port_attr port{};
  if (const int error = ibv_query_port(context.get(), 1, &port); error != 0) {
    return failed(fmt::format("cannot query the port of {}", facts.name), error);
  }
  facts.active = port.state == IBV_PORT_ACTIVE;
  facts.active_mtu = mtu_bytes(port.active_mtu);
  facts.max_mtu = mtu_bytes(port.max_mtu);
  facts.addresses = addresses_of(context.get(), port.gid_tbl_len);
  return facts;
}

Result<std::vector<DeviceFacts>> all_devices() {
  int count = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(ibv_get_device_list(&count),
                                                                  ibv_free_device_list);
  if (!list) return failed("cannot list the devices", errno);
  std::vector<DeviceFacts> devices;
  devices.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) devices.push_back(VERBENA_TRY(look_at(list.get()[i])));
  return devices;
}

nlohmann::ordered_json as_json(const DeviceFacts& device) {
  return {{"name", device.name},
          {"addresses", device.addresses},
          {"active", device.active},
          {"active_mtu", device.active_mtu},
          {"max_mtu", device.max_mtu},
          {"guid", fmt::format("{:016x}", device.guid)},
          {"max_qp", device.limits.max_qp},
          {"max_cq", device.limits.max_cq},
          {"max_mr", device.limits.max_mr},
          {"max_mr_size", device.limits.max_mr_size},
          {"max_qp_wr", device.limits.max_qp_wr},
          {"max_sge", device.limits.max_sge},
          {"max_rd_atomic", device.limits.max_qp_rd_atom}};
}

std::string as_table(const std::vector<DeviceFacts>& devices) {
  std::string text =
      fmt::format("{:<10} {:<24} {:<7} {:>5} {:<17} {:>7} {:>8}\n", "DEVICE", "ADDRESS (GID 0)",
                  "STATE", "MTU", "NODE GUID", "MAX QP", "MAX MR");
  for (const auto& device : devices) {
    text += fmt::format("{:<10} {:<24} {:<7} {:>5} {:016x}  {:>7} {:>8}\n", device.name,
                        device.addresses.empty() ? "-" : device.addresses.front(),
                        device.active ? "active" : "down", device.active_mtu, device.guid,
                        device.limits.max_qp, device.limits.max_mr);
  }
  return text;
}

int list_devices(const DevicesOptions& options) {
  const auto variables = setting_variables(options.run);
  const auto settings = variables ? settings_with(*variables) : std::unexpected(variables.error());
  if (!settings) {
    complain(settings.error().message);
    return kFailure;
  }
  for (const auto& [name, value] : *variables) setenv(name.c_str(), value.c_str(), 1);
  const auto devices = all_devices();
  if (!devices) {
    complain(devices.error().message);
    return kFailure;
  }
  auto array = nlohmann::ordered_json::array();
  for (const auto& device : *devices) array.push_back(as_json(device));
  const auto text = options.json ? array.dump(2) + "\n" : as_table(*devices);
  std::fputs(text.c_str(), stdout);
  return kSuccess;
}

}  // namespace

void add_devices_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("devices", "List the devices that a verbs program would see");
  command->footer(kFooter);
  auto options = std::make_shared<DevicesOptions>();
  command->add_flag("--json", options->json, "Print JSON");
  add_run_options(*command, options->run);
  command->callback([options, &invocation] { invocation.status = list_devices(*options); });
}

}  // namespace verbena::tools
