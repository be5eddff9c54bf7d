// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "nic/fabric_pool.h"
#include "nic/port_state.h"
#include "nic/queue_pair_report.h"
#include "nic/slot_pair.h"
#include "wire/address.h"

/// How processes of one user that share an address find each other and what they say: abstract Unix
/// sockets, which have exactly the scope of the UDP port, the network namespace, and go with their
/// process. The one who is asked is `nic/reception.h`.
namespace verbena::nic {

/// Where the holder of a slot answers: "verbena/1000/127.0.0.1/slot/3", in the abstract name space.
[[nodiscard]] std::string slot_name(const wire::Address& address, std::size_t slot);
/// Whose bind is the address's set-up lock.
[[nodiscard]] std::string lock_name(const wire::Address& address);

/// Binds an abstract name and listens; address_in_use when somebody has it.
[[nodiscard]] Result<sys::OwnedFd> listen_at(const std::string& name);

/// Holds an address's set-up lock, as long as the descriptor is open: one at a time makes a pool,
/// or changes the port. Waits some seconds; timed_out with a sentence that says for whom.
[[nodiscard]] Result<sys::OwnedFd> lock_address(const wire::Address& address);

/// The process that listens at `name`; 0 when there is none.
[[nodiscard]] pid_t listener_of(const std::string& name);
/// Whether the peer of a connected Unix socket is a process of this user.
[[nodiscard]] bool is_own_user(int socket);
/// The process that connected a Unix socket; 0 when it cannot be seen from here.
[[nodiscard]] pid_t process_of(int socket);

// What is said. The listener greets; then come any number of requests, each answered by one reply.
// All of it has this machine's byte order and lies between processes of one version.

/// Its first two fields are the same in every version.
struct Greeting {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kFabricVersion;
  std::uint32_t slots = kSlots;
  std::uint32_t reserved = 0;

  static constexpr std::uint32_t kMagic = 0x56455242;  // "VERB"
  /// Of the directory and of what processes say to each other; processes of different versions do
  /// not share an address.
  static constexpr std::uint32_t kFabricVersion = 11;
};
inline constexpr std::uint32_t kFabricVersion = Greeting::kFabricVersion;

struct Request {
  enum class Kind : std::uint32_t {
    kDirectory,   ///< the reply carries its descriptor
    kPool,        ///< of the GID `gid`; the reply carries its sockets
    kAddPool,     ///< of the GID `gid`, whose sockets come with the request
    kLook,        ///< at the directory, because it was changed
    kQueuePairs,  ///< with numbers above `above`; the reply is followed by their reports
    kChannel,     ///< for `pair`, as who is asked sees it; what it is made of comes with it
  };
  Kind kind{};
  std::uint32_t above = 0;
  wire::Address gid{};
  SlotPair pair{};
};

struct Reply {
  std::int32_t error = 0;  ///< an errno, 0 for success
  std::uint32_t count = 0;
};

/// Reports that one reply carries.
inline constexpr std::size_t kReportsAtOnce = 32;

/// A conversation with the process that listens at a name.
class Caller {
 public:
  enum class Outcome : std::uint8_t {
    kNobody,   ///< no process listens there
    kSilent,   ///< pid() listens and does not answer in time
    kOwn,      ///< this process itself listens there
    kForeign,  ///< another user's process, which has taken our name
    kSkew,     ///< pid() speaks version()
    kReady,    ///< questions may be asked
  };
  /// Calls, and waits at most `patience` for the greeting and for each reply.
  Caller(const std::string& name, std::chrono::milliseconds patience);

  [[nodiscard]] Outcome outcome() const { return outcome_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::uint32_t version() const { return version_; }

  // With kReady. timed_out when no reply comes, bad_message for one that is none, else the error
  // that the other process replied. What comes is checked only as far as its form.

  [[nodiscard]] Result<sys::OwnedFd> directory();
  [[nodiscard]] Result<SocketPool> pool(const wire::Address& gid);
  [[nodiscard]] Result<void> add_pool(const wire::Address& gid, const SocketPool& pool);
  [[nodiscard]] Result<void> look();
  /// Offers a channel between two slots, see ChannelOffer; `pair` as who is asked sees it. What
  /// came with the answer.
  [[nodiscard]] Result<std::vector<sys::OwnedFd>> offer(const SlotPair& pair,
                                                        std::span<const int> descriptors);
  /// At most kReportsAtOnce, in order of number; none when there are no more.
  [[nodiscard]] Result<std::vector<QueuePairReport>> queue_pairs(std::uint32_t above);

 private:
  struct Answer {
    Reply reply{};
    std::vector<sys::OwnedFd> descriptors{};
    std::vector<QueuePairReport> reports{};
  };
  [[nodiscard]] bool await() const;
  [[nodiscard]] Result<Answer> ask(const Request& request, std::span<const int> descriptors = {});

  std::chrono::milliseconds patience_;
  sys::OwnedFd socket_;
  Outcome outcome_ = Outcome::kNobody;
  pid_t pid_ = 0;
  std::uint32_t version_ = 0;
};

}  // namespace verbena::nic
