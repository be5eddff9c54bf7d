// SPDX-License-Identifier: Apache-2.0
//
// Extended reliable connections (XRC): one queue pair reaches any of the receive queues of a
// server, and each message names its own. Try: verbena run ./xrc & verbena run ./xrc localhost

#include "verbena/xrc.h"

#include <fmt/format.h>

#include <vector>

#include "examples/end.h"

namespace {

using namespace verbena::verbs;
using examples::End;
using examples::Meeting;

constexpr std::size_t kQueues = 2;
constexpr std::size_t kMessage = 64;

struct Options {
  examples::Place where{};
  std::string device{};
};

std::array<std::byte, 4> big_endian(std::uint32_t number) {
  return {std::byte(number >> 24), std::byte(number >> 16), std::byte(number >> 8),
          std::byte(number)};
}
std::uint32_t from_big_endian(std::span<const std::byte, 4> bytes) {
  std::uint32_t number = 0;
  for (const std::byte each : bytes) number = number << 8 | std::to_integer<std::uint32_t>(each);
  return number;
}

Result<> serve(const End& here, const Meeting& met) {
  // In one process it may be anonymous; processes share one by a file.
  const xrc_domain domain = VERBENA_TRY(here.ctx.open_xrcd());
  std::vector<xrc_receive_queue> queues;
  for (std::size_t i = 0; i < kQueues; ++i) {
    queues.push_back(VERBENA_TRY(here.pd.create_xrc_srq({.domain = domain, .cq = here.cq})));
    VERBENA_TRY(queues[i].post_recv(VERBENA_TRY(here.memory.slice(i * kMessage, kMessage)), i));
  }
  // Only receives: it has no send queue, and a SEND on it does not compile.
  auto qp = VERBENA_TRY(domain.create_qp());
  VERBENA_TRY(examples::connect(qp, here, met));
  for (const auto& queue : queues) VERBENA_TRY(met.tell(big_endian(queue.number())));
  for (std::size_t i = 0; i < kQueues; ++i) {
    const work_completion got = VERBENA_TRY(examples::next_of(here.cq));
    const mr_slice place = VERBENA_TRY(here.memory.slice(got.wr_id() * kMessage, got.byte_len()));
    fmt::print("queue {}: {}\n", got.wr_id(), examples::text_in(place.bytes()));
  }
  return met.agree();
}

Result<> send_to_each(const End& here, const Meeting& met) {
  auto qp = VERBENA_TRY(here.pd.create_qp<xrc_send>({.send_cq = here.cq}));
  VERBENA_TRY(examples::connect(qp, here, met));
  for (std::size_t i = 0; i < kQueues; ++i) {
    std::array<std::byte, 4> number{};
    VERBENA_TRY(met.hear(number));
    const std::string text = fmt::format("for queue {}", i);
    const mr_slice out = VERBENA_TRY(here.memory.slice(0, text.size()));
    examples::put(out.bytes(), text);
    auto request = send_request<xrc_send>::send({&out, 1});
    VERBENA_TRY(qp.post(request.to_srq(from_big_endian(number))));
    VERBENA_TRY(examples::next_of(here.cq));
  }
  fmt::print("sent to {} queues through one queue pair\n", kQueues);
  return met.agree();
}

Result<> run(const Options& wanted) {
  const End here = VERBENA_TRY(End::open(wanted.device, kQueues * kMessage, access::local_write));
  const Meeting met = VERBENA_TRY(Meeting::at(wanted.where));
  return wanted.where.is_server() ? serve(here, met) : send_to_each(here, met);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Reaches several receive queues of a server through one queue pair.");
  Options wanted;
  wanted.where.add_to(app);
  app.add_option("-d,--device", wanted.device, "The RDMA device (default: the first)");
  CLI11_PARSE(app, argc, argv);
  return examples::finish(run(wanted));
}
