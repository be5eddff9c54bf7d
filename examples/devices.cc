// SPDX-License-Identifier: Apache-2.0
//
// Which RDMA devices this machine has, their ports, and the addresses that peers know them by.
// Try: verbena run ./devices

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "examples/meeting.h"
#include "verbena/context.h"
#include "verbena/format.h"

namespace {

using namespace verbena::verbs;

Result<> show_port(const context& ctx, port of) {
  const port_attributes port = VERBENA_TRY(ctx.query_port(of));
  fmt::print("  port {}: {}, {}, MTU {} of at most {} bytes\n", of.value(), port.status(),
             port.layer(), bytes(port.current_mtu()), bytes(port.greatest_mtu()));
  // What a program that only wants to reach its peer would take.
  if (const auto choice = ctx.routable_gid(of))
    fmt::print("    reached best at {} (GID {})\n", choice->id, choice->index.value());
  return {};
}

Result<> show_device(const device_info& device) {
  // Opening gives a handle, which closes the device when it goes out of scope.
  const context ctx = VERBENA_TRY(context::open(device.name));
  const device_attributes can = VERBENA_TRY(ctx.query_device());
  fmt::print("{}: {} port(s), up to {} queue pairs of {} requests, {} memory regions\n",
             device.name, can.phys_port_cnt, can.max_qp, can.max_qp_wr, can.max_mr);
  for (std::uint8_t number = 1; number <= can.phys_port_cnt; ++number)
    VERBENA_TRY(show_port(ctx, port{number}));
  for (const gid_entry& row : VERBENA_TRY(ctx.gid_table()))
    fmt::print("  GID {} of port {}: {} ({})\n", row.index.value(), row.of.value(), row.id,
               row.kind);
  return {};
}

Result<> show_devices() {
  const auto list = VERBENA_TRY(devices());
  if (list.empty()) {
    return fail(std::errc::no_such_device, "devices",
                "this machine has no RDMA device; `verbena run` gives a program one");
  }
  for (const device_info& device : list) VERBENA_TRY(show_device(device));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return examples::finish(show_devices());
  const bool asked = std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h";
  std::fputs("Usage: devices\n\nLists RDMA devices, their ports and GIDs. It takes no arguments.\n",
             asked ? stdout : stderr);
  return asked ? 0 : 2;
}
