// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "nic/fork_ledger.h"
#include "nic/message.h"
#include "nic/rendezvous.h"

namespace verbena::nic {

/// Who answers the questions of `nic/rendezvous.h`. Called from Reception::serve(), in the runner's
/// thread, and returns soon.
class Receptionist {
 public:
  Receptionist() = default;
  Receptionist(const Receptionist&) = delete;
  Receptionist& operator=(const Receptionist&) = delete;
  virtual ~Receptionist() = default;

  [[nodiscard]] virtual int directory() = 0;
  /// Writes the sockets of a GID's pool; false when there is none. They stay open until the next
  /// call from here.
  [[nodiscard]] virtual bool pool(const wire::Address& gid, std::array<int, kSlots>& sockets) = 0;
  [[nodiscard]] virtual Result<void> add_pool(const wire::Address& gid, SocketPool pool) = 0;
  /// Somebody has come: the directory may have changed.
  virtual void look() = 0;
  /// As SameHost::accept().
  [[nodiscard]] virtual Result<std::vector<sys::OwnedFd>> open_channel(ChannelOffer offer) = 0;
  /// Reports of the queue pairs with numbers above `above`, in order; returns how many fitted.
  [[nodiscard]] virtual std::size_t queue_pairs(std::uint32_t above,
                                                std::span<QueuePairReport> to) = 0;
};

/// Receives other processes of this user at the names of the slots that this one holds, and passes
/// their questions on. One descriptor tells of all that happens. It never blocks, and a guest that
/// says nothing costs a place among kGuests, the oldest of which gives way.
///
/// Threads: all calls from any thread.
class Reception {
 public:
  static constexpr std::size_t kGuests = 64;

  [[nodiscard]] static Result<std::unique_ptr<Reception>> create(ForkLedger& ledger,
                                                                 Receptionist& receptionist);
  Reception(ForkLedger& ledger, Receptionist& receptionist, LedgerFd epoll)
      : ledger_(ledger), receptionist_(receptionist), epoll_(std::move(epoll)) {}
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  /// Readable when serve() has something to do.
  [[nodiscard]] int descriptor() const { return epoll_.get(); }
  void serve();

  /// Takes over a listener of listen_at().
  [[nodiscard]] Result<void> open(std::size_t slot, sys::OwnedFd listener);
  /// On return nobody is received at the slot's name any more.
  void close(std::size_t slot);

 private:
  [[nodiscard]] bool watch(int fd) const;
  void receive_guests(int listener);
  void answer(std::size_t guest);
  [[nodiscard]] bool answer_request(int guest, const Request& request,
                                    std::vector<sys::OwnedFd> descriptors);

  ForkLedger& ledger_;
  Receptionist& receptionist_;
  const LedgerFd epoll_;
  std::mutex mutex_;  ///< guards the rest
  std::array<LedgerFd, kSlots> listeners_;
  std::vector<LedgerFd> guests_;  ///< oldest first
};

}  // namespace verbena::nic
