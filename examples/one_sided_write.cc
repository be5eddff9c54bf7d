// SPDX-License-Identifier: Apache-2.0
//
// The client writes into the server's memory, and reads it back, while the server's processor does
// nothing. Try: verbena run ./one_sided_write & verbena run ./one_sided_write localhost

#include <fmt/format.h>

#include "examples/end.h"
#include "verbena/format.h"

namespace {

using namespace verbena::verbs;
using examples::End;
using examples::Meeting;

constexpr std::size_t kRoom = 4096;

struct Options {
  examples::Place where{};
  std::string device{};
  std::string text = "written without a receive";
};

Result<> serve(End& here, const Meeting& met) {
  auto qp = VERBENA_TRY(here.pd.create_qp<rc>({.send_cq = here.cq, .recv_cq = here.cq}));
  VERBENA_TRY(examples::connect(qp, here, met));
  // Address, length and key: whoever has them may use the memory as far as its rights go.
  const remote_region mine = VERBENA_TRY(here.memory.remote());
  VERBENA_TRY(met.tell(mine.to_bytes()));
  // A WRITE completes at its sender's only: somebody has to tell us that it is there.
  std::array<std::byte, 4> length{};
  VERBENA_TRY(met.hear(length));
  const std::size_t size =
      std::to_integer<std::size_t>(length[0]) << 8 | std::to_integer<std::size_t>(length[1]);
  fmt::print("in my memory: {}\n",
             examples::text_in(here.memory.bytes().first(std::min(size, kRoom))));
  return met.agree();
}

Result<> write(End& here, const Meeting& met, std::string_view text) {
  auto qp = VERBENA_TRY(here.pd.create_qp<rc>({.send_cq = here.cq, .recv_cq = here.cq}));
  VERBENA_TRY(examples::connect(qp, here, met));
  remote_region::wire_form bytes{};
  VERBENA_TRY(met.hear(bytes));
  const remote_region theirs = VERBENA_TRY(remote_region::from_bytes(bytes));

  examples::put(here.memory.bytes(), text);
  const mr_slice out = VERBENA_TRY(here.memory.slice(0, text.size()));
  const remote_region there = VERBENA_TRY(theirs.slice(0, text.size()));
  VERBENA_TRY(qp.write(out, there));
  VERBENA_TRY(examples::next_of(here.cq));  // acknowledged: it is in the server's memory

  const mr_slice in = VERBENA_TRY(here.memory.slice(kRoom / 2, text.size()));
  VERBENA_TRY(qp.read(in, there));
  VERBENA_TRY(examples::next_of(here.cq));
  fmt::print("read back: {}\n", examples::text_in(in.bytes()));

  VERBENA_TRY(met.tell(
      std::array{std::byte(text.size() >> 8), std::byte(text.size()), std::byte{0}, std::byte{0}}));
  return met.agree();
}

Result<> run(const Options& wanted) {
  // The memory that a peer may use says so when it is registered; ours at the client may not be
  // reached by anybody.
  const auto rights = wanted.where.is_server()
                          ? access::local_write | access::remote_write | access::remote_read
                          : access::local_write;
  End here = VERBENA_TRY(End::open(wanted.device, kRoom, rights));
  const Meeting met = VERBENA_TRY(Meeting::at(wanted.where));
  return wanted.where.is_server() ? serve(here, met) : write(here, met, wanted.text);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes into another process' memory, and reads it back.");
  Options wanted;
  wanted.where.add_to(app);
  app.add_option("-d,--device", wanted.device, "The RDMA device (default: the first)");
  app.add_option("-t,--text", wanted.text, "What the client writes, at most 2048 bytes")
      ->check([](const std::string& text) {
        return text.size() <= kRoom / 2 ? std::string() : "at most 2048 bytes, please";
      })
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(run(wanted));
}
