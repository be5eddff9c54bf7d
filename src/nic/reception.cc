// SPDX-License-Identifier: Apache-2.0
#include "nic/reception.h"

#include <algorithm>
#include <cstring>

namespace verbena::nic {
namespace {

constexpr int kEventsAtOnce = 16;
constexpr int kGuestsAtOnce = 16;
constexpr timespec kNoTime{.tv_sec = 0, .tv_nsec = 0};

bool reply(int guest, const Reply& reply, std::span<const int> descriptors = {}) {
  return send_message(guest, std::as_bytes(std::span(&reply, 1)), descriptors);
}

bool reply(int guest, const Result<void>& result) {
  return reply(guest, {.error = result ? 0 : static_cast<std::int32_t>(result.error().condition)});
}

}  // namespace

Result<std::unique_ptr<Reception>> Reception::create(ForkLedger& ledger,
                                                     Receptionist& receptionist) {
  LedgerFd epoll(ledger, sys::move_high(sys::OwnedFd(sys::epoll_create())));
  if (!epoll)
    return fail(static_cast<std::errc>(errno), "no descriptor for those who come to the address");
  return std::make_unique<Reception>(ledger, receptionist, std::move(epoll));
}

bool Reception::watch(int fd) const {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  return sys::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

Result<void> Reception::open(std::size_t slot, sys::OwnedFd listener) {
  const std::scoped_lock lock(mutex_);
  listeners_[slot] = LedgerFd(ledger_, std::move(listener));
  if (watch(listeners_[slot].get())) return {};
  const int error = errno;
  listeners_[slot].reset();
  return fail(static_cast<std::errc>(error), "a slot's name cannot be watched");
}

void Reception::close(std::size_t slot) {
  const std::scoped_lock lock(mutex_);
  listeners_[slot].reset();
}

void Reception::serve() {
  const std::scoped_lock lock(mutex_);
  std::array<epoll_event, kEventsAtOnce> events{};
  const int count = sys::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, &kNoTime);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    const auto guest = std::ranges::find(guests_, fd, &LedgerFd::get);
    if (guest != guests_.end()) {
      answer(static_cast<std::size_t>(guest - guests_.begin()));
    } else if (std::ranges::find(listeners_, fd, &LedgerFd::get) != listeners_.end()) {
      receive_guests(fd);
    }
  }
  // Also for one who came in vain while this process was stopped.
  if (count > 0) receptionist_.look();
}

void Reception::receive_guests(int listener) {
  for (int i = 0; i < kGuestsAtOnce; ++i) {
    sys::OwnedFd guest = sys::move_high(
        sys::OwnedFd(sys::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!guest) return;
    const Greeting greeting;
    if (!is_own_user(guest.get()) ||
        !send_message(guest.get(), std::as_bytes(std::span(&greeting, 1))))
      continue;
    if (guests_.size() == kGuests) guests_.erase(guests_.begin());
    guests_.emplace_back(ledger_, std::move(guest));
    if (!watch(guests_.back().get())) guests_.pop_back();
  }
}

/// Answers one request; a guest who has gone, or says something else, is let go.
void Reception::answer(std::size_t guest) {
  const int fd = guests_[guest].get();
  Request request;
  auto received = receive_message(fd, std::as_writable_bytes(std::span(&request, 1)));
  if (received && received->size == sizeof request) {
    const bool answered =
        received->descriptors_lost
            ? reply(fd, Reply{.error = static_cast<int>(std::errc::too_many_files_open)})
            : answer_request(fd, request, std::move(received->descriptors));
    if (answered) return;
  }
  guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(guest));
}

bool Reception::answer_request(int guest, const Request& request,
                               std::vector<sys::OwnedFd> descriptors) {
  switch (request.kind) {
    case Request::Kind::kDirectory: {
      const int directory = receptionist_.directory();
      return reply(guest, Reply{}, std::span(&directory, 1));
    }
    case Request::Kind::kPool: {
      std::array<int, kSlots> sockets{};
      if (!receptionist_.pool(request.gid, sockets))
        return reply(guest, Reply{.error = static_cast<int>(std::errc::address_not_available)});
      return reply(guest, Reply{}, sockets);
    }
    case Request::Kind::kAddPool: {
      SocketPool pool;
      for (sys::OwnedFd& fd : descriptors) pool.push_back(sys::move_high(std::move(fd)));
      return reply(guest, receptionist_.add_pool(request.gid, std::move(pool)));
    }
    case Request::Kind::kLook: receptionist_.look(); return reply(guest, Reply{});
    case Request::Kind::kChannel: {
      const auto opened = receptionist_.open_channel(
          {.pair = request.pair, .from = process_of(guest), .descriptors = std::move(descriptors)});
      if (!opened) return reply(guest, std::unexpected(opened.error()));
      std::vector<int> numbers;
      for (const sys::OwnedFd& fd : *opened) numbers.push_back(fd.get());
      return reply(guest, Reply{}, numbers);
    }
    case Request::Kind::kQueuePairs: break;
    default: return false;
  }
  std::array<QueuePairReport, kReportsAtOnce> reports;
  std::array<std::byte, sizeof(Reply) + sizeof reports> bytes;
  const std::size_t count = receptionist_.queue_pairs(request.above, reports);
  const Reply head{.count = static_cast<std::uint32_t>(count)};
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, reports.data(), count * sizeof(QueuePairReport));
  return send_message(guest,
                      ConstBytes(bytes).first(sizeof head + count * sizeof(QueuePairReport)));
}

}  // namespace verbena::nic
