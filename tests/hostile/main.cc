// SPDX-License-Identifier: Apache-2.0
//
// A peer that forges packets; tests/hostile/run starts it with what the victim has told.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hostile/attacks.h"
#include "hostile/sender.h"

namespace verbena::hostile {
namespace {

struct Options {
  std::string attack{};
  std::string from = "127.0.0.1";
  std::string to = "127.0.0.1";
  Target target{};
  std::uint64_t count = 1'000'000;
  std::uint64_t seed = 1;
  double seconds = 0;   ///< a flood lasts at least so long
  double gigabits = 0;  ///< a second, of the wire that a flood comes by; 0: as many as it can send
  bool list = false;
};

constexpr const char* kFooter = R"(ATTACK is a flood's name, or
  dropped      every field of every header wrong in turn, none of which may matter
  allowed      odd fields that are allowed
  walk         opcodes and PSNs at random
  refused:N    a flood of the Nth request that must be refused, which only the first one is

Prints one line of JSON: what was sent, what was answered. Exit status 0, 1 when the packets cannot
be sent, 2 for wrong usage.)";

void add_options(CLI::App& app, Options& options) {
  Target& target = options.target;
  app.add_option("attack", options.attack, "see below");
  app.add_flag("--list", options.list, "print the floods and the requests to be refused");
  app.add_option("--from", options.from, "the peer's address, one of this machine's");
  app.add_option("--to", options.to, "the victim's address");
  app.add_option("--count", options.count, "packets of a flood or walk");
  app.add_option("--seconds", options.seconds, "that a flood lasts at least");
  app.add_option("--gigabits", options.gigabits,
                 "a second, of the Ethernet that a flood fills (default: as fast as it can)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of what is random");
  app.add_option("--qpn", target.qp_number, "the victim's queue pair, connected to --from");
  app.add_option("--psn", target.psn, "that it expects");
  app.add_option("--own-psn", target.own_psn, "of its own first request");
  app.add_option("--address", target.address, "of the region that the peer may reach");
  app.add_option("--length", target.length, "of that region");
  app.add_option("--rkey", target.rkey, "of that region");
  app.add_option("--read-only-address", target.read_only_address, "of a region only to be read");
  app.add_option("--read-only-rkey", target.read_only_rkey, "of that region");
  app.add_option("--datagram-qpn", target.datagram_qp, "the victim's UD queue pair");
  app.add_option("--qkey", target.qkey, "of that queue pair");
  app.add_option("--other-qpn", target.other_qp, "a queue pair connected to somebody else");
  app.add_option("--service-port", target.service_port, "where it listens for connections");
  app.footer(kFooter);
}

void print_list() {
  for (const auto& some : {floods(), connection_floods()}) {
    for (const Flood& flood : some)
      std::printf("flood\t%s\t%s\n", std::string(flood.name).c_str(),
                  std::string(flood.about).c_str());
  }
  for (std::size_t i = 0; i < refused().size(); ++i)
    std::printf("refused\trefused:%zu\t%s\n", i, std::string(refused()[i].name).c_str());
}

using Clock = std::chrono::steady_clock;

using Seconds = std::chrono::duration<double>;

/// The datagrams of a flood, by their index.
using Make = std::function<Datagram(Forge& forge, std::uint64_t index)>;

/// As many as it can, each forged for itself.
void send_full_rate(const Make& make, const Options& options, Forge& forge, Sender& sender) {
  constexpr std::uint64_t kBetweenLooks = 1024;
  const auto end = Clock::now() + Seconds(options.seconds);
  for (std::uint64_t i = 0; i < options.count || Clock::now() < end; i += kBetweenLooks) {
    for (std::uint64_t j = i; j < i + kBetweenLooks; ++j) sender.send(make(forge, j));
  }
}

/// How long a run takes on a wire, all that Ethernet adds to it included.
Seconds on_wire(const Run& run, double gigabits) {
  constexpr std::size_t kHeaders = 14 + 20 + 8 + 4;  // Ethernet's, IPv4's, UDP's, and the FCS
  constexpr std::size_t kShortest = 64;
  constexpr std::size_t kBetween = 8 + 12;  // preamble and gap
  const std::size_t frame = std::max<std::size_t>(run.segment() + kHeaders, kShortest);
  return Seconds(static_cast<double>((frame + kBetween) * run.count() * 8) / (gigabits * 1e9));
}

/// Forges first and sends that over and over: who sends from elsewhere, over a wire, takes nothing
/// of this machine's processors.
void send_over_wire(const Make& make, const Options& options, Forge& forge, Sender& sender) {
  constexpr std::uint64_t kForged = 65536;
  std::vector<Run> runs(1);
  for (std::uint64_t i = 0; i < kForged; ++i) {
    const Datagram datagram = make(forge, i);
    if (!runs.back().takes(datagram)) runs.emplace_back();
    runs.back().add(datagram, sender.path());
  }
  const auto start = Clock::now();
  const auto end = start + Seconds(options.seconds);
  Seconds busy{};
  std::uint64_t sent = 0;
  for (std::size_t i = 0; sent < options.count || Clock::now() < end; ++i) {
    const Run& run = runs[i % runs.size()];
    // A sleep is longer than a run takes, so some go together.
    if (i % 16 == 0) std::this_thread::sleep_until(start + busy);
    sender.send(run);
    sent += run.count();
    busy += on_wire(run, options.gigabits);
  }
}

void send_flood(const Make& make, const Options& options, Forge& forge, Sender& sender) {
  if (options.gigabits > 0) return send_over_wire(make, options, forge, sender);
  send_full_rate(make, options, forge, sender);
}

/// False when there is no such attack.
bool attack(const Options& options, Forge& forge, Sender& sender) {
  const Send send = [&sender](const Datagram& datagram) { sender.send(datagram); };
  for (const auto& some : {floods(), connection_floods()}) {
    for (const Flood& flood : some) {
      if (flood.name == options.attack) return send_flood(flood.make, options, forge, sender), true;
    }
  }
  for (std::size_t i = 0; i < refused().size(); ++i) {
    if (options.attack != "refused:" + std::to_string(i)) continue;
    const Datagram request = Forge::datagram(refused()[i].make(forge));
    const auto make = [&request](Forge&, std::uint64_t) { return request; };
    return send_flood(make, options, forge, sender), true;
  }
  if (options.attack == "dropped") return send_dropped(forge, send), true;
  if (options.attack == "allowed") return send_allowed(forge, send), true;
  if (options.attack == "walk") return walk(forge, options.count, send), true;
  return false;
}

int run(Options options) {
  wire::Path& path = options.target.path;
  const auto from = wire::Address::from_string(options.from);
  const auto to = wire::Address::from_string(options.to);
  if (!from || !to) {
    std::fprintf(stderr, "hostile_peer: --from and --to must be IP addresses\n");
    return 2;
  }
  path.source = *from;
  path.destination = *to;
  auto sender = Sender::create(path);
  if (!sender) {
    std::fprintf(stderr, "hostile_peer: %s\n", sender.error().message.c_str());
    return 1;
  }
  Forge forge(options.target, options.seed);
  const auto start = Clock::now();
  if (!attack(options, forge, *sender)) {
    std::fprintf(stderr, "hostile_peer: there is no attack '%s' (see --list)\n",
                 options.attack.c_str());
    return 2;
  }
  sender->flush();
  const std::chrono::duration<double> took = Clock::now() - start;
  const Sender::Counts& counts = sender->counts();
  std::printf(
      "{\"packets\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"answers\": %llu, "
      "\"answer_bytes\": %llu}\n",
      static_cast<unsigned long long>(counts.packets),
      static_cast<unsigned long long>(counts.bytes), took.count(),
      static_cast<unsigned long long>(counts.answers),
      static_cast<unsigned long long>(counts.answer_bytes));
  return 0;
}

}  // namespace
}  // namespace verbena::hostile

int main(int argc, char** argv) {
  verbena::hostile::Options options;
  CLI::App app{
      "A peer that forges RoCEv2 packets, against a victim that told it what a peer is told.",
      "hostile_peer"};
  verbena::hostile::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.list) {
    verbena::hostile::print_list();
    return 0;
  }
  return verbena::hostile::run(std::move(options));
}
