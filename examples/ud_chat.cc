// SPDX-License-Identifier: Apache-2.0
//
// Datagrams (UD): the client says something, the server answers to the address that it is given.
// No connection, so one queue pair could talk to any number of others; and none promises that a
// datagram arrives. Try: verbena run ./ud_chat & verbena run ./ud_chat localhost
// With --group 239.77.1.1 on both sides the client speaks to all who have joined that group.

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "examples/end.h"
#include "verbena/format.h"

namespace {

using namespace verbena::verbs;
using examples::End;
using examples::Meeting;

// Only who knows the key is heard.
constexpr qkey kKey{0x1234};
// The number that stands for all queue pairs of a multicast group.
constexpr qp_number kGroupMembers{0xffffff};
// Before a datagram's payload the device puts the 40 bytes of its routing header.
constexpr std::size_t kGrh = 40;
constexpr std::size_t kLine = 256;
constexpr std::size_t kLongest = 240;       // which leaves room for what the server puts before it
constexpr std::size_t kOut = kGrh + kLine;  // what is sent lies behind what is received

struct Options {
  examples::Place where{};
  std::string device{};
  std::string group{};
  std::vector<std::string> lines{"hello", "goodbye"};
};

struct Chat {
  End here;
  queue_pair<ud> qp;
  address_handle ah;
  qp_number to;
  std::optional<multicast_attachment> membership;

  [[nodiscard]] Result<> say(std::string_view text) const {
    const std::size_t size = std::min(text.size(), kLine);
    const mr_slice out = VERBENA_TRY(here.memory.slice(kOut, size));
    examples::put(out.bytes(), text);
    // Of a datagram each SEND says where it goes; one without does not compile.
    return qp.send({.ah = ah, .to = to, .key = kKey}, out);
  }
  [[nodiscard]] Result<> ready_to_hear() const {
    return qp.post_recv(VERBENA_TRY(here.memory.slice(0, kGrh + kLine)));
  }
  [[nodiscard]] Result<std::string> hear() const {
    for (;;) {
      const work_completion got = VERBENA_TRY(examples::next_of(here.cq));
      if (!got.is_receive()) continue;  // our own, sent
      const std::size_t size = got.byte_len() - kGrh;
      return std::string(examples::text_in(here.memory.bytes().subspan(kGrh, size)));
    }
  }
};

Result<Chat> join(const Options& wanted, const Meeting& met) {
  End here = VERBENA_TRY(End::open(wanted.device, kOut + kLine, access::local_write));
  auto qp = VERBENA_TRY(here.pd.create_qp<ud>({.send_cq = here.cq, .recv_cq = here.cq}));
  const gid_entry row = VERBENA_TRY(here.ctx.routable_gid());
  VERBENA_TRY(qp.activate(row.of, kKey));
  const qp_endpoint ours = VERBENA_TRY(qp.endpoint(row.of, row.index));
  const auto bytes = VERBENA_TRY(met.exchange(ours.to_bytes()));
  const qp_endpoint theirs = VERBENA_TRY(qp_endpoint::from_bytes(bytes));
  path way{.to = theirs.id, .from = row.of, .source = row.index};
  qp_number to = theirs.number;
  std::optional<multicast_attachment> membership;
  if (!wanted.group.empty()) {
    const gid group = VERBENA_TRY(gid::from_string(wanted.group));
    if (wanted.where.is_server()) {
      membership = VERBENA_TRY(qp.attach_multicast(group));
    } else {
      way.to = group;
      to = kGroupMembers;
    }
  }
  // The way there is an object of its own, made once.
  auto ah = VERBENA_TRY(here.pd.create_ah(way));
  return Chat{std::move(here), std::move(qp), std::move(ah), to, std::move(membership)};
}

Result<> run(const Options& wanted) {
  const Meeting met = VERBENA_TRY(Meeting::at(wanted.where));
  const Chat chat = VERBENA_TRY(join(wanted, met));
  VERBENA_TRY(chat.ready_to_hear());
  VERBENA_TRY(met.agree());  // what comes before there is a receive is lost
  if (!wanted.where.is_server()) {
    for (const std::string& line : wanted.lines) {
      VERBENA_TRY(chat.say(line));
      fmt::print("heard: {}\n", VERBENA_TRY(chat.hear()));
      VERBENA_TRY(chat.ready_to_hear());
    }
    VERBENA_TRY(chat.say(""));
    return met.agree();
  }
  for (;;) {
    const std::string line = VERBENA_TRY(chat.hear());
    if (line.empty()) return met.agree();
    fmt::print("heard: {}\n", line);
    VERBENA_TRY(chat.ready_to_hear());
    VERBENA_TRY(chat.say("you said " + line));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Says something in datagrams, and hears the answers.");
  Options wanted;
  wanted.where.add_to(app);
  app.add_option("-d,--device", wanted.device, "The RDMA device (default: the first)");
  app.add_option("-g,--group", wanted.group, "A multicast group's address, the same on both sides");
  app.add_option("-t,--say", wanted.lines, "What the client says in a datagram; may be given again")
      ->expected(1)
      ->take_all()
      ->check([](const std::string& line) {
        return line.empty() || line.size() > kLongest ? "a line has 1 to 240 bytes" : "";
      })
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(run(wanted));
}
