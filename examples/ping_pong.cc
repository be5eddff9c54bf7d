// SPDX-License-Identifier: Apache-2.0
//
// Two processes send one message back and forth over a reliable connection (RC).
// Try: verbena run ./ping_pong & verbena run ./ping_pong localhost

#include <fmt/format.h>

#include <chrono>

#include "examples/end.h"
#include "verbena/context.h"
#include "verbena/format.h"
#include "verbena/protection_domain.h"

namespace {

using namespace verbena::verbs;

struct Options {
  examples::Place where{};
  std::string device{};
  std::uint32_t size = 64;
  unsigned rounds = 1000;
};

// One end: a device, the memory that it may use, and a queue pair. Each handle keeps those alive
// that it was made of, so nothing here depends on the order.
struct End {
  context ctx;
  protection_domain pd;
  completion_queue cq;
  memory_region memory;  // the first half is sent, the second received into
  queue_pair<rc> qp;
};

Result<End> make_end(const Options& wanted) {
  auto ctx = VERBENA_TRY(context::open(wanted.device));
  auto pd = VERBENA_TRY(ctx.alloc_pd());
  auto cq = VERBENA_TRY(ctx.create_cq({.depth = 128}));
  auto memory = VERBENA_TRY(pd.alloc_mr(std::size_t{2} * wanted.size, access::local_write));
  auto qp = VERBENA_TRY(pd.create_qp<rc>({.send_cq = cq, .recv_cq = cq}));
  return End{std::move(ctx), std::move(pd), std::move(cq), std::move(memory), std::move(qp)};
}

// Our address and number for the peer's.
Result<> connect(End& here, const examples::Meeting& met) {
  const gid_entry row = VERBENA_TRY(here.ctx.routable_gid());
  const qp_endpoint ours = VERBENA_TRY(here.qp.endpoint(row.of, row.index));
  const auto bytes = VERBENA_TRY(met.exchange(ours.to_bytes()));
  const qp_endpoint theirs = VERBENA_TRY(qp_endpoint::from_bytes(bytes));
  VERBENA_TRY(here.qp.connect(ours, theirs));
  fmt::print("connected: {} to {}\n", ours, theirs);
  return {};
}

// Until something was received. Our own sends complete into the same queue.
Result<> wait_for_message(const End& here) {
  while (!VERBENA_TRY(examples::next_of(here.cq)).is_receive()) {}
  return {};
}

Result<> play(const End& here, const Options& wanted) {
  const mr_slice out = VERBENA_TRY(here.memory.slice(0, wanted.size));
  const mr_slice in = VERBENA_TRY(here.memory.slice(wanted.size, wanted.size));
  for (unsigned round = 0; round < wanted.rounds; ++round) {
    if (wanted.where.is_server()) {
      VERBENA_TRY(wait_for_message(here));
      // The receive that is used up is replaced before the peer can send again.
      VERBENA_TRY(here.qp.post_recv(in));
      VERBENA_TRY(here.qp.send(out));
    } else {
      VERBENA_TRY(here.qp.send(out));
      VERBENA_TRY(wait_for_message(here));
      VERBENA_TRY(here.qp.post_recv(in));
    }
  }
  return {};
}

Result<> run(const Options& wanted) {
  End here = VERBENA_TRY(make_end(wanted));
  const auto met = VERBENA_TRY(examples::Meeting::at(wanted.where));
  // A message needs a receive that waits for it. A queue pair takes receives from INIT on, and
  // `connect` goes through INIT to RTS at once: so post, and only then let the peer begin.
  VERBENA_TRY(connect(here, met));
  VERBENA_TRY(here.qp.post_recv(VERBENA_TRY(here.memory.slice(wanted.size, wanted.size))));
  VERBENA_TRY(met.agree());

  const auto start = std::chrono::steady_clock::now();
  VERBENA_TRY(play(here, wanted));
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  fmt::print("{} round trips of {} bytes, {:.1f} us each\n", wanted.rounds, wanted.size,
             took.count() / wanted.rounds);
  // Whoever leaves first would be missed by the other's last acknowledgement.
  return met.agree();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Sends a message back and forth over a reliable connection.");
  Options wanted;
  wanted.where.add_to(app);
  app.add_option("-d,--device", wanted.device, "The RDMA device (default: the first)");
  app.add_option("-s,--size", wanted.size, "Bytes of a message, the same on both sides")
      ->check(CLI::Range(1U, 1U << 30U))
      ->capture_default_str();
  app.add_option("-n,--rounds", wanted.rounds, "Round trips, the same on both sides")
      ->check(CLI::Range(1U, 1'000'000'000U))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(run(wanted));
}
