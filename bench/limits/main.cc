// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "bench/limits/limits.h"

namespace {

using namespace verbena::bench;

constexpr const char* kFooter =
    R"(Each loop prints one line of JSON with its figure. Those over UDP have a server, which is the same
line with --serve, and must listen first; the others use the first two processors that they may.)";

void add_loop(CLI::App& app, Loop& loop, const char* name, const char* what,
              void (*run)(const Loop&)) {
  auto* command = app.add_subcommand(name, what);
  command->add_option("--seconds", loop.seconds)->check(CLI::Range(0.01, 3600.0));
  command->add_option("--bytes", loop.bytes)->check(CLI::Range(1, 1 << 30));
  command->callback([&loop, run] { run(loop); });
}

void add_udp_loop(CLI::App& app, UdpLoop& loop, const char* name, const char* what,
                  void (*serve)(const UdpLoop&), void (*run)(const UdpLoop&)) {
  auto* command = app.add_subcommand(name, what);
  command->add_option("--seconds", loop.seconds)->check(CLI::Range(0.01, 3600.0));
  command->add_option("--bytes", loop.bytes, "Of a datagram")->check(CLI::Range(1, 65507));
  command->add_option("--segments", loop.segments, "Datagrams in a send; with GSO and GRO above 1")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--payload", loop.payload,
                   "Both sides copy so many bytes of a datagram with their CRC, as RoCE must")
      ->check(CLI::Range(1, 65507));
  command
      ->add_option("--depth", loop.depth,
                   "Of a stream each delivery is acknowledged, for which so many datagrams wait "
                   "at most; if one is lost it fails")
      ->check(CLI::Range(1, 256));
  command->add_flag(
      "--roce", loop.roce,
      "A message goes with RoCE's headers, CRC, and the acknowledgement of the one before");
  command->add_flag("--blocking", loop.blocking, "Sleep while waiting, do not spin");
  command->add_option("--address", loop.address, "The server's")->required();
  command->add_option("--port", loop.port, "The server's, UDP and TCP")->required();
  command->add_flag("--serve", loop.serve, "Be the server");
  command->callback([&loop, serve, run] {
    if (loop.payload > loop.bytes)
      throw CLI::ValidationError("--payload", "a datagram has only --bytes");
    if (loop.depth != 0 && loop.depth < loop.segments)
      throw CLI::ValidationError("--depth", "a send has --segments datagrams");
    (loop.serve ? serve : run)(loop);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What this machine can do at most: bare loops beside which the NIC is measured",
               "verbena-limits"};
  app.require_subcommand(1);
  app.footer(kFooter);
  Loop loop;
  add_loop(app, loop, "memcpy", "One processor copies, GB/s", copy_memory);
  add_loop(app, loop, "cache-line", "Half a round trip of a cache line, us", bounce_cache_line);
  add_loop(app, loop, "ring-latency", "64 bytes by a shared ring, one way, us",
           bounce_through_ring);
  add_loop(app, loop, "ring-rate", "64 bytes by a shared ring, M/s", stream_through_ring);
  add_loop(app, loop, "verbs-write",
           "WRITEs of 64 bytes as ib_write_lat posts them, one way, by the least provider, us",
           bounce_writes);
  add_loop(app, loop, "verbs-send", "The same of SENDs and ib_send_lat", bounce_sends);
  add_loop(app, loop, "one-copy", "Into memory that another process maps, GB/s", copy_once);
  add_loop(app, loop, "two-copy", "In by one process, out by another, GB/s", copy_twice);
  add_loop(app, loop, "vm-write", "process_vm_writev, GB/s", write_process);
  add_loop(app, loop, "vm-read", "process_vm_readv, GB/s", read_process);
  UdpLoop udp;
  add_udp_loop(app, udp, "udp-stream", "Datagrams one way, GB/s", serve_stream, stream);
  add_udp_loop(app, udp, "udp-rate", "Datagrams one way, M/s", serve_stream, stream_rate);
  add_udp_loop(app, udp, "udp-pingpong", "Half a round trip, us", serve_pingpong, pingpong);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
