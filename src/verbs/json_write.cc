// SPDX-License-Identifier: Apache-2.0
//
// Values to JSON.
#include <string.h>

#include "verbena/json.h"
#include "verbs/json_reader.h"

namespace verbena::verbs {
namespace {

template <typename T, typename N>
void write(nlohmann::json& to, const T& value, const NumberField<T, N>& field) {
  to[std::string(field.name)] = static_cast<N>(value.*field.member);
}
template <typename T>
void write(nlohmann::json& to, const T& value, const GuidField<T>& field) {
  to[std::string(field.name)] = guid_text(be64toh(value.*field.member));
}
template <typename T>
void write(nlohmann::json& to, const T& value, const TextField<T>& field) {
  const auto& text = value.*field.member;
  to[std::string(field.name)] = std::string(text, strnlen(text, TextField<T>::kSize));
}

struct WriteSubject {
  nlohmann::json& to;
  void operator()(const async_event::of_device& /*device*/) const { to["about"] = "device"; }
  void operator()(const async_event::of_port& from) const {
    to["about"] = "port";
    to["number"] = from.number.value();
  }
  void operator()(const async_event::of_qp& from) const {
    to["about"] = "qp";
    to["number"] = from.number.value();
  }
  void operator()(const async_event::of_cq& /*cq*/) const { to["about"] = "cq"; }
  void operator()(const async_event::of_srq& /*srq*/) const { to["about"] = "srq"; }
  void operator()(const async_event::of_wq& from) const {
    to["about"] = "wq";
    to["number"] = from.number;
  }
};

}  // namespace

void to_json(nlohmann::json& to, const gid& from) { to = from.to_string(); }

void to_json(nlohmann::json& to, const gid_entry& from) {
  to = {{"gid", from.id.to_string()},
        {"port_num", from.of.value()},
        {"gid_index", from.index.value()},
        {"gid_type", static_cast<std::uint32_t>(from.kind)},
        {"ndev_ifindex", from.interface_index}};
}

void to_json(nlohmann::json& to, const qp_endpoint& from) {
  to = {{"gid", from.id.to_string()},     {"qp_num", from.number.value()},
        {"psn", from.first.value()},      {"lid", from.lid.value()},
        {"mtu", bytes(from.path_mtu)},    {"port_num", from.of.value()},
        {"gid_index", from.index.value()}};
}

void to_json(nlohmann::json& to, const remote_region& from) {
  to = {{"address", from.address()}, {"length", from.size()}, {"rkey", from.rkey()}};
}

void to_json(nlohmann::json& to, const device_info& from) {
  to = {{"name", from.name},
        {"guid", guid_text(from.guid)},
        {"node_type", static_cast<int>(from.node)},
        {"transport_type", static_cast<int>(from.transport)}};
}

void to_json(nlohmann::json& to, const device_attributes& from) {
  to = nlohmann::json::object();
  for_each_field(kDeviceFields, [&](const auto& field) {
    write(to, static_cast<const ibv_device_attr&>(from), field);
  });
}

void to_json(nlohmann::json& to, const port_attributes& from) {
  to = nlohmann::json::object();
  for_each_field(kPortFields, [&](const auto& field) {
    write(to, static_cast<const ibv_port_attr&>(from), field);
  });
}

void to_json(nlohmann::json& to, const async_event& from) {
  to = {{"event_type", static_cast<int>(from.type)}, {"name", from.name()}};
  std::visit(WriteSubject{to}, from.about);
}

void to_json(nlohmann::json& to, const completion_failure& from) {
  to = {{"status", static_cast<int>(from.status)},
        {"name", name_of(from.status)},
        {"vendor_err", from.vendor_err},
        {"wr_id", from.wr_id},
        {"qp_num", from.qp_num}};
}

void to_json(nlohmann::json& to, const object_counts& from) {
  nlohmann::json kinds = nlohmann::json::object();
  for (std::size_t i = 0; i < object_kinds; ++i) {
    const auto& kind = from.kinds.at(i);
    kinds[std::string(name_of(static_cast<object_kind>(i)))] = {{"live", kind.live()},
                                                                {"created", kind.created},
                                                                {"destroyed", kind.destroyed},
                                                                {"closed", kind.closed}};
  }
  to = {{"objects", std::move(kinds)},     {"lost", from.lost},     {"failed", from.failed},
        {"transitions", from.transitions}, {"errors", from.errors}, {"phases", from.phases}};
}

void to_json(nlohmann::json& to, const post_counts& from) {
  to = {{"sends", from.sends},
        {"send_bytes", from.send_bytes},
        {"receives", from.receives},
        {"receive_bytes", from.receive_bytes},
        {"would_block", from.would_block},
        {"refused", from.refused}};
}

void to_json(nlohmann::json& to, const completion_counts& from) {
  // Statuses that did not occur are left out.
  nlohmann::json by_status = nlohmann::json::object();
  for (std::size_t i = 0; i < completion_counts::statuses; ++i)
    if (from.by_status.at(i) != 0)
      by_status[std::string(name_of(static_cast<ibv_wc_status>(i)))] = from.by_status.at(i);
  to = {{"by_status", std::move(by_status)},
        {"polls", from.polls},
        {"empty_polls", from.empty_polls},
        {"failed_polls", from.failed_polls},
        {"received_bytes", from.received_bytes}};
}

template <typename T>
  requires(json_readable<T> || std::same_as<T, object_counts> || std::same_as<T, post_counts> ||
           std::same_as<T, completion_counts>)
std::string write_json(const T& value) {
  nlohmann::json json;
  to_json(json, value);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template std::string write_json(const gid& value);
template std::string write_json(const gid_entry& value);
template std::string write_json(const qp_endpoint& value);
template std::string write_json(const remote_region& value);
template std::string write_json(const device_info& value);
template std::string write_json(const device_attributes& value);
template std::string write_json(const port_attributes& value);
template std::string write_json(const async_event& value);
template std::string write_json(const completion_failure& value);
template std::string write_json(const object_counts& value);
template std::string write_json(const post_counts& value);
template std::string write_json(const completion_counts& value);

}  // namespace verbena::verbs
