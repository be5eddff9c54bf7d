// SPDX-License-Identifier: Apache-2.0
//
// An echo in coroutines: each waits for its completion with co_await, and the loop sleeps while
// nobody has one. Try: verbena run ./coroutine_echo & verbena run ./coroutine_echo localhost

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "examples/end.h"
#include "verbena/async/epoll_loop.h"
#include "verbena/async/queue_pair.h"

namespace {

using namespace verbena::verbs;
using examples::Meeting;

constexpr std::size_t kRoom = 4096;

struct Options {
  examples::Place where{};
  std::string device{};
  std::string text = "hello";
  std::uint32_t count = 100;
};

/// An end's queue pair, and its memory: the first half for what is sent.
struct Echo {
  async_queue_pair<rc> qp;
  memory_region memory;
};

task<Result<>> answer(Echo& here, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto whole = co_await or_return(leased_slice::of(here.memory, 0, kRoom));
    // The slice holds the memory: it stays even if this coroutine were to end before the message
    // comes.
    const work_completion got = co_await or_return(co_await here.qp.recv(whole));
    co_await or_return(co_await here.qp.send(co_await or_return(whole.slice(0, got.byte_len()))));
  }
  co_return Result<>();
}

task<Result<>> ask(Echo& here, const std::string& text, std::uint32_t count) {
  examples::put(here.memory.bytes(), text);
  const auto out = co_await or_return(leased_slice::of(here.memory, 0, text.size()));
  const auto in = co_await or_return(leased_slice::of(here.memory, kRoom / 2, kRoom / 2));
  for (std::uint32_t i = 0; i < count; ++i) {
    co_await or_return(co_await here.qp.send(out));
    const work_completion got = co_await or_return(co_await here.qp.recv(in));
    if (examples::text_in(in.memory().bytes().first(got.byte_len())) != text)
      co_return fail(std::errc::io_error, "coroutine_echo", "something else came back");
  }
  fmt::print("{} echoes of \"{}\"\n", count, text);
  co_return Result<>();
}

Result<> run(const Options& wanted) {
  const context ctx = VERBENA_TRY(context::open(wanted.device));
  const protection_domain pd = VERBENA_TRY(ctx.alloc_pd());
  memory_region memory = VERBENA_TRY(pd.alloc_mr(kRoom, access::local_write));
  dispatcher completions = VERBENA_TRY(dispatcher::create(ctx));
  auto qp =
      VERBENA_TRY(pd.create_qp<rc>({.send_cq = completions.cq(), .recv_cq = completions.cq()}));

  const Meeting met = VERBENA_TRY(Meeting::at(wanted.where));
  const gid_entry row = VERBENA_TRY(ctx.routable_gid());
  const qp_endpoint mine = VERBENA_TRY(qp.endpoint(row.of, row.index));
  VERBENA_TRY(met.tell(mine.to_bytes()));
  qp_endpoint::wire_form theirs{};
  VERBENA_TRY(met.hear(theirs));
  // Here a receive is posted only once the answer to the one before has left. A message that finds
  // none is sent again until one is there: soon, since it will be.
  VERBENA_TRY(qp.connect(mine, VERBENA_TRY(qp_endpoint::from_bytes(theirs)),
                         {.min_rnr_timer = rnr_timer::from(std::chrono::microseconds(10))}));
  VERBENA_TRY(met.agree());

  const auto loop = VERBENA_TRY(epoll_loop::create());
  VERBENA_TRY(loop->attach(completions));
  Echo here{VERBENA_TRY(async_queue_pair<rc>::attach(completions, std::move(qp))),
            std::move(memory)};
  VERBENA_TRY(loop->run_until(wanted.where.is_server() ? answer(here, wanted.count)
                                                       : ask(here, wanted.text, wanted.count)));
  return met.agree();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Echoes messages, in coroutines.");
  Options wanted;
  wanted.where.add_to(app);
  app.add_option("-d,--device", wanted.device, "The RDMA device (default: the first)");
  app.add_option("-t,--text", wanted.text, "What the client sends, at most 2048 bytes")
      ->check([](const std::string& text) {
        return text.size() <= kRoom / 2 ? std::string() : "at most 2048 bytes, please";
      })
      ->capture_default_str();
  app.add_option("-n,--count", wanted.count, "How many messages, the same on both sides")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(run(wanted));
}
