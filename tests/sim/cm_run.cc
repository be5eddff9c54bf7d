// SPDX-License-Identifier: Apache-2.0
#include "sim/cm_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "cm/manager.h"
#include "sim/cm_stage.h"
#include "sim/trace.h"

namespace verbena::sim {
namespace {

using cm::EventKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kService = 0x01060000 | 7471;
constexpr std::uint64_t kDeafService = kService + 1;  ///< nobody listens there
constexpr std::uint32_t kBacklog = 8;
constexpr Duration kSurely = seconds(70);   ///< in which one of many tries has got through
constexpr std::uint32_t kLittle = 100'000;  ///< of a million

template <std::size_t kSize>
void put(wire::PrivateData<kSize>& data, std::size_t attempt) {
  store_be<std::uint32_t>(data.data(), static_cast<std::uint32_t>(attempt + 1));
}
template <std::size_t kSize>
std::size_t number_in(const wire::PrivateData<kSize>& data) {
  return load_be<std::uint32_t>(data.data()) - std::size_t{1};
}

class CmRun {
 public:
  CmRun(const CmPlan& plan, std::FILE* trace_to)
      : plan_(plan), trace_(trace_to), random_(plan.seed ^ 0xC300), attempts_(plan.attempts) {
    for (std::uint32_t i = 0; i < plan.processes; ++i) begin(i);
  }
  CmReport run();

 private:
  struct End {
    std::size_t process = 0;
    unsigned life = 0;  ///< of the process
    cm::ConnectionId id = 0;
    Stage stage = Stage::kNone;
    std::vector<std::uint32_t> qps{};  ///< that a server answered with: a REP may come late
    bool was_up = false;
    bool patient = false;  ///< a server whom the client asked to wait with repeating its REP
    Time up_at{};          ///< of a client
  };
  struct Attempt {
    std::array<End, 2> ends{};  ///< client, server
    bool datagrams = false;     ///< a request for the service's queue pair
    bool deaf = false;          ///< nobody listens
    bool told = false;          ///< of a request for a queue pair: how it ended
  };
  struct Process {
    std::unique_ptr<cm::Manager> manager{};
    unsigned life = 0;
    std::uint32_t next_qp = 1;  ///< begins anew with the process
    std::map<cm::ConnectionId, std::pair<std::size_t, std::size_t>> ends{};  ///< attempt, side
  };

  // What happens when.
  void at(Time time, std::function<void()> deed) {
    agenda_.emplace(std::pair(time, ++order_), std::move(deed));
  }
  void in(Duration delay, std::function<void()> deed) { at(now_ + delay, std::move(deed)); }
  Duration up_to(Duration most) {
    return Duration(
        static_cast<Duration::rep>(random_.below(static_cast<std::uint64_t>(most.count()) + 1)));
  }
  /// How long a program thinks.
  Duration thought() {
    return random_.chance_ppm(plan_.patience_ppm) ? up_to(seconds(100)) : up_to(milliseconds(50));
  }
  void fail(std::string why) {
    if (report_.failure.empty()) report_.failure = std::move(why);
  }

  // Processes.
  void begin(std::size_t process);
  void restart(std::size_t process);
  [[nodiscard]] wire::Address address_of(std::size_t process) const {
    return wire::Address::from_ipv4(0x0A4F0001U + static_cast<std::uint32_t>(process));
  }
  [[nodiscard]] wire::Path path(std::size_t from, std::size_t to) const {
    return {.source = address_of(from), .destination = address_of(to), .source_port = 50000};
  }
  cm::Manager& manager(const End& end) { return *processes_[end.process].manager; }

  // Programs.
  void ask(std::size_t attempt);
  void hear(std::size_t process, const cm::Event& event);
  void hear_of_service(std::size_t process, const cm::Event& event);
  void move(std::size_t attempt, std::size_t side, const cm::Event& event);
  void act_on(std::size_t attempt, std::size_t side, EventKind kind);
  void think(std::size_t attempt, std::size_t side, Stage stage, Duration delay,
             void (CmRun::*deed)(std::size_t, std::size_t));
  void decide(std::size_t attempt, std::size_t side);
  void confirm(std::size_t attempt, std::size_t side);
  void notice_data(std::size_t attempt, std::size_t side);
  void end(std::size_t attempt, std::size_t side);
  void let_go(std::size_t attempt, std::size_t side);
  std::optional<std::pair<std::size_t, std::size_t>> whose(std::size_t process,
                                                           const cm::Event& event);

  // The network.
  void pump();
  void carry(const cm::Outgoing& datagram);
  void cut();

  void check_end();

  CmPlan plan_;
  /// So little is lost that one of the many tries gets through, and nobody is too slow for all.
  bool reachable_ = plan_.drop_ppm <= kLittle && plan_.restarts == 0 && plan_.cuts == 0 &&
                    plan_.patience_ppm == 0;
  Trace trace_;
  Random random_;
  CmReport report_{};
  Time now_{seconds(1)};
  std::uint64_t order_ = 0;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> agenda_{};
  std::vector<Process> processes_{std::vector<Process>(8)};
  std::vector<Attempt> attempts_;
  std::map<std::pair<std::size_t, std::size_t>, Time> cut_until_{};
};

void CmRun::begin(std::size_t process) {
  Process& made = processes_[process];
  ++made.life;
  made.ends.clear();
  made.manager = std::make_unique<cm::Manager>(cm::Config{.ca_guid = process + 1}, random_.next());
  made.next_qp = 1;
  if (!made.manager->listen({.service_id = kService, .datagrams = true, .backlog = kBacklog}))
    fail("listen() fails");
}

void CmRun::restart(std::size_t process) {
  trace_.line(now_, fmt::format("p{}", process), "dies, and begins anew");
  for (Attempt& attempt : attempts_) {
    for (End& end : attempt.ends) {
      if (end.process == process && end.stage != Stage::kNone) end.stage = Stage::kLetGo;
    }
    attempt.told |= attempt.ends[0].stage == Stage::kLetGo;
  }
  begin(process);
}

void CmRun::ask(std::size_t number) {
  Attempt& attempt = attempts_[number];
  ++report_.attempts;
  const std::size_t from = random_.below(plan_.processes);
  const std::size_t to = random_.below(plan_.processes);  // itself, too
  attempt.deaf = random_.below(10) == 0;
  attempt.datagrams = random_.below(5) == 0;
  attempt.ends[0] = {.process = from, .life = processes_[from].life, .stage = Stage::kAsks};
  attempt.ends[1] = {.process = to};
  const std::uint64_t service = attempt.deaf ? kDeafService : kService;
  cm::Manager& manager = *processes_[from].manager;
  Result<cm::ConnectionId> id = 0;
  if (attempt.datagrams) {
    wire::CmSidrReq request{.service_id = service};
    put(request.private_data, number);
    id = manager.resolve(path(from, to), request, now_);
  } else {
    wire::CmReq request{
        .service_id = service, .local_qp = processes_[from].next_qp++, .path_mtu = 3};
    request.primary.local_ack_timeout = static_cast<std::uint8_t>(random_.below(20));
    put(request.private_data, number);
    id = manager.connect(path(from, to), request, now_);
  }
  if (!id) return fail("connect() fails: " + id.error().message);
  attempt.ends[0].id = *id;
  processes_[from].ends[*id] = {number, 0};
  trace_.line(now_, fmt::format("p{}", from), "attempt {} to p{}", number, to);
  if (random_.below(20) == 0) think(number, 0, Stage::kAsks, up_to(seconds(10)), &CmRun::let_go);
}

/// Later, if the side stands there still.
void CmRun::think(std::size_t attempt, std::size_t side, Stage stage, Duration delay,
                  void (CmRun::*deed)(std::size_t, std::size_t)) {
  in(delay, [=, this] {
    if (attempts_[attempt].ends[side].stage == stage) (this->*deed)(attempt, side);
  });
}

std::optional<std::pair<std::size_t, std::size_t>> CmRun::whose(std::size_t process,
                                                                const cm::Event& event) {
  const auto known = processes_[process].ends.find(event.id);
  if (known != processes_[process].ends.end()) return known->second;
  std::size_t number = 0;
  if (const auto* request = std::get_if<wire::CmReq>(&event.message)) {
    number = number_in(request->private_data);
  } else if (const auto* asked = std::get_if<wire::CmSidrReq>(&event.message)) {
    number = number_in(asked->private_data);
  } else {
    return std::nullopt;
  }
  if (number >= attempts_.size() || attempts_[number].ends[1].process != process)
    return std::nullopt;
  processes_[process].ends[event.id] = {number, 1};
  return std::pair(number, std::size_t{1});
}

void CmRun::hear(std::size_t process, const cm::Event& event) {
  trace_.mix_all(event.id, event.kind, now_.time_since_epoch().count());
  const auto found = whose(process, event);
  if (!found) return fail(fmt::format("p{} hears '{}' of nothing", process, name_of(event.kind)));
  const auto [number, side] = *found;
  trace_.line(now_, fmt::format("p{}", process), "attempt {}: {}", number, name_of(event.kind));
  if (attempts_[number].datagrams) return hear_of_service(process, event);
  move(number, side, event);
  if (report_.failure.empty()) act_on(number, side, event.kind);
}

void CmRun::hear_of_service(std::size_t process, const cm::Event& event) {
  const auto [number, side] = processes_[process].ends.at(event.id);
  Attempt& attempt = attempts_[number];
  if (event.kind == EventKind::kResolveRequested) {
    in(thought(), [this, process, life = processes_[process].life, id = event.id, number] {
      if (processes_[process].life != life) return;
      // One that takes long may be gone.
      static_cast<void>(processes_[process].manager->answer(
          id, {.qp = static_cast<std::uint32_t>(number), .qkey = 5}, now_));
    });
    processes_[process].manager->handed_over(event.id);
    return;
  }
  if (side != 0 || std::exchange(attempt.told, true)) return fail("a request is answered twice");
  if (event.kind != EventKind::kResolved) {
    ++report_.unanswered;
    return;
  }
  const auto& reply = std::get<wire::CmSidrRep>(event.message);
  const bool valid = reply.status == wire::SidrStatus::kValid;
  ++(valid ? report_.resolved : report_.refused);
  if (valid == attempt.deaf) fail("a service answers that is not there, or not one that is");
  if (valid && reply.qp != number) fail("a service's queue pair is another one's");
}

void CmRun::move(std::size_t number, std::size_t side, const cm::Event& event) {
  Attempt& attempt = attempts_[number];
  End& end = attempt.ends[side];
  if (event.kind == EventKind::kRequested) {
    // The REJ that answered an earlier one was lost, or its process has died since.
    // Or the client gave up before the program saw the earlier one, whose copy comes late.
    const bool over_unseen = end.stage == Stage::kAsked && !manager(end).state(end.id);
    if (end.stage == Stage::kLetGo || over_unseen) end.stage = Stage::kGone;
    end.id = event.id;
    end.life = processes_[end.process].life;
    if (attempt.deaf) return fail("a REQ for a service that is not there is heard");
  }
  if (event.id != end.id) return fail("an event of a connection that is gone");
  const auto next = after(end.stage, event.kind);
  if (!next) {
    return fail(fmt::format("attempt {}, {}: '{}' in stage {}", number,
                            side == 0 ? "client" : "server", name_of(event.kind),
                            static_cast<int>(end.stage)));
  }
  if (const auto* reply = std::get_if<wire::CmRep>(&event.message);
      event.kind == EventKind::kReplied &&
      (number_in(reply->private_data) != number ||
       std::ranges::count(attempt.ends[1].qps, reply->local_qp) == 0))
    return fail("a REP is not what the server sent");
  if (const auto* over = std::get_if<wire::CmDreq>(&event.message);
      event.kind == EventKind::kDisconnecting && over->private_data[3] != std::byte{0} &&
      number_in(over->private_data) != number)
    return fail("a DREQ is not what the peer sent");
  const std::size_t peer = attempt.ends[1 - side].process;
  if (event.kind == EventKind::kDisconnected && end.stage == Stage::kUp &&
      processes_[peer].life == 1)
    return fail("a connection ends that nobody ended");
  if (event.kind == EventKind::kRejected) ++report_.refused;
  if (event.kind == EventKind::kDisconnected && reachable_) {
    const auto* unanswered = std::get_if<wire::CmDreq>(&event.message);
    if (unanswered != nullptr && unanswered->local_id == event.id) fail("nobody answers a DREQ");
  }
  if (event.kind == EventKind::kUnreachable) ++report_.unanswered;
  end.stage = *next;
  end.was_up |= end.stage == Stage::kUp;
}

/// What a program does about it, sooner or later.
void CmRun::act_on(std::size_t number, std::size_t side, EventKind kind) {
  const End& end = attempts_[number].ends[side];
  switch (kind) {
    case EventKind::kRequested:
      in(up_to(milliseconds(20)), [this, process = end.process, life = end.life, id = end.id] {
        if (processes_[process].life == life) processes_[process].manager->handed_over(id);
      });
      return think(number, side, Stage::kAsked, thought(), &CmRun::decide);
    case EventKind::kReplied:
      return think(number, side, Stage::kReplied, thought(), &CmRun::confirm);
    case EventKind::kEstablished:
      return think(number, side, Stage::kUp, up_to(seconds(90)), &CmRun::end);
    case EventKind::kDisconnecting:
      return think(number, side, Stage::kEnded, thought(), &CmRun::end);
    default: return;
  }
}

/// A server about a REQ.
void CmRun::decide(std::size_t number, std::size_t side) {
  End& server = attempts_[number].ends[side];
  if (!manager(server).state(server.id)) {  // over before it was seen
    server.stage = Stage::kGone;
    return;
  }
  const std::uint64_t choice = random_.below(10);
  if (choice == 0) return let_go(number, side);
  if (choice == 1) {
    server.stage = Stage::kGone;
    if (!manager(server).reject(server.id, {.reason = wire::RejectReason::kConsumer}))
      fail("reject() fails");
    return;
  }
  server.qps.push_back(processes_[server.process].next_qp++);
  wire::CmRep reply{.local_qp = server.qps.back()};
  put(reply.private_data, number);
  server.stage = Stage::kAccepts;
  if (!manager(server).accept(server.id, reply, now_)) return fail("accept() fails");
  if (random_.below(8) == 0)
    think(number, side, Stage::kAccepts, up_to(seconds(10)), &CmRun::notice_data);
  if (random_.below(20) == 0)
    think(number, side, Stage::kAccepts, up_to(seconds(10)), &CmRun::let_go);
}

/// A client about a REP.
void CmRun::confirm(std::size_t number, std::size_t side) {
  End& client = attempts_[number].ends[side];
  const std::uint64_t choice = random_.below(12);
  if (choice == 0) return let_go(number, side);
  if (choice == 1) {
    client.stage = Stage::kGone;
    if (!manager(client).reject(client.id, {.reason = wire::RejectReason::kConsumer}))
      fail("reject() fails");
    return;
  }
  client.stage = Stage::kUp;
  client.was_up = true;
  client.up_at = now_;
  if (!manager(client).confirm(client.id, {})) return fail("confirm() fails");
  think(number, side, Stage::kUp, up_to(seconds(90)), &CmRun::end);
}

/// The client's first message came before its RTU.
void CmRun::notice_data(std::size_t number, std::size_t side) {
  End& server = attempts_[number].ends[side];
  if (attempts_[number].ends[0].stage == Stage::kUp && !manager(server).established(server.id))
    fail("established() fails");
}

void CmRun::end(std::size_t number, std::size_t side) {
  End& end = attempts_[number].ends[side];
  const End& server = attempts_[number].ends[1];
  if (reachable_ && side == 0 && end.was_up && now_ - end.up_at > kSurely &&
      server.stage == Stage::kAccepts && !server.patient)
    return fail(fmt::format("attempt {}: the server never hears that the client is ready", number));
  if (random_.below(10) == 0) return let_go(number, side);
  const bool answers = end.stage == Stage::kEnded;
  end.stage = answers ? Stage::kOver : Stage::kEnds;
  wire::PrivateData<4> data{};
  put(data, number);
  if (!manager(end).disconnect(end.id, data, now_)) fail("disconnect() fails");
}

void CmRun::let_go(std::size_t number, std::size_t side) {
  End& end = attempts_[number].ends[side];
  end.stage = Stage::kLetGo;
  if (side == 0) attempts_[number].told = true;
  manager(end).abandon(end.id, now_);
}

/// Takes what the managers give, until they give no more.
void CmRun::pump() {
  for (bool any = true; any && report_.failure.empty();) {
    any = false;
    for (std::size_t process = 0; process < plan_.processes; ++process) {
      cm::Manager& manager = *processes_[process].manager;
      while (const auto event = manager.poll_event()) {
        any = true;
        hear(process, *event);
      }
      while (const auto datagram = manager.poll_transmit()) {
        any = true;
        carry(*datagram);
      }
    }
  }
}

void CmRun::carry(const cm::Outgoing& datagram) {
  ++report_.datagrams;
  const auto from = datagram.path.source.ipv4() - address_of(0).ipv4();
  const auto to = datagram.path.destination.ipv4() - address_of(0).ipv4();
  if (from >= plan_.processes || to >= plan_.processes) return fail("a datagram goes astray");
  const auto said = wire::parse_cm(datagram.mad);
  if (!said) return fail("a manager writes what no manager can read");
  if (trace_.prints())
    trace_.line(now_, fmt::format("p{} -> p{}", from, to), "{}", wire::to_string(*said));
  if (const auto* delay = std::get_if<wire::CmMra>(&said->message);
      delay != nullptr && delay->subject == wire::CmSubject::kRep) {
    const auto asked = processes_[to].ends.find(delay->remote_id);
    if (asked != processes_[to].ends.end()) {
      const auto [number, side] = asked->second;
      attempts_[number].ends[side].patient = true;
    }
  }
  const auto cut = cut_until_.find(std::minmax<std::size_t>(from, to));
  if (random_.chance_ppm(plan_.drop_ppm) || (cut != cut_until_.end() && now_ < cut->second)) {
    ++report_.lost;
    return;
  }
  const auto deliver = [this, datagram, to] {
    processes_[to].manager->handle_datagram(datagram.path, datagram.mad, now_);
  };
  const auto way = [&] {
    return random_.chance_ppm(plan_.delay_ppm) ? up_to(seconds(2)) : up_to(milliseconds(1));
  };
  in(way(), deliver);
  if (random_.chance_ppm(plan_.repeat_ppm)) in(way(), deliver);
}

void CmRun::cut() {
  const std::size_t one = random_.below(plan_.processes);
  const std::size_t other = (one + 1 + random_.below(plan_.processes - 1)) % plan_.processes;
  cut_until_[std::minmax(one, other)] = now_ + up_to(seconds(120));
}

CmReport CmRun::run() {
  for (std::size_t i = 0; i < attempts_.size(); ++i) in(up_to(plan_.spread), [this, i] { ask(i); });
  for (std::uint32_t i = 0; i < plan_.restarts; ++i)
    in(up_to(2 * plan_.spread), [this] { restart(random_.below(plan_.processes)); });
  for (std::uint32_t i = 0; i < plan_.cuts; ++i) in(up_to(plan_.spread), [this] { cut(); });
  while (report_.failure.empty()) {
    Time next = agenda_.empty() ? Time::max() : agenda_.begin()->first.first;
    for (std::size_t i = 0; i < plan_.processes; ++i)
      next = std::min(next, processes_[i].manager->poll_timeout());
    if (next == Time::max()) break;
    now_ = std::max(now_, next);
    while (!agenda_.empty() && agenda_.begin()->first.first <= now_)
      agenda_.extract(agenda_.begin()).mapped()();
    for (std::size_t i = 0; i < plan_.processes; ++i) processes_[i].manager->handle_timeout(now_);
    pump();
    if (now_ > Time(std::chrono::hours(12))) fail("it does not come to an end");
  }
  if (report_.failure.empty()) check_end();
  report_.hash = trace_.hash();
  report_.virtual_time = now_.time_since_epoch();
  return report_;
}

void CmRun::check_end() {
  for (std::size_t i = 0; i < plan_.processes; ++i) {
    if (const std::size_t left = processes_[i].manager->size(); left != 0)
      return fail(fmt::format("p{} keeps {} connections", i, left));
  }
  if (reachable_ && report_.unanswered != 0)
    return fail("nobody answers, and everybody can be reached");
  for (std::size_t number = 0; number < attempts_.size(); ++number) {
    const Attempt& attempt = attempts_[number];
    if (attempt.datagrams) {
      if (!attempt.told) fail(fmt::format("attempt {}: the client was never told", number));
      continue;
    }
    const auto& [client, server] = attempt.ends;
    for (const End* end : {&client, &server}) {
      const bool ended = end->stage == Stage::kGone || end->stage == Stage::kLetGo ||
                         (end == &server && end->stage == Stage::kNone);
      if (!ended) {
        fail(fmt::format("attempt {}, {}: stays in stage {}", number,
                         end == &client ? "client" : "server", static_cast<int>(end->stage)));
      }
    }
    report_.connected += client.was_up && server.was_up;
  }
}

}  // namespace

CmPlan make_cm_plan(std::uint64_t seed) {
  Random random(seed ^ 0xC301);
  CmPlan plan;
  plan.seed = seed;
  plan.processes = static_cast<std::uint32_t>(random.between(2, 4));
  plan.attempts = static_cast<std::uint32_t>(random.between(10, 80));
  plan.spread = seconds(static_cast<int>(random.between(1, 200)));
  plan.patience_ppm = random.below(2) == 0 ? 0 : 200'000;
  if (random.below(4) == 0) return plan;  // nothing goes wrong
  plan.drop_ppm =
      static_cast<std::uint32_t>(random.below(random.below(2) == 0 ? 100'000 : 400'000));
  plan.repeat_ppm = static_cast<std::uint32_t>(random.below(200'000));
  plan.delay_ppm = static_cast<std::uint32_t>(random.below(200'000));
  if (random.below(3) == 0) return plan;
  plan.restarts = static_cast<std::uint32_t>(random.below(4));
  plan.cuts = static_cast<std::uint32_t>(random.below(4));
  return plan;
}

CmReport run_cm(const CmPlan& plan, std::FILE* trace_to) { return CmRun(plan, trace_to).run(); }

}  // namespace verbena::sim
