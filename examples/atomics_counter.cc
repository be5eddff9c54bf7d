// SPDX-License-Identifier: Apache-2.0
//
// The client counts in the server's memory with atomic operations, so that several clients could,
// and none would lose a count. Try: verbena run ./atomics_counter & verbena run ./atomics_counter
// localhost

#include <fmt/format.h>

#include <cstring>

#include "examples/end.h"
#include "verbena/format.h"

namespace {

using namespace verbena::verbs;
using examples::End;
using examples::Meeting;

struct Options {
  examples::Place where{};
  std::string device{};
  unsigned count = 1000;
};

std::uint64_t number_in(const mr_slice& slice) {
  std::uint64_t number = 0;
  std::memcpy(&number, slice.bytes().data(), sizeof number);
  return number;
}

Result<> serve(const End& here, const Meeting& met) {
  VERBENA_TRY(met.tell(VERBENA_TRY(here.memory.remote()).to_bytes()));
  VERBENA_TRY(met.agree());
  fmt::print("the counter is at {}\n", number_in(VERBENA_TRY(here.memory.whole())));
  return {};
}

Result<> count(const End& here, const queue_pair<rc>& qp, const Meeting& met, unsigned times) {
  remote_region::wire_form bytes{};
  VERBENA_TRY(met.hear(bytes));
  // Eight bytes at a multiple of eight: an atomic takes no other.
  const remote_region counter = VERBENA_TRY(remote_region::from_bytes(bytes));
  const mr_slice before = VERBENA_TRY(here.memory.whole());
  for (unsigned i = 0; i < times; ++i) {
    VERBENA_TRY(qp.fetch_add(before, counter, 1));
    VERBENA_TRY(examples::next_of(here.cq));
  }
  fmt::print("added 1 {} times; before the last it was {}\n", times, number_in(before));

  // Twice as much, unless somebody has changed it meanwhile.
  const std::uint64_t expected = number_in(before) + 1;
  VERBENA_TRY(qp.compare_swap(before, counter, expected, 2 * expected));
  VERBENA_TRY(examples::next_of(here.cq));
  fmt::print("{}\n", number_in(before) == expected ? "doubled it" : "somebody else has changed it");
  return met.agree();
}

Result<> run(const Options& wanted) {
  End here = VERBENA_TRY(
      End::open(wanted.device, sizeof(std::uint64_t), access::local_write | access::remote_atomic));
  const Meeting met = VERBENA_TRY(Meeting::at(wanted.where));
  auto qp = VERBENA_TRY(here.pd.create_qp<rc>({.send_cq = here.cq, .recv_cq = here.cq}));
  VERBENA_TRY(examples::connect(qp, here, met));
  return wanted.where.is_server() ? serve(here, met) : count(here, qp, met, wanted.count);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Counts in another process' memory with atomic operations.");
  Options wanted;
  wanted.where.add_to(app);
  app.add_option("-d,--device", wanted.device, "The RDMA device (default: the first)");
  app.add_option("-n,--count", wanted.count, "How often the client adds 1")
      ->check(CLI::Range(1U, 1'000'000'000U))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(run(wanted));
}
