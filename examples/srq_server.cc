// SPDX-License-Identifier: Apache-2.0
//
// Many connections, one queue of receives (SRQ): the server posts for all of them what one busy
// connection would need. Try: verbena run ./srq_server & verbena run ./srq_server localhost

#include <fmt/format.h>

#include <map>
#include <vector>

#include "examples/end.h"
#include "verbena/format.h"

namespace {

using namespace verbena::verbs;
using examples::End;
using examples::Meeting;

constexpr std::size_t kMessage = 64;
constexpr std::uint32_t kReceives = 32;

struct Options {
  examples::Place where{};
  std::string device{};
  unsigned connections = 4;
  unsigned messages = 100;
};

Result<> serve(const End& here, const Meeting& met, const Options& wanted) {
  const auto shared = VERBENA_TRY(here.pd.create_srq({.max_wr = kReceives}));
  for (std::uint32_t i = 0; i < kReceives; ++i)
    VERBENA_TRY(shared.post_recv(VERBENA_TRY(here.memory.slice(i * kMessage, kMessage)), i));

  std::map<qp_number, unsigned> heard;
  std::vector<queue_pair<rc>> qps;
  for (unsigned i = 0; i < wanted.connections; ++i) {
    auto qp = VERBENA_TRY(
        here.pd.create_qp<rc>({.send_cq = here.cq, .recv_cq = here.cq, .srq = &shared}));
    VERBENA_TRY(examples::connect(qp, here, met));
    heard[qp.number()] = 0;
    qps.push_back(std::move(qp));
  }
  VERBENA_TRY(met.agree());
  for (unsigned i = 0; i < wanted.connections * wanted.messages; ++i) {
    const work_completion got = VERBENA_TRY(examples::next_of(here.cq));
    ++heard[got.qp_num()];
    // wr_id says which of the shared places it is in; that one is offered again.
    VERBENA_TRY(shared.post_recv(VERBENA_TRY(here.memory.slice(got.wr_id() * kMessage, kMessage)),
                                 got.wr_id()));
  }
  for (const auto& [number, count] : heard)
    fmt::print("queue pair {}: {} messages\n", number, count);
  return met.agree();
}

Result<> send_to_server(const End& here, const Meeting& met, const Options& wanted) {
  std::vector<queue_pair<rc>> qps;
  for (unsigned i = 0; i < wanted.connections; ++i) {
    auto qp = VERBENA_TRY(here.pd.create_qp<rc>({.send_cq = here.cq, .recv_cq = here.cq}));
    VERBENA_TRY(examples::connect(qp, here, met));
    qps.push_back(std::move(qp));
  }
  VERBENA_TRY(met.agree());
  const mr_slice out = VERBENA_TRY(here.memory.slice(0, kMessage));
  for (unsigned round = 0; round < wanted.messages; ++round) {
    for (const auto& qp : qps) VERBENA_TRY(qp.send(out));
    for (unsigned i = 0; i < wanted.connections; ++i) VERBENA_TRY(examples::next_of(here.cq));
  }
  fmt::print("sent {} messages over {} connections\n", wanted.messages * wanted.connections,
             wanted.connections);
  return met.agree();
}

Result<> run(const Options& wanted) {
  const End here = VERBENA_TRY(End::open(wanted.device, kReceives * kMessage, access::local_write));
  const Meeting met = VERBENA_TRY(Meeting::at(wanted.where));
  return wanted.where.is_server() ? serve(here, met, wanted) : send_to_server(here, met, wanted);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Receives from several connections into one shared queue.");
  Options wanted;
  wanted.where.add_to(app);
  app.add_option("-d,--device", wanted.device, "The RDMA device (default: the first)");
  app.add_option("-c,--connections", wanted.connections, "Connections (as many on both sides)")
      ->check(CLI::Range(1U, 8U))
      ->capture_default_str();
  app.add_option("-n,--messages", wanted.messages, "Messages on each (as many on both sides)")
      ->check(CLI::Range(1U, 1'000'000U))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(run(wanted));
}
