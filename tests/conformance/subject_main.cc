// SPDX-License-Identifier: Apache-2.0
//
// verbena-conform-subject: the program behind a peer that `verbena conform` looks at.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "conformance/subject.h"

namespace verbena::conformance {
namespace {

struct Options {
  std::string device{};
  int gid_index = 0;
  std::uint16_t port = 47911;
  bool everywhere = false;
};

constexpr const char* kFooter = R"(Examples:
  verbena run verbena-conform-subject              on the software NIC
  verbena-conform-subject -d rxe0 -g 1 --any       on Soft-RoCE or a card, for other machines

It obeys whoever connects, one at a time: only on networks that you trust.
Exit status: 1 when there is no device or no port; it runs until it is interrupted.)";

ibv_context* open_device(const std::string& name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (name.empty() || name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  if (list != nullptr) ibv_free_device_list(list);
  return context;
}

int listen_at(const Options& options) {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  const int off = 0;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(options.port);
  // 127.0.0.1 as IPv6 writes it: the socket then takes IPv4 from this machine only.
  address.sin6_addr = in6addr_any;
  if (!options.everywhere)
    address.sin6_addr = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1}}};
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 4) != 0)
    return -1;
  return fd;
}

/// Until the other side hangs up.
void serve(Subject& subject, std::FILE* control) {
  std::array<char, Subject::kMostLine> line{};
  while (std::fgets(line.data(), line.size(), control) != nullptr) {
    std::string_view text = line.data();
    if (!text.ends_with('\n')) return;  // longer than any line of the language
    text.remove_suffix(1);
    std::fflush(control);
    std::fprintf(control, "%s\n", subject.obey(text).c_str());
    if (std::fflush(control) != 0) return;
  }
}

int run(const Options& options) {
  ibv_context* const context = open_device(options.device);
  if (context == nullptr) {
    std::fprintf(stderr, "verbena-conform-subject: no RDMA device%s%s\n",
                 options.device.empty() ? "" : " named ", options.device.c_str());
    return 1;
  }
  const int listener = listen_at(options);
  if (listener < 0) {
    std::fprintf(stderr, "verbena-conform-subject: TCP port %d: %s\n", options.port,
                 std::strerror(errno));
    return 1;
  }
  Subject subject(context, options.gid_index, [](ibv_context* opened) {
    ::fcntl(opened->async_fd, F_SETFL, ::fcntl(opened->async_fd, F_GETFL) | O_NONBLOCK);
  });
  std::printf("verbena-conform-subject: %s; TCP port %d\n", subject.obey("hello").c_str(),
              options.port);
  std::fflush(stdout);
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> control(::fdopen(fd, "r+"), &std::fclose);
    if (control) serve(subject, control.get());
    static_cast<void>(subject.obey("close"));
  }
}

int start(int argc, char** argv) {
  Options options;
  CLI::App app{
      "The program behind a RoCEv2 peer that `verbena conform` looks at. Standard verbs only.",
      "verbena-conform-subject"};
  app.add_option("-d,--ib-dev", options.device, "the device (default: the first)");
  app.add_option("-g,--gid-idx", options.gid_index, "index of the GID (default: 0)");
  app.add_option("-p,--port", options.port, "TCP port (default: 47911)");
  app.add_flag("--any", options.everywhere, "take connections from other machines, too");
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return run(options);
}

}  // namespace
}  // namespace verbena::conformance

int main(int argc, char** argv) { return verbena::conformance::start(argc, argv); }
