// SPDX-License-Identifier: Apache-2.0
#include "verbena/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using ::testing::HasSubstr;
using testing::must;

qp_endpoint some_endpoint() {
  return {.id = must(gid::from_string("192.168.1.7")),
          .number = qp_number{0xabcdef},
          .first = psn{0xffffff},
          .lid = lid{3},
          .path_mtu = mtu::bytes_2048,
          .of = port{1},
          .index = gid_index{5}};
}

/// The endpoint's JSON with one key changed: what `read_json` has against it.
std::string against(const char* key, const nlohmann::json& value) {
  nlohmann::json json = some_endpoint();
  json[key] = value;
  const auto read = read_json_value<qp_endpoint>(json);
  EXPECT_FALSE(read) << json.dump();
  if (read) return "";
  EXPECT_EQ(read.error(), std::errc::invalid_argument);
  EXPECT_STREQ(read.error().verb(), "read_json");
  return std::string(read.error().context());
}

TEST(Json, AnEndpointIsWrittenForPeopleAndReadAgain) {
  EXPECT_EQ(write_json(some_endpoint()),
            R"({"gid":"192.168.1.7","gid_index":5,"lid":3,"mtu":2048,"port_num":1,)"
            R"("psn":16777215,"qp_num":11259375})");
  EXPECT_EQ(must(read_json<qp_endpoint>(write_json(some_endpoint()))), some_endpoint());
}

TEST(Json, NlohmannsOwnWayThrowsAndOursDoesNot) {
  nlohmann::json json = {{"peer", some_endpoint()}};
  EXPECT_EQ(json.at("peer").get<qp_endpoint>(), some_endpoint());
  json["peer"]["mtu"] = 1000;
  EXPECT_THROW((void)json.at("peer").get<qp_endpoint>(), std::system_error);
  EXPECT_FALSE(read_json_value<qp_endpoint>(json["peer"]));
}

TEST(Json, WhatIsWrongWithANumberIsSaid) {
  EXPECT_EQ(against("qp_num", 0x1000000), "qp_num: it is not a whole number from 0 to 16777215");
  EXPECT_THAT(against("psn", -1), HasSubstr("psn: "));
  EXPECT_THAT(against("lid", 65536), HasSubstr("from 0 to 65535"));
  EXPECT_THAT(against("port_num", 256), HasSubstr("from 0 to 255"));
  EXPECT_THAT(against("gid_index", "1"), HasSubstr("gid_index: "));
  EXPECT_THAT(against("qp_num", 1.0), HasSubstr("qp_num: "));
  EXPECT_THAT(against("qp_num", nullptr), HasSubstr("qp_num: "));
  EXPECT_THAT(against("mtu", 1000), HasSubstr("it is not 256, 512, 1024, 2048 or 4096"));
  EXPECT_THAT(against("mtu", 8192), HasSubstr("from 256 to 4096"));
  EXPECT_THAT(against("gid", "nobody"), HasSubstr("neither an IPv6 nor an IPv4 address"));
  EXPECT_THAT(against("gid", std::string("1.2.3.4\0x", 9)), HasSubstr("gid: "));
  EXPECT_THAT(against("gid", std::string(1000, '1')), HasSubstr("up to 45 bytes"));
}

TEST(Json, AKeyThatIsMissingIsNamedAndOneThatIsUnknownIsPassedOver) {
  nlohmann::json json = some_endpoint();
  json["later"] = {1, 2, 3};
  EXPECT_TRUE(read_json_value<qp_endpoint>(json));
  json.erase("psn");
  EXPECT_EQ(read_json_value<qp_endpoint>(json).error().context(), "psn: it is missing");
}

TEST(Json, HostileTextsAreRefused) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), std::string("7"),
        std::string("{}"), std::string("{\"gid\":\"\xff\"}"), std::string(1, '\0'),
        std::string(60000, '['), std::string(longest_json + 1, ' '),
        std::string(R"({"gid":1e999})")}) {
    const auto read = read_json<qp_endpoint>(text);
    ASSERT_FALSE(read) << text.substr(0, 20);
    EXPECT_EQ(read.error(), std::errc::invalid_argument);
    EXPECT_FALSE(read.error().context().empty());
  }
}

TEST(Json, ARemoteRegionEndsWithinTheAddresses) {
  const remote_region region(0xfffffffffffff000, 0xfff, 0x80000001);
  EXPECT_EQ(must(read_json<remote_region>(write_json(region))), region);
  EXPECT_FALSE(
      read_json<remote_region>(R"({"address":18446744073709547520,"length":4096,"rkey":1})"));
}

TEST(Json, GidsAndTheirRowsAreReadAgain) {
  for (const char* text : {"fe80::1", "10.0.0.1", "::", "2001:db8::ff"}) {
    const gid id = must(gid::from_string(text));
    EXPECT_EQ(write_json(id), '"' + std::string(text) + '"');
    EXPECT_EQ(must(read_json<gid>(write_json(id))), id);
  }
  const auto ctx = must(context::open("vrb0"));
  for (const gid_entry& row : must(ctx.gid_table()))
    EXPECT_EQ(must(read_json<gid_entry>(write_json(row))), row);
  EXPECT_FALSE(read_json<gid_entry>(
      R"({"gid":"::","port_num":0,"gid_index":0,"gid_type":2,"ndev_ifindex":0})"));
  EXPECT_FALSE(read_json<gid_entry>(
      R"({"gid":"::","port_num":1,"gid_index":0,"gid_type":3,"ndev_ifindex":0})"));
}

TEST(Json, DevicesAndTheirAttributesAreReadAgain) {
  for (const device_info& info : must(devices())) {
    const auto again = must(read_json<device_info>(write_json(info)));
    EXPECT_EQ(again.name, info.name);
    EXPECT_EQ(again.guid, info.guid);
    EXPECT_EQ(again.node, info.node);
    EXPECT_EQ(again.transport, info.transport);
  }
  const auto ctx = must(context::open("vrb0"));
  const auto device = must(ctx.query_device());
  const auto device_again = must(read_json<device_attributes>(write_json(device)));
  EXPECT_EQ(device_again.to_bytes(), device.to_bytes());
  EXPECT_EQ(device_again.max_qp, device.max_qp);
  EXPECT_STREQ(device_again.fw_ver, device.fw_ver);
  EXPECT_EQ(device_again.node_guid, device.node_guid);
  const auto about_port = must(ctx.query_port());
  const auto port_again = must(read_json<port_attributes>(write_json(about_port)));
  EXPECT_EQ(port_again.to_bytes(), about_port.to_bytes());
  EXPECT_EQ(port_again.status(), port_state::active);
  EXPECT_EQ(port_again.layer(), link_layer::ethernet);
}

TEST(Json, AttributesAreCheckedFieldByField) {
  const auto ctx = must(context::open("vrb0"));
  nlohmann::json json = must(ctx.query_device());
  EXPECT_EQ(json.size(), 40);  // as the C struct has
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = json;
    changed[key] = value;
    const auto read = read_json_value<device_attributes>(changed);
    return read ? std::string() : std::string(read.error().context());
  };
  EXPECT_THAT(refused("max_qp", -1), HasSubstr("max_qp: "));
  EXPECT_THAT(refused("max_qp", 2147483648), HasSubstr("from 0 to 2147483647"));
  EXPECT_THAT(refused("atomic_cap", 3), HasSubstr("from 0 to 2"));
  EXPECT_THAT(refused("fw_ver", std::string(64, 'x')), HasSubstr("up to 63 bytes"));
  EXPECT_THAT(refused("node_guid", "1:2:3:4"), HasSubstr("not a GUID"));
  EXPECT_THAT(refused("node_guid", "0000:0000:0000:000G"), HasSubstr("not a GUID"));
  EXPECT_EQ(refused("fw_ver", std::string(63, 'x')), "");
  nlohmann::json about_port = must(ctx.query_port());
  EXPECT_EQ(about_port.size(), 22);
  about_port["state"] = 6;
  EXPECT_FALSE(read_json_value<port_attributes>(about_port));
}

TEST(Json, ANameThatIsNoUtf8IsWrittenAllTheSame) {
  device_info info{.name = "mlx\xff"};
  EXPECT_THAT(write_json(info), HasSubstr("mlx\xef\xbf\xbd"));
  EXPECT_EQ(must(read_json<device_info>(write_json(info))).node, IBV_NODE_UNKNOWN);
}

TEST(Json, EventsAreReadAgainButForAddresses) {
  ibv_cq cq{};
  const std::vector<async_event> events{
      {.type = IBV_EVENT_DEVICE_FATAL, .about = async_event::of_device{}},
      {.type = IBV_EVENT_PORT_ACTIVE, .about = async_event::of_port{port{1}}},
      {.type = IBV_EVENT_QP_FATAL, .about = async_event::of_qp{qp_number{0x123456}}},
      {.type = IBV_EVENT_CQ_ERR, .about = async_event::of_cq{&cq}},
      {.type = IBV_EVENT_SRQ_LIMIT_REACHED, .about = async_event::of_srq{nullptr}},
      {.type = IBV_EVENT_WQ_FATAL, .about = async_event::of_wq{9}}};
  for (const async_event& event : events) {
    const auto again = must(read_json<async_event>(write_json(event)));
    EXPECT_EQ(again.type, event.type);
    EXPECT_EQ(again.about.index(), event.about.index());
    EXPECT_EQ(write_json(again), write_json(event));
  }
  EXPECT_EQ(write_json(events[1]),
            R"({"about":"port","event_type":9,"name":"port active","number":1})");
  EXPECT_FALSE(read_json<async_event>(R"({"about":"moon","event_type":9,"number":1})"));
  EXPECT_FALSE(read_json<async_event>(R"({"about":"device","event_type":20})"));
}

TEST(Json, AFailureIsReadAgain) {
  const completion_failure failure{
      .status = IBV_WC_REM_ACCESS_ERR, .vendor_err = 7, .wr_id = UINT64_MAX, .qp_num = 0x11};
  EXPECT_EQ(write_json(failure),
            R"({"name":"remote access error","qp_num":17,"status":10,"vendor_err":7,)"
            R"("wr_id":18446744073709551615})");
  const auto again = must(read_json<completion_failure>(write_json(failure)));
  EXPECT_EQ(again.status, failure.status);
  EXPECT_EQ(again.wr_id, failure.wr_id);
  EXPECT_FALSE(
      read_json<completion_failure>(R"({"qp_num":17,"status":24,"vendor_err":7,"wr_id":1})"));
}

TEST(Json, CountsAreWritten) {
  object_counts objects;
  objects.kinds[static_cast<std::size_t>(object_kind::queue_pair)] = {.created = 5, .closed = 2};
  const auto json = nlohmann::json::parse(write_json(objects));
  EXPECT_EQ(json.at("objects").at("queue pair").at("live"), 3);
  EXPECT_EQ(json.at("objects").size(), object_kinds);
  completion_counts completions;
  completions.by_status[IBV_WC_SUCCESS] = 9;
  completions.by_status.back() = 1;
  EXPECT_EQ(nlohmann::json::parse(write_json(completions)).at("by_status"),
            nlohmann::json({{"success", 9}, {"unknown", 1}}));
  EXPECT_EQ(nlohmann::json::parse(write_json(post_counts{.sends = 4})).at("sends"), 4);
}

}  // namespace
}  // namespace verbena::verbs
