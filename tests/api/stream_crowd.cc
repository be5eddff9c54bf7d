// SPDX-License-Identifier: Apache-2.0
//
// Many streams at once between two programs of one thread each, which wait with descriptors: on
// each of them the client says something, and compares what the server echoes.
#include <dirent.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "api/stream_load.h"
#include "verbena/stream_listener.h"

namespace verbena::api {
namespace {

using namespace verbs::literals;
using verbs::fail;
using verbs::Result;
using verbs::stream;

struct Options {
  Meeting meeting{};
  std::size_t streams = 1000;
  double seconds = 3;
  std::size_t largest = 1_KiB;
};

/// Small, for there are many: a message of the largest size is taken whole even where nobody reads.
verbs::stream_builder sizes_of(const Options& wanted) {
  return verbs::stream_builder()
      .transport(wanted.meeting.transport)
      .buffer_size(wanted.largest)
      .receives(4)
      .sends(4)
      .send_buffer(4 * wanted.largest);
}

/// The server comes to each of them in its turn, on a machine that may have much else to do.
constexpr std::chrono::seconds kPatience{60};

/// That a stream takes which is waited for both ways, and some for the program.
constexpr rlim_t kDescriptorsOfStream = 8;
constexpr rlim_t kDescriptorsOfProgram = 64;

/// As many as the system allows.
Result<> raise_descriptor_limit(std::size_t streams) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return fail(static_cast<std::errc>(errno), "getrlimit");
  const rlim_t needed = streams * kDescriptorsOfStream + kDescriptorsOfProgram;
  if (limit.rlim_max < needed)
    return fail(std::errc::too_many_files_open, "stream_crowd",
                fmt::format("{} streams may take {} descriptors, and {} are allowed (ulimit -Hn)",
                            streams, needed, limit.rlim_max));
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return fail(static_cast<std::errc>(errno), "setrlimit");
  return {};
}

/// "8011 descriptors, 123 MiB": what this process has, and the most memory that it ever had.
std::string usage() {
  std::size_t descriptors = 0;
  if (DIR* const folder = ::opendir("/proc/self/fd"); folder != nullptr) {
    while (::readdir(folder) != nullptr) ++descriptors;
    ::closedir(folder);
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return fmt::format("{} descriptors, {} MiB", descriptors, used.ru_maxrss >> 10);
}

/// What one waits for with a stream.
enum class Wants : std::uint8_t { kBytes, kRoom, kNothing };

/// Tells who may go on.
class Poller {
 public:
  [[nodiscard]] static Result<Poller> make() {
    const int fd = ::epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) return fail(static_cast<std::errc>(errno), "epoll_create1");
    return Poller(fd);
  }
  Poller(Poller&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
  Poller& operator=(Poller&&) = delete;
  ~Poller() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// `what` is told when the descriptor is readable.
  [[nodiscard]] Result<> add(int fd, std::uint64_t what) const {
    return control(EPOLL_CTL_ADD, fd, what);
  }
  [[nodiscard]] Result<> remove(int fd) const { return control(EPOLL_CTL_DEL, fd, 0); }
  /// A batch of those that can go on; none after a second.
  [[nodiscard]] Result<std::vector<std::uint64_t>> wait() const {
    std::array<epoll_event, 64> events{};
    const int n = ::epoll_wait(fd_, events.data(), static_cast<int>(events.size()), 1000);
    if (n < 0 && errno != EINTR) return fail(static_cast<std::errc>(errno), "epoll_wait");
    std::vector<std::uint64_t> found;
    found.reserve(events.size());
    for (int i = 0; i < n; ++i) found.push_back(events.at(static_cast<std::size_t>(i)).data.u64);
    return found;
  }

 private:
  explicit Poller(int fd) : fd_(fd) {}
  [[nodiscard]] Result<> control(int how, int fd, std::uint64_t what) const {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = what}};
    if (::epoll_ctl(fd_, how, fd, &event) != 0)
      return fail(static_cast<std::errc>(errno), "epoll_ctl");
    return {};
  }
  int fd_;
};

/// A stream, and the descriptor that is waited for.
class Waiter {
 public:
  explicit Waiter(stream own) : own_(std::move(own)) {}
  stream& operator*() { return own_; }
  stream* operator->() { return &own_; }
  [[nodiscard]] Result<> want(const Poller& poller, Wants what, std::uint64_t name) {
    if (what == wants_) return {};
    if (wants_ != Wants::kNothing) VERBENA_TRY(poller.remove(descriptor()));
    wants_ = what;
    return what == Wants::kNothing ? Result<>() : poller.add(descriptor(), name);
  }

 private:
  [[nodiscard]] int descriptor() const {
    return wants_ == Wants::kBytes ? own_.read_fd() : own_.write_fd();
  }
  stream own_;
  Wants wants_ = Wants::kNothing;
};

// --- The server

/// Sends back what comes.
class Echo {
 public:
  Echo(stream with, std::size_t largest) : with_(std::move(with)), room_(largest) {}

  /// Nothing is wanted when the peer has shut down and has got everything.
  [[nodiscard]] Result<Wants> go_on() {
    for (;;) {
      while (!rest_.empty()) {
        const auto n = with_->try_write_some(rest_);
        if (!n && n.error().would_block()) return Wants::kRoom;
        rest_ = rest_.subspan(VERBENA_TRY(n));
      }
      const auto n = with_->try_read_some(room_);
      if (!n && n.error().would_block()) return Wants::kBytes;
      if (VERBENA_TRY(n) == 0) return Wants::kNothing;
      rest_ = std::span(room_).first(*n);
    }
  }
  Waiter& waiter() { return with_; }

 private:
  Waiter with_;
  std::vector<std::byte> room_;
  std::span<const std::byte> rest_;
};

class Server {
 public:
  Server(const Options& wanted, Poller poller, verbs::listener at)
      : wanted_(wanted), poller_(std::move(poller)), at_(std::move(at)) {}

  [[nodiscard]] Result<> run() {
    const Stopwatch watch;
    VERBENA_TRY(poller_.add(at_.fd(), kListener));
    while (ended_ < wanted_.streams) {
      for (const std::uint64_t name : VERBENA_TRY(poller_.wait())) {
        if (name == kListener)
          VERBENA_TRY(accept());
        else
          VERBENA_TRY(serve(name));
      }
    }
    fmt::print("served {} streams in {}; {}\n", ended_, watch.text(), most_);
    return {};
  }

 private:
  static constexpr std::uint64_t kListener = ~std::uint64_t{0};

  [[nodiscard]] Result<> accept() {
    for (;;) {
      auto came = at_.try_accept();
      if (!came && came.error().would_block()) return {};
      echoes_.push_back(std::make_unique<Echo>(VERBENA_TRY(std::move(came)), wanted_.largest));
      if (echoes_.size() == wanted_.streams) most_ = usage();
      VERBENA_TRY(serve(echoes_.size() - 1));
    }
  }

  [[nodiscard]] Result<> serve(std::uint64_t name) {
    auto& one = echoes_.at(name);
    const Wants wants = VERBENA_TRY(one->go_on());
    VERBENA_TRY(one->waiter().want(poller_, wants, name));
    if (wants != Wants::kNothing) return {};
    one.reset();
    ++ended_;
    return {};
  }

  Options wanted_;
  Poller poller_;
  verbs::listener at_;
  std::vector<std::unique_ptr<Echo>> echoes_;
  std::size_t ended_ = 0;
  std::string most_;
};

// --- The client

/// Says something, again and again, and compares the answer.
class Talk {
 public:
  Talk(stream with, std::uint64_t seed) : with_(std::move(with)), pattern_(seed) {}

  [[nodiscard]] bool is_idle() const { return read_ == said_.size(); }
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  void say(std::size_t largest) {
    said_.resize(1 + pattern_.next() % largest);
    pattern_.fill(said_);
    written_ = read_ = 0;
    ++rounds_;
  }

  [[nodiscard]] Result<Wants> go_on() {
    while (written_ < said_.size()) {
      const auto n = with_->try_write_some(std::span(said_).subspan(written_));
      if (!n && n.error().would_block()) return Wants::kRoom;
      written_ += VERBENA_TRY(n);
    }
    for (;;) {
      std::array<std::byte, 4096> room{};
      const auto n = with_->try_read_some(room);
      if (!n && n.error().would_block()) return Wants::kBytes;
      const auto got = std::span(room).first(VERBENA_TRY(n));
      const auto expected = std::span(said_).subspan(read_);
      if (got.empty() || got.size() > expected.size() ||
          !std::ranges::equal(got, expected.first(got.size())))
        return fail(std::errc::illegal_byte_sequence, "stream_crowd", "not what was said");
      read_ += got.size();
    }
  }
  Waiter& waiter() { return with_; }

 private:
  Waiter with_;
  Pattern pattern_;
  std::vector<std::byte> said_;
  std::size_t written_ = 0;
  std::size_t read_ = 0;
  std::uint64_t rounds_ = 0;
};

class Client {
 public:
  Client(const Options& wanted, Poller poller) : wanted_(wanted), poller_(std::move(poller)) {}

  [[nodiscard]] Result<> run() {
    const Stopwatch opening;
    for (std::size_t i = 0; i < wanted_.streams; ++i) {
      auto made = VERBENA_TRY(sizes_of(wanted_).connect(wanted_.meeting.place()));
      talks_.push_back(std::make_unique<Talk>(std::move(made), i + 1));
    }
    fmt::print("{} streams opened in {}; {}\n", talks_.size(), opening.text(), usage());
    const Stopwatch talking;
    VERBENA_TRY(say_on_all([&] { return talking.seconds() < wanted_.seconds; }));
    tell_of_talks(talking.text());
    // Each of them is still there, after all that the others have said.
    VERBENA_TRY(say_on_all([] { return false; }));
    return close_all();
  }

 private:
  /// Once on each, and again on those that have their answer, as long as `more` says so.
  [[nodiscard]] Result<> say_on_all(const std::function<bool()>& more) {
    busy_ = talks_.size();
    for (std::size_t i = 0; i < talks_.size(); ++i) {
      talks_[i]->say(wanted_.largest);
      VERBENA_TRY(talk(i, more));
    }
    while (busy_ != 0) {
      for (const std::uint64_t name : VERBENA_TRY(poller_.wait())) VERBENA_TRY(talk(name, more));
    }
    return {};
  }

  [[nodiscard]] Result<> talk(std::size_t name, const std::function<bool()>& more) {
    Talk& one = *talks_.at(name);
    if (one.is_idle()) return go_on(name);  // it looks whether it still lives
    VERBENA_TRY(go_on(name));
    while (one.is_idle()) {
      if (!more()) {
        --busy_;
        break;
      }
      one.say(wanted_.largest);
      VERBENA_TRY(go_on(name));
    }
    return {};
  }

  [[nodiscard]] Result<> go_on(std::size_t name) {
    Talk& one = *talks_[name];
    return one.waiter().want(poller_, VERBENA_TRY(one.go_on()), name);
  }

  void tell_of_talks(const std::string& took) const {
    std::uint64_t all = 0;
    std::uint64_t fewest = ~std::uint64_t{0};
    std::uint64_t most = 0;
    for (const auto& one : talks_) {
      all += one->rounds();
      fewest = std::min(fewest, one->rounds());
      most = std::max(most, one->rounds());
    }
    fmt::print("{} echoes in {}, {} to {} of a stream\n", all, took, fewest, most);
  }

  /// The server looks after all of them at once, so that no close waits for the next.
  [[nodiscard]] Result<> close_all() {
    const Stopwatch closing;
    for (const auto& one : talks_) VERBENA_TRY(one->waiter()->shutdown());
    for (const auto& one : talks_) VERBENA_TRY(one->waiter()->close(kPatience));
    fmt::print("all {} closed in {}\n", talks_.size(), closing.text());
    return {};
  }

  Options wanted_;
  Poller poller_;
  std::vector<std::unique_ptr<Talk>> talks_;
  std::size_t busy_ = 0;  ///< those that wait for an answer
};

Result<> run(const Options& wanted) {
  VERBENA_TRY(raise_descriptor_limit(wanted.streams));
  Poller poller = VERBENA_TRY(Poller::make());
  if (!wanted.meeting.is_server()) return Client(wanted, std::move(poller)).run();
  auto at = VERBENA_TRY(verbs::listener::bind(wanted.meeting.place(), sizes_of(wanted)));
  return Server(wanted, std::move(poller), std::move(at)).run();
}

}  // namespace
}  // namespace verbena::api

int main(int argc, char** argv) {
  CLI::App app("Many streams at once, in one thread at each end.");
  verbena::api::Options wanted;
  wanted.meeting.add_to(app);
  app.add_option("-n,--streams", wanted.streams, "How many; both ends say the same")
      ->capture_default_str();
  app.add_option("-s,--seconds", wanted.seconds, "How long the client talks on them")
      ->capture_default_str();
  app.add_option("-l,--largest", wanted.largest, "Bytes of the longest message")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return verbena::api::finish("stream_crowd", verbena::api::run(wanted));
}
