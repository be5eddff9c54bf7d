// SPDX-License-Identifier: Apache-2.0
//
// Values from JSON.
#include <array>

#include "verbena/json.h"
#include "verbs/json_reader.h"

namespace verbena::verbs {
namespace {

constexpr std::uint32_t kMost24 = 0xffffff;

/// "about" of an event: what there is, in the order of the variant.
constexpr std::array<std::string_view, std::variant_size_v<decltype(async_event::about)>> kSubjects{
    "device", "port", "qp", "cq", "srq", "wq"};

}  // namespace

template <>
Result<gid> read_json_value(const nlohmann::json& from) {
  const auto* const text = from.get_ptr<const std::string*>();
  if (text == nullptr) return fail(std::errc::invalid_argument, "read_json", "it is not a text");
  return gid::from_string(*text);
}

template <>
Result<gid_entry> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  gid_entry to;
  to.id = reader.address("gid");
  to.of = port(static_cast<std::uint8_t>(reader.number("port_num", 1, UINT8_MAX)));
  to.index = gid_index(reader.number<std::uint8_t>("gid_index"));
  to.kind = static_cast<gid_kind>(reader.number("gid_type", 0, IBV_GID_TYPE_ROCE_V2));
  to.interface_index = reader.number<std::uint32_t>("ndev_ifindex");
  return reader.end(to);
}

template <>
Result<qp_endpoint> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  qp_endpoint to;
  to.id = reader.address("gid");
  to.number = qp_number(static_cast<std::uint32_t>(reader.number("qp_num", 0, kMost24)));
  to.first = psn(static_cast<std::uint32_t>(reader.number("psn", 0, kMost24)));
  to.lid = lid(reader.number<std::uint16_t>("lid"));
  const std::uint64_t wanted = reader.number("mtu", bytes(mtu::bytes_256), bytes(mtu::bytes_4096));
  to.path_mtu = mtu::bytes_256;
  while (bytes(to.path_mtu) < wanted)
    to.path_mtu = static_cast<mtu>(static_cast<unsigned>(to.path_mtu) + 1);
  if (bytes(to.path_mtu) != wanted) reader.refuse("mtu", "it is not 256, 512, 1024, 2048 or 4096");
  to.of = port(reader.number<std::uint8_t>("port_num"));
  to.index = gid_index(reader.number<std::uint8_t>("gid_index"));
  return reader.end(to);
}

template <>
Result<remote_region> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  const auto address = reader.number<std::uint64_t>("address");
  const auto length = reader.number("length", 0, UINT64_MAX - address);
  const auto rkey = reader.number<std::uint32_t>("rkey");
  return reader.end(remote_region(address, length, rkey));
}

template <>
Result<device_info> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  device_info to;
  to.name = reader.text("name", IBV_SYSFS_NAME_MAX - 1);
  to.guid = reader.guid("guid");
  to.node = static_cast<ibv_node_type>(
      reader.signed_number("node_type", IBV_NODE_UNKNOWN, IBV_NODE_UNSPECIFIED));
  to.transport = static_cast<ibv_transport_type>(
      reader.signed_number("transport_type", IBV_TRANSPORT_UNKNOWN, IBV_TRANSPORT_UNSPECIFIED));
  return reader.end(std::move(to));
}

template <>
Result<device_attributes> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  device_attributes to{};
  for_each_field(kDeviceFields, [&](const auto& field) {
    reader.field(static_cast<ibv_device_attr&>(to), field);
  });
  return reader.end(to);
}

template <>
Result<port_attributes> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  port_attributes to{};
  for_each_field(kPortFields,
                 [&](const auto& field) { reader.field(static_cast<ibv_port_attr&>(to), field); });
  return reader.end(to);
}

template <>
Result<async_event> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  async_event to;
  to.type = static_cast<ibv_event_type>(reader.number("event_type", 0, IBV_EVENT_WQ_FATAL));
  const std::string about = reader.text("about", 8);
  if (about == kSubjects[0])
    to.about = async_event::of_device{};
  else if (about == kSubjects[1])
    to.about = async_event::of_port{port(reader.number<std::uint8_t>("number"))};
  else if (about == kSubjects[2])
    to.about = async_event::of_qp{
        qp_number(static_cast<std::uint32_t>(reader.number("number", 0, kMost24)))};
  else if (about == kSubjects[3])
    to.about = async_event::of_cq{nullptr};
  else if (about == kSubjects[4])
    to.about = async_event::of_srq{nullptr};
  else if (about == kSubjects[5])
    to.about = async_event::of_wq{reader.number<std::uint32_t>("number")};
  else
    reader.refuse("about", "it is not device, port, qp, cq, srq or wq");
  return reader.end(to);
}

template <>
Result<completion_failure> read_json_value(const nlohmann::json& from) {
  JsonReader reader(from);
  completion_failure to;
  to.status = static_cast<ibv_wc_status>(reader.number("status", 0, IBV_WC_TM_RNDV_INCOMPLETE));
  to.vendor_err = reader.number<std::uint32_t>("vendor_err");
  to.wr_id = reader.number<std::uint64_t>("wr_id");
  to.qp_num = reader.number<std::uint32_t>("qp_num");
  return reader.end(to);
}

template <json_readable T>
Result<T> read_json(std::string_view text) {
  if (text.size() > longest_json)
    return fail(std::errc::invalid_argument, "read_json",
                fmt::format("{} bytes, where {} are read at most", text.size(), longest_json));
  const auto parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return fail(std::errc::invalid_argument, "read_json", "it is no JSON");
  return read_json_value<T>(parsed);
}

template Result<gid> read_json(std::string_view text);
template Result<gid_entry> read_json(std::string_view text);
template Result<qp_endpoint> read_json(std::string_view text);
template Result<remote_region> read_json(std::string_view text);
template Result<device_info> read_json(std::string_view text);
template Result<device_attributes> read_json(std::string_view text);
template Result<port_attributes> read_json(std::string_view text);
template Result<async_event> read_json(std::string_view text);
template Result<completion_failure> read_json(std::string_view text);

}  // namespace verbena::verbs
