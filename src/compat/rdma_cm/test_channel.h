// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: the rdma_cm device as librdmacm uses it, by the bytes of commands,
// between two devices of this process on real sockets.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "compat/device_table.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/device_file.h"
#include "compat/rdma_cm/file.h"
#include "nic/live_host.h"

namespace verbena::compat::rdma_cm::testing {

inline constexpr const char* kHere = "127.91.0.1";
inline constexpr const char* kThere = "127.91.0.2";

/// Devices vrb0 and vrb1, at kHere and kThere.
class LiveDevices {
 public:
  LiveDevices() {
    std::array<DeviceSpec, 2> specs;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      specs[i].host = host.get();
      specs[i].config.name = "vrb" + std::to_string(i);
      specs[i].config.address = wire::Address::from_string(i == 0 ? kHere : kThere).value();
      specs[i].config.guid = 0x0256524200000091 + i;
    }
    set_devices(specs);
  }
  ~LiveDevices() {
    close_services();
    clear_devices();
  }
  LiveDevices(const LiveDevices&) = delete;
  LiveDevices& operator=(const LiveDevices&) = delete;

  std::unique_ptr<nic::LiveHost> host = nic::LiveHost::create({}).value();
};

inline sockaddr_in ipv4(const char* text, std::uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
  return address;
}

template <typename To>
void put(To& to, const sockaddr_in& address) {
  static_assert(sizeof to >= sizeof address);
  std::memcpy(&to, &address, sizeof address);
}

inline rdma_ucm_conn_param parameters(std::uint32_t qp = 0x77, std::string_view data = {}) {
  rdma_ucm_conn_param to{};
  to.qp_num = qp;
  to.responder_resources = 3;
  to.initiator_depth = 4;
  to.retry_count = 7;
  to.rnr_retry_count = 6;
  to.valid = 1;
  std::ranges::copy(data, to.private_data);
  to.private_data_len = static_cast<__u8>(data.size());
  return to;
}

/// An opening. Each command's function returns 0, or the errno.
class Channel {
 public:
  explicit Channel(int flags = O_CLOEXEC) : fd(open_rdma_cm(flags).value()) {}
  struct SameAs {
    int fd;
  };
  explicit Channel(SameAs one) : fd(::dup(one.fd)) { EXPECT_TRUE(share_rdma_cm(one.fd, fd)); }
  ~Channel() { close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void close() {
    if (fd < 0) return;
    close_rdma_cm(fd);
    ::close(std::exchange(fd, -1));
  }

  template <typename Command>
  int run(std::uint32_t number, const Command& command, std::size_t room = 0) {
    return run_at(fd, number, command, room);
  }
  template <typename Command>
  static int run_at(int fd, std::uint32_t number, const Command& command, std::size_t room = 0) {
    struct {
      rdma_ucm_cmd_hdr header;
      Command command;
    } all{};
    all.header = {.cmd = number, .in = sizeof command, .out = static_cast<__u16>(room)};
    all.command = command;
    const ssize_t size = sizeof all.header + sizeof command;
    static_assert(offsetof(decltype(all), command) == sizeof(rdma_ucm_cmd_hdr));
    const ssize_t written = write_rdma_cm(fd, &all, static_cast<std::size_t>(size));
    if (written == size) return 0;
    EXPECT_EQ(written, -1);
    return errno;
  }
  /// With a response.
  template <typename Command, typename Response>
  int ask(std::uint32_t number, Command command, Response& response) {
    command.response = reinterpret_cast<std::uint64_t>(&response);
    return run(number, command, sizeof response);
  }

  std::uint32_t create(std::uint64_t uid, std::uint16_t space = RDMA_PS_TCP,
                       __u8 type = IBV_QPT_RC) {
    rdma_ucm_create_id command{};
    command.uid = uid;
    command.ps = space;
    command.qp_type = type;
    rdma_ucm_create_id_resp response{};
    EXPECT_EQ(ask(RDMA_USER_CM_CMD_CREATE_ID, command, response), 0);
    return response.id;
  }
  int destroy(std::uint32_t id, std::uint32_t* reported = nullptr) {
    rdma_ucm_destroy_id command{};
    command.id = id;
    rdma_ucm_destroy_id_resp response{};
    const int status = ask(RDMA_USER_CM_CMD_DESTROY_ID, command, response);
    if (reported != nullptr) *reported = response.events_reported;
    return status;
  }
  int bind(std::uint32_t id, const sockaddr_in& address) {
    rdma_ucm_bind_ip command{};
    put(command.addr, address);
    command.id = id;
    return run(RDMA_USER_CM_CMD_BIND_IP, command);
  }
  int listen(std::uint32_t id, std::uint32_t backlog = 8) {
    return run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = backlog});
  }
  int resolve(std::uint32_t id, const sockaddr_in& destination,
              const sockaddr_in* source = nullptr) {
    rdma_ucm_resolve_ip command{};
    if (source != nullptr) put(command.src_addr, *source);
    put(command.dst_addr, destination);
    command.id = id;
    command.timeout_ms = 2000;
    return run(RDMA_USER_CM_CMD_RESOLVE_IP, command);
  }
  int resolve_route(std::uint32_t id) {
    return run(RDMA_USER_CM_CMD_RESOLVE_ROUTE,
               rdma_ucm_resolve_route{.id = id, .timeout_ms = 2000});
  }
  int connect(std::uint32_t id, const rdma_ucm_conn_param& param = parameters(),
              rdma_ucm_ece ece = {}) {
    rdma_ucm_connect command{};
    command.conn_param = param;
    command.id = id;
    command.ece = ece;
    return run(RDMA_USER_CM_CMD_CONNECT, command);
  }
  int accept(std::uint32_t id, std::uint64_t uid, const rdma_ucm_conn_param& param,
             rdma_ucm_ece ece = {}) {
    rdma_ucm_accept command{};
    command.uid = uid;
    command.conn_param = param;
    command.id = id;
    command.ece = ece;
    return run(RDMA_USER_CM_CMD_ACCEPT, command);
  }
  int reject(std::uint32_t id, std::string_view data, __u8 reason = 0) {
    rdma_ucm_reject command{};
    command.id = id;
    command.reason = reason;
    std::ranges::copy(data, command.private_data);
    command.private_data_len = static_cast<__u8>(data.size());
    return run(RDMA_USER_CM_CMD_REJECT, command);
  }
  int disconnect(std::uint32_t id) {
    return run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = id});
  }
  rdma_ucm_query_route_resp query_route(std::uint32_t id) {
    rdma_ucm_query command{};
    command.id = id;
    rdma_ucm_query_route_resp response{};
    EXPECT_EQ(ask(RDMA_USER_CM_CMD_QUERY_ROUTE, command, response), 0);
    return response;
  }
  int attributes(std::uint32_t id, std::uint32_t state, ib_uverbs_qp_attr& response) {
    rdma_ucm_init_qp_attr command{};
    command.id = id;
    command.qp_state = state;
    return ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, command, response);
  }
  int next(rdma_ucm_event_resp& event) { return next_at(fd, event); }
  /// The same for a thread that another one closes the channel beside.
  static int next_at(int fd, rdma_ucm_event_resp& event) {
    const rdma_ucm_get_event command{.response = reinterpret_cast<std::uint64_t>(&event)};
    return run_at(fd, RDMA_USER_CM_CMD_GET_EVENT, command, sizeof event);
  }
  /// The next event, which is of that kind, within a time that no machine needs.
  rdma_ucm_event_resp expect(Happened what) {
    rdma_ucm_event_resp event{};
    if (!wait(30'000)) {
      ADD_FAILURE() << "no event, not even of kind " << static_cast<int>(what);
      return event;
    }
    EXPECT_EQ(next(event), 0);
    EXPECT_EQ(event.event, static_cast<std::uint32_t>(what));
    return event;
  }
  /// Whether there is an event after at most that time.
  [[nodiscard]] bool wait(int milliseconds) const {
    pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, milliseconds) == 1;
  }

  /// An id that listens at kThere; what it is called is `uid`.
  std::uint32_t listener(std::uint64_t uid, std::uint16_t& port, std::uint16_t space = RDMA_PS_TCP,
                         std::uint32_t backlog = 8, const char* at = kThere) {
    const std::uint32_t id = create(uid, space, type_in(space));
    EXPECT_EQ(bind(id, ipv4(at)), 0);
    EXPECT_EQ(listen(id, backlog), 0);
    const rdma_ucm_query_route_resp route = query_route(id);
    sockaddr_in address{};
    std::memcpy(&address, &route.src_addr, sizeof address);
    port = ntohs(address.sin_port);
    return id;
  }
  /// An id with a route to kThere.
  std::uint32_t routed(std::uint64_t uid, std::uint16_t port, std::uint16_t space = RDMA_PS_TCP) {
    const std::uint32_t id = create(uid, space, type_in(space));
    const sockaddr_in source = ipv4(kHere);
    EXPECT_EQ(resolve(id, ipv4(kThere, port), &source), 0);
    EXPECT_EQ(expect(Happened::kAddressResolved).uid, uid);
    EXPECT_EQ(resolve_route(id), 0);
    EXPECT_EQ(expect(Happened::kRouteResolved).id, id);
    return id;
  }

  int fd;

 private:
  static __u8 type_in(std::uint16_t space) {
    return space == RDMA_PS_UDP ? __u8{IBV_QPT_UD} : __u8{IBV_QPT_RC};
  }
};

/// An opening of the device, where one is enough.
class WithChannel : public ::testing::Test {
 protected:
  LiveDevices devices_;
  Channel channel_;
};

/// A server that listens, and a client.
class WithListener : public ::testing::Test {
 protected:
  explicit WithListener(std::uint16_t space = RDMA_PS_TCP)
      : listener_(server_.listener(0x10, port_, space)) {}

  LiveDevices devices_;
  Channel server_;
  Channel client_;
  std::uint16_t port_ = 0;
  std::uint32_t listener_;
};

}  // namespace verbena::compat::rdma_cm::testing
