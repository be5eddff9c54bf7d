// SPDX-License-Identifier: Apache-2.0
#include "interop/meeting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "interop/verbs_loop.h"

static int tcp_socket(void) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) die("socket");
  return fd;
}

int wait_for_other(uint16_t port) {
  const int listener = tcp_socket();
  const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  need(bind(listener, (const struct sockaddr*)&any, sizeof any) == 0, "bind");
  need(listen(listener, 1) == 0, "listen");
  const int connection = accept(listener, NULL, NULL);
  if (connection < 0) die("accept");
  close(listener);
  return connection;
}

int find_other(const char* host, uint16_t port) {
  const int connection = tcp_socket();
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
  need(inet_pton(AF_INET, host, &to.sin_addr) == 1, "inet_pton");
  need(connect(connection, (const struct sockaddr*)&to, sizeof to) == 0, "connect");
  return connection;
}

void meet(int connection, char say, char hear) {
  char heard = 0;
  need(write(connection, &say, 1) == 1, "write");
  if (read(connection, &heard, 1) != 1 || heard != hear) die("the other side has ended");
}
