// SPDX-License-Identifier: Apache-2.0
#include "nic/rendezvous.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "nic/message.h"
#include "nic/port_holder.h"
#include "nic/unix_name.h"

namespace verbena::nic {
namespace {

constexpr int kBacklog = 64;
constexpr int kInterruptions = 4;
/// How long others may take to set an address up.
constexpr int kLockAttempts = 1500;
constexpr timespec kLockPause{.tv_sec = 0, .tv_nsec = 2'000'000};

std::optional<ucred> peer_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (sys::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

}  // namespace

// --- Names

std::string slot_name(const wire::Address& address, std::size_t slot) {
  return fmt::format("verbena/{}/{}/slot/{}", sys::geteuid(), wire::to_string(address), slot);
}

std::string lock_name(const wire::Address& address) {
  return fmt::format("verbena/{}/{}/lock", sys::geteuid(), wire::to_string(address));
}

Result<sys::OwnedFd> listen_at(const std::string& name) {
  const UnixName at(name);
  sys::OwnedFd fd = sys::move_high(unix_socket());
  if (!fd || sys::bind(fd.get(), at.get(), at.size) != 0 || sys::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    return fail(static_cast<std::errc>(error), fmt::format("no listening at @{}: {}", name,
                                                           std::generic_category().message(error)));
  }
  return fd;
}

Result<sys::OwnedFd> lock_address(const wire::Address& address) {
  const std::string name = lock_name(address);
  for (int i = 0; i < kLockAttempts; ++i) {
    auto held = listen_at(name);
    if (held || held.error().condition != std::errc::address_in_use) return held;
    sys::ppoll(nullptr, 0, &kLockPause);
  }
  return fail(std::errc::timed_out,
              fmt::format("{} has been setting up {} for {} s: is it stopped?",
                          describe_process(listener_of(name)), wire::to_string(address),
                          kLockAttempts * kLockPause.tv_nsec / 1'000'000'000));
}

pid_t listener_of(const std::string& name) {
  const UnixName at(name);
  const sys::OwnedFd fd = unix_socket();
  if (!fd || sys::connect(fd.get(), at.get(), at.size) != 0) return 0;
  return process_of(fd.get());
}

bool is_own_user(int socket) {
  const auto peer = peer_of(socket);
  return peer && peer->uid == sys::geteuid();
}

pid_t process_of(int socket) {
  const auto peer = peer_of(socket);
  return peer ? peer->pid : 0;
}

// --- Calling

Caller::Caller(const std::string& name, std::chrono::milliseconds patience) : patience_(patience) {
  const UnixName at(name);
  sys::OwnedFd fd = unix_socket();
  if (!fd) return;
  if (sys::connect(fd.get(), at.get(), at.size) != 0) {
    // A full backlog: somebody listens and does not answer.
    if (errno == EAGAIN) outcome_ = Outcome::kSilent;
    return;
  }
  const auto peer = peer_of(fd.get());
  if (!peer) return;
  pid_ = peer->pid;
  socket_ = std::move(fd);
  outcome_ = Outcome::kForeign;
  if (peer->uid != sys::geteuid()) return;
  outcome_ = Outcome::kOwn;
  if (peer->pid == sys::getpid()) return;
  outcome_ = Outcome::kSilent;
  if (!await()) return;
  // That of another version may be longer or shorter.
  std::array<std::byte, 256> bytes{};
  const auto received = receive_message(socket_.get(), bytes);
  Greeting greeting;
  std::memcpy(&greeting, bytes.data(), sizeof greeting);
  if (!received || received->size < 2 * sizeof(std::uint32_t) || greeting.magic != Greeting::kMagic)
    return;
  version_ = greeting.version;
  const bool same = greeting.version == kFabricVersion && greeting.slots == kSlots;
  outcome_ = same ? Outcome::kReady : Outcome::kSkew;
}

/// Whether something comes in time.
bool Caller::await() const {
  pollfd poll{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const timespec longest{.tv_sec = patience_.count() / 1000,
                         .tv_nsec = patience_.count() % 1000 * 1'000'000};
  int ready = -1;
  for (int i = 0; i < kInterruptions && ready < 0; ++i) ready = sys::ppoll(&poll, 1, &longest);
  return ready > 0;
}

Result<Caller::Answer> Caller::ask(const Request& request, std::span<const int> descriptors) {
  if (!send_message(socket_.get(), std::as_bytes(std::span(&request, 1)), descriptors) || !await())
    return fail(std::errc::timed_out, fmt::format("{} does not answer", describe_process(pid_)));
  std::array<std::byte, sizeof(Reply) + kReportsAtOnce * sizeof(QueuePairReport)> bytes;
  auto received = receive_message(socket_.get(), bytes);
  Answer answer;
  if (!received || received->size < sizeof answer.reply)
    return fail(std::errc::bad_message,
                fmt::format("{} gives no sensible answer", describe_process(pid_)));
  std::memcpy(&answer.reply, bytes.data(), sizeof answer.reply);
  if (answer.reply.error != 0) {
    return fail(static_cast<std::errc>(answer.reply.error),
                fmt::format("{}: {}", describe_process(pid_),
                            std::generic_category().message(answer.reply.error)));
  }
  // Who has taken an offer has done so, whatever of the answer gets here.
  if (received->descriptors_lost && request.kind == Request::Kind::kChannel)
    received->descriptors.clear();
  else if (received->descriptors_lost)
    return fail(std::errc::too_many_files_open,
                "this process has no descriptors left for the NIC's sockets: raise `ulimit -n`");
  const std::size_t payload = received->size - sizeof answer.reply;
  if (answer.reply.count > kReportsAtOnce ||
      payload != answer.reply.count * sizeof(QueuePairReport))
    return fail(std::errc::bad_message,
                fmt::format("{} gives no sensible answer", describe_process(pid_)));
  answer.reports.resize(answer.reply.count);
  if (payload > 0) std::memcpy(answer.reports.data(), bytes.data() + sizeof answer.reply, payload);
  answer.descriptors = std::move(received->descriptors);
  return answer;
}

Result<sys::OwnedFd> Caller::directory() {
  Answer answer = VERBENA_TRY(ask({.kind = Request::Kind::kDirectory}));
  if (answer.descriptors.size() != 1)
    return fail(std::errc::bad_message, "no directory came with the answer");
  // Its first descriptor is closed here, before any lock is taken with it.
  return sys::move_high(std::move(answer.descriptors.front()));
}

Result<SocketPool> Caller::pool(const wire::Address& gid) {
  Answer answer = VERBENA_TRY(ask({.kind = Request::Kind::kPool, .gid = gid}));
  SocketPool pool;
  for (sys::OwnedFd& socket : answer.descriptors) pool.push_back(sys::move_high(std::move(socket)));
  if (!is_pool(pool, gid))
    return fail(std::errc::bad_message,
                fmt::format("what {} handed over is no pool of sockets at {}",
                            describe_process(pid_), wire::to_string(gid)));
  return pool;
}

Result<void> Caller::add_pool(const wire::Address& gid, const SocketPool& pool) {
  std::array<int, kSlots> sockets{};
  for (std::size_t i = 0; i < kSlots; ++i) sockets[i] = pool[i].get();
  VERBENA_TRY(ask({.kind = Request::Kind::kAddPool, .gid = gid}, sockets));
  return {};
}

Result<void> Caller::look() {
  VERBENA_TRY(ask({.kind = Request::Kind::kLook}));
  return {};
}

Result<std::vector<sys::OwnedFd>> Caller::offer(const SlotPair& pair,
                                                std::span<const int> descriptors) {
  Answer answer = VERBENA_TRY(ask({.kind = Request::Kind::kChannel, .pair = pair}, descriptors));
  return std::move(answer.descriptors);
}

Result<std::vector<QueuePairReport>> Caller::queue_pairs(std::uint32_t above) {
  return VERBENA_TRY(ask({.kind = Request::Kind::kQueuePairs, .above = above})).reports;
}

}  // namespace verbena::nic
