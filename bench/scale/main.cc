// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "bench/scale/scale.h"

int main(int argc, char** argv) {
  using namespace verbena::bench;
  CLI::App app{"What many queue pairs or memory regions cost, on the first RDMA device",
               "verbena-scale"};
  app.footer(
      "Prints one line of JSON with its figure. Queue pairs have a server, which is the same line "
      "with\n"
      "--serve, and must listen first.");
  app.require_subcommand(1);
  Scale scale;
  auto* pairs = app.add_subcommand("queue-pairs", "RC queue pairs between two processes");
  pairs->add_option("--count", scale.count)->check(CLI::Range(1, 1 << 20));
  pairs->add_option("--figure", scale.figure)
      ->check(CLI::IsMember({"setup", "memory", "rate", "idle"}));
  pairs->add_option("--seconds", scale.seconds)->check(CLI::Range(0.01, 3600.0));
  pairs->add_option("--address", scale.address, "The server's, IPv4")->required();
  pairs->add_option("--port", scale.port, "The server's, TCP")->required();
  pairs->add_flag("--serve", scale.serve, "Be the server");
  pairs->callback([&] { scale_queue_pairs(scale); });
  auto* regions = app.add_subcommand("regions", "Memory regions of one process");
  regions->add_option("--count", scale.count)->check(CLI::Range(1, 1 << 24));
  regions->add_option("--figure", scale.figure)->check(CLI::IsMember({"setup", "rate"}));
  regions->add_option("--seconds", scale.seconds)->check(CLI::Range(0.01, 3600.0));
  regions->callback([&] { scale_regions(scale); });
  CLI11_PARSE(app, argc, argv);
  return 0;
}
