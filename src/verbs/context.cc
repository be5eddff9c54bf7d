// SPDX-License-Identifier: Apache-2.0
#include "verbena/context.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "verbena/protection_domain.h"

namespace verbena::verbs {
namespace {

struct FreeList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};

struct DeviceList {
  std::unique_ptr<ibv_device*, FreeList> owner;
  std::span<ibv_device*> all;
};

Result<DeviceList> list_devices() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  // A kernel without RDMA has no devices.
  if (list == nullptr && errno == ENOSYS) return DeviceList{};
  VERBENA_TRY(detail::from_pointer(list, "ibv_get_device_list"));
  return DeviceList{std::unique_ptr<ibv_device*, FreeList>(list),
                    {list, static_cast<std::size_t>(count)}};
}

std::string what_there_is(std::span<ibv_device* const> all) {
  if (all.empty()) return "there is no device at all (verbena run PROGRAM gives a program one)";
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (ibv_device* const device : all) names.emplace_back(ibv_get_device_name(device));
  return fmt::format("there is {}", fmt::join(names, ", "));
}

int rank(const gid_entry& entry) {
  const gid& id = entry.id;
  const int version = entry.kind == gid_kind::roce_v2 ? 0 : 8;
  if (id.is_link_local()) return version + 3;
  if (id.is_loopback()) return version + 2;
  return version + (id.is_ipv4() ? 0 : 1);
}

gid_entry entry_of(const ibv_gid_entry& from) {
  return {.id = gid(from.gid),
          .of = port(static_cast<std::uint8_t>(from.port_num)),
          .index = gid_index(static_cast<std::uint8_t>(from.gid_index)),
          .kind = static_cast<gid_kind>(from.gid_type),
          .interface_index = from.ndev_ifindex};
}

}  // namespace

Result<std::vector<device_info>> devices() {
  const DeviceList list = VERBENA_TRY(list_devices());
  std::vector<device_info> found;
  for (ibv_device* const device : list.all) {
    found.push_back({.name = ibv_get_device_name(device),
                     .guid = be64toh(ibv_get_device_guid(device)),
                     .node = device->node_type,
                     .transport = device->transport_type});
  }
  return found;
}

std::optional<gid_entry> most_routable(std::span<const gid_entry> table, port of) {
  std::optional<gid_entry> best;
  for (const gid_entry& row : table)
    if (row.of == of && (!best || rank(row) < rank(*best))) best = row;
  return best;
}

context::context(ibv_context* raw) : handle(raw, &ibv_close_device, "ibv_close_device", {}) {}

context::context(ibv_context* raw, detail::keep holder)
    : handle(raw, [](ibv_context*) { return 0; }, "context::borrow", {std::move(holder)}) {}

Result<context> context::borrow(ibv_context* opened, detail::keep holder) {
  if (opened == nullptr)
    return fail(std::errc::invalid_argument, "context::borrow", "there is no context to borrow");
  return context(opened, std::move(holder));
}

Result<context> context::adopt(ibv_context* opened, ownership whose) {
  if (opened == nullptr)
    return fail(std::errc::invalid_argument, "adopt", "there is no context at a null pointer");
  return whose == ownership::owned ? context(opened) : context(opened, nullptr);
}

Result<context> context::open_where(const std::function<Result<bool>(const context&)>& wanted,
                                    const std::string& what) {
  const DeviceList list = VERBENA_TRY(list_devices());
  for (ibv_device* const device : list.all) {
    context one(VERBENA_TRY(detail::from_pointer(ibv_open_device(device), "ibv_open_device")));
    if (VERBENA_TRY(wanted(one))) return one;
  }
  return fail(std::errc::no_such_device, "context::open",
              fmt::format("no device {}; {}", what, what_there_is(list.all)));
}

Result<context> context::open(std::string_view name) {
  const DeviceList list = VERBENA_TRY(list_devices());
  const auto is_it = [&](ibv_device* device) {
    return name.empty() || name == ibv_get_device_name(device);
  };
  const auto found = std::ranges::find_if(list.all, is_it);
  if (found == list.all.end()) {
    const std::string what =
        name.empty() ? "no device" : fmt::format("there is no device \"{}\"", name);
    return fail(std::errc::no_such_device, "context::open",
                fmt::format("{}; {}", what, what_there_is(list.all)));
  }
  return context(VERBENA_TRY(detail::from_pointer(ibv_open_device(*found), "ibv_open_device")));
}

Result<context> context::open(const gid& with) {
  return open_where(
      [&](const context& one) -> Result<bool> {
        const auto table = VERBENA_TRY(one.gid_table());
        return std::ranges::find(table, with, &gid_entry::id) != table.end();
      },
      "has the GID " + with.to_string());
}

Result<context> context::open_in_subnet(const gid& prefix, unsigned bits) {
  return open_where(
      [&](const context& one) -> Result<bool> {
        const auto table = VERBENA_TRY(one.gid_table());
        return std::ranges::any_of(
            table, [&](const gid_entry& row) { return row.id.is_in(prefix, bits); });
      },
      fmt::format("has a GID in {}/{}", prefix.to_string(), bits));
}

std::string context::name() const {
  return native() == nullptr ? std::string() : ibv_get_device_name(raw()->device);
}

Result<device_attributes> context::query_device() const {
  VERBENA_TRY(check("query_device"));
  device_attributes attributes{};
  VERBENA_TRY(detail::from_errno(ibv_query_device(raw(), &attributes), "ibv_query_device"));
  return attributes;
}

Result<port_attributes> context::query_port(port of) const {
  VERBENA_TRY(check("query_port"));
  port_attributes attributes{};
  VERBENA_TRY(detail::from_errno(ibv_query_port(raw(), of.value(), &attributes), "ibv_query_port"));
  return attributes;
}

Result<gid> context::query_gid(port of, gid_index index) const {
  VERBENA_TRY(check("query_gid"));
  ibv_gid id{};
  VERBENA_TRY(detail::from_minus_one(ibv_query_gid(raw(), of.value(), index.value(), &id),
                                     "ibv_query_gid"));
  return gid(id);
}

Result<std::vector<gid_entry>> context::gid_table() const {
  const device_attributes device = VERBENA_TRY(query_device());
  std::size_t most = 0;
  for (std::uint8_t number = 1; number <= device.phys_port_cnt; ++number)
    most += static_cast<std::size_t>(VERBENA_TRY(query_port(port(number))).gid_tbl_len);
  std::vector<ibv_gid_entry> rows(most);
  const std::size_t count = VERBENA_TRY(detail::from_count(
      ibv_query_gid_table(raw(), rows.data(), rows.size(), 0), "ibv_query_gid_table"));
  std::vector<gid_entry> table;
  for (const ibv_gid_entry& row : std::span(rows).first(count)) table.push_back(entry_of(row));
  return table;
}

Result<gid_entry> context::routable_gid(port of) const {
  const auto table = VERBENA_TRY(gid_table());
  const auto best = most_routable(table, of);
  if (!best)
    return fail(std::errc::address_not_available, "routable_gid",
                fmt::format("port {} of {} has no GID", of.value(), name()));
  return *best;
}

Result<std::uint16_t> context::query_pkey(port of, std::uint16_t index) const {
  VERBENA_TRY(check("query_pkey"));
  __be16 key = 0;
  VERBENA_TRY(
      detail::from_minus_one(ibv_query_pkey(raw(), of.value(), index, &key), "ibv_query_pkey"));
  return be16toh(key);
}

Result<protection_domain> context::alloc_pd() const {
  VERBENA_TRY(check("alloc_pd"));
  return protection_domain(VERBENA_TRY(detail::from_pointer(ibv_alloc_pd(raw()), "ibv_alloc_pd")),
                           {held()});
}

}  // namespace verbena::verbs
