// SPDX-License-Identifier: Apache-2.0
#include "tools/tcp_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena::tools {
namespace {

constexpr std::string_view kTable =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    "   0: 00000000:4853 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n"
    "   1: 0100007F:4854 0100007F:4853 01 00000000:00000000 00:00000000 00000000     0\n"
    "   2: 0100007F:1F90 0100007F:4855 0A 00000000:00000000 00:00000000 00000000     0";

TEST(TcpPort, ReadsTheKernelsList) {
  EXPECT_TRUE(lists_listener(kTable, 0x4853));
  EXPECT_FALSE(lists_listener(kTable, 0x4854)) << "established, not listening";
  EXPECT_FALSE(lists_listener(kTable, 0x4855)) << "a peer's port";
  EXPECT_TRUE(lists_listener(kTable, 8080)) << "the last line, without its end";
  EXPECT_FALSE(lists_listener("", 1));
  EXPECT_FALSE(lists_listener("junk\n\n:0001", 1));
}

TEST(TcpPort, SeesAListenerComeAndGo) {
  const auto port = free_tcp_port();
  ASSERT_TRUE(port) << port.error().message;
  EXPECT_GT(*port, 0);
  EXPECT_FALSE(is_listening(*port));
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(*port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_FALSE(is_listening(*port));
  ASSERT_EQ(listen(socket, 1), 0);
  EXPECT_TRUE(is_listening(*port));
  close(socket);
  EXPECT_FALSE(is_listening(*port));
}

}  // namespace
}  // namespace verbena::tools
