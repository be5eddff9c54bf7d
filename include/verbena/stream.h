// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "verbena/completion_queue.h"
#include "verbena/context.h"
#include "verbena/protection_domain.h"
#include "verbena/queue_pair.h"
#include "verbena/socket_address.h"
#include "verbena/stream_options.h"

/// Streams of bytes over a reliable connection. Bytes are copied into registered memory and out of
/// it, used in place (`prepare`, `peek`), or sent from where they lie (`direct_writes`); the peer's
/// credit bounds what is under way, so no message ever meets a peer without room.
namespace verbena::verbs {

namespace streams {
class connection;
class connecting;
}  // namespace streams

class listener;

/// How long a call waits; nothing is for ever.
using stream_timeout = std::optional<std::chrono::milliseconds>;

/// The half that reads. The stream ends when both halves are gone.
///
/// Threads: one at a time, beside the other half's.
class read_half {
 public:
  read_half(read_half&&) noexcept = default;
  read_half& operator=(read_half&&) noexcept = default;
  ~read_half() = default;

  /// Waits for bytes and takes those that there are, at most `into.size()`; 0 is the end, after
  /// the peer's shutdown, or an empty `into`. What arrived before a failure is read before it is
  /// reported. `timed_out` where nothing came within the read time-out.
  [[nodiscard]] Result<std::size_t> read_some(std::span<std::byte> into);
  /// Fills `into`: fewer bytes only at the end. The time-out is of each wait. Bytes read before an
  /// error are lost to the caller.
  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> into);
  /// Without waiting: `would_block` where there is nothing; `read_fd` becomes readable then.
  [[nodiscard]] Result<std::size_t> try_read_some(std::span<std::byte> into);
  /// Without copying: waits as `read_some` does, and shows the bytes where they have arrived; empty
  /// is the end. They are there until `consume`.
  [[nodiscard]] Result<std::span<const std::byte>> peek();
  /// The first `bytes` of what `peek` has shown are not needed any more, so that the peer may send
  /// as many. `invalid_argument` for more than that.
  [[nodiscard]] Result<> consume(std::size_t bytes);
  /// A descriptor to wait with after `would_block`, until it is readable; then try again: it may
  /// have been for nothing. It stays the stream's. -1 where nothing is behind it, or no descriptor
  /// is to be had.
  [[nodiscard]] int read_fd() const;
  /// Of each wait from now on; none: as long as it takes. None until it is set.
  void set_read_timeout(stream_timeout timeout);
  [[nodiscard]] stream_counters counters() const;  ///< of both directions

 protected:
  friend class stream;
  explicit read_half(std::shared_ptr<streams::connection> connection);
  std::shared_ptr<streams::connection> connection_;
};

/// The half that writes. When it is destroyed it shuts its direction down.
///
/// Threads: one at a time, beside the other half's.
class write_half {
 public:
  write_half(write_half&&) noexcept = default;
  write_half& operator=(write_half&& from) noexcept;
  ~write_half();

  /// Waits until the peer has room for at least a byte, and takes what it has room for: those are
  /// with the device, and go without another call. `broken_pipe` after shutdown, or when the peer's
  /// stream was destroyed; `timed_out` where no room came within the write time-out.
  [[nodiscard]] Result<std::size_t> write_some(std::span<const std::byte> from);
  /// Takes all; what it was given is the caller's again in any case. The time-out is of each wait.
  /// How many were taken before an error is not told. Most of a long one is sent from where it lies
  /// (`stream_options::direct_writes`).
  [[nodiscard]] Result<> write(std::span<const std::byte> from);
  /// Without waiting: `would_block` where there is no room; `write_fd` becomes readable then.
  [[nodiscard]] Result<std::size_t> try_write_some(std::span<const std::byte> from);
  /// Without copying: waits as `write_some` does, and gives the memory that the next message is
  /// sent from, as large as the peer has room for at that moment.
  [[nodiscard]] Result<std::span<std::byte>> prepare();
  /// Sends the first `bytes` of what `prepare` has given. `invalid_argument` for more than that.
  [[nodiscard]] Result<> commit(std::size_t bytes);
  /// As `read_fd`: it becomes readable, not writable.
  [[nodiscard]] int write_fd() const;
  /// Waits until all that was written is in the peer's memory, or the write time-out is over.
  [[nodiscard]] Result<> flush();
  /// No more is written; the peer reads what there is and then the end. Does not wait.
  [[nodiscard]] Result<> shutdown();
  /// Of each wait from now on; none: as long as it takes. None until it is set.
  void set_write_timeout(stream_timeout timeout);
  [[nodiscard]] stream_counters counters() const;  ///< of both directions

 protected:
  friend class stream;
  explicit write_half(std::shared_ptr<streams::connection> connection);
  std::shared_ptr<streams::connection> connection_;
};

/// Both halves. Reading and writing may be done in two threads at once; whoever waits serves both
/// directions, so that two ends that write at once both go on.
///
/// Destroying it shuts down and waits, as long as its `linger`, until the peer has all that was
/// written; `close` says whether it has.
///
/// A moved-from or closed stream reports `bad_file_descriptor`.
class stream {
 public:
  /// For `shutdown`.
  enum class direction : unsigned char {
    write,  ///< this end's; the peer reads on to the end
  };

  /// To a listener, with the sizes of a `stream_builder` as it is made. See its `connect`.
  [[nodiscard]] static Result<stream> connect(const cm::socket_address& peer);
  /// The same of text: "192.168.1.7:4791".
  [[nodiscard]] static Result<stream> connect(std::string_view peer);

  /// @{
  /// As `read_half` or `write_half` has it.
  [[nodiscard]] Result<std::size_t> read_some(std::span<std::byte> into) {
    return reader_.read_some(into);
  }
  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> into) { return reader_.read(into); }
  [[nodiscard]] Result<std::size_t> try_read_some(std::span<std::byte> into) {
    return reader_.try_read_some(into);
  }
  [[nodiscard]] Result<std::size_t> write_some(std::span<const std::byte> from) {
    return writer_.write_some(from);
  }
  [[nodiscard]] Result<> write(std::span<const std::byte> from) { return writer_.write(from); }
  [[nodiscard]] Result<std::size_t> try_write_some(std::span<const std::byte> from) {
    return writer_.try_write_some(from);
  }
  [[nodiscard]] Result<std::span<const std::byte>> peek() { return reader_.peek(); }
  [[nodiscard]] Result<> consume(std::size_t bytes) { return reader_.consume(bytes); }
  [[nodiscard]] Result<std::span<std::byte>> prepare() { return writer_.prepare(); }
  [[nodiscard]] Result<> commit(std::size_t bytes) { return writer_.commit(bytes); }
  [[nodiscard]] Result<> flush() { return writer_.flush(); }
  [[nodiscard]] Result<> shutdown(direction /*which*/ = direction::write) {
    return writer_.shutdown();
  }
  void set_read_timeout(stream_timeout timeout) { reader_.set_read_timeout(timeout); }
  void set_write_timeout(stream_timeout timeout) { writer_.set_write_timeout(timeout); }
  [[nodiscard]] int read_fd() const { return reader_.read_fd(); }
  [[nodiscard]] int write_fd() const { return writer_.write_fd(); }
  [[nodiscard]] stream_counters counters() const { return reader_.counters(); }
  /// @}

  /// Whether it is between messages, as far as this end knows, without waiting: it has not failed,
  /// neither direction was shut down, and nothing that came is unread. Otherwise the failure;
  /// `broken_pipe`; `device_or_resource_busy` where there are bytes to read. Those who keep
  /// connected streams ask before they use one again.
  [[nodiscard]] Result<> check_idle();
  /// Asks the peer's device for a sign of life and waits for it: what a peer that died without a
  /// word does not give. `timed_out` where none came; the stream has failed with it then.
  [[nodiscard]] Result<> probe(std::chrono::milliseconds at_most);

  /// Shuts down, throws away what the peer still writes, and waits until both directions have
  /// ended. Success: all that was written has arrived, and the peer has ended its direction.
  /// `timed_out` where that took longer. The stream is closed in any case, and lingers no more.
  [[nodiscard]] Result<> close(std::chrono::milliseconds at_most = std::chrono::seconds(5));

  /// For two threads, or two owners.
  [[nodiscard]] std::pair<read_half, write_half> split() &&;

  /// No address where it was not connected by one, or is closed.
  [[nodiscard]] cm::socket_address local_addr() const;
  [[nodiscard]] cm::socket_address peer_addr() const;  ///< of the other end; likewise
  /// "stream of queue pair 0x11 (RTS): 10 bytes sent, 20 received", for people.
  [[nodiscard]] std::string describe() const;

 private:
  friend class stream_builder;
  friend class stream_connecting;
  friend class listener;
  explicit stream(const std::shared_ptr<streams::connection>& connection)
      : reader_(connection), writer_(connection) {}
  read_half reader_;
  write_half writer_;
};

/// How a stream is connected.
struct stream_connect_options {
  /// Ours, its port mostly 0: the device that has it is used. Without one it is where the route
  /// goes.
  std::optional<cm::socket_address> from{};
  /// For the address, for the route, and for the peer's answer, each.
  std::chrono::milliseconds timeout{std::chrono::seconds(30)};
  std::stop_token stop{};  ///< `operation_canceled` when it was asked to stop
};

/// A stream that is being connected, without a call that waits. Destroyed before it is there, it
/// leaves nothing.
///
/// Threads: one at a time.
class stream_connecting {
 public:
  stream_connecting(stream_connecting&&) noexcept;
  stream_connecting& operator=(stream_connecting&&) noexcept;
  ~stream_connecting();

  /// Readable when `try_finish` may have something to do. It stays this object's.
  [[nodiscard]] int fd() const;
  /// The stream; `would_block` until the peer has answered. After anything else this is empty.
  [[nodiscard]] Result<stream> try_finish();

 private:
  friend class stream_builder;
  explicit stream_connecting(std::unique_ptr<streams::connecting> state) noexcept;
  std::unique_ptr<streams::connecting> state_;
};

/// What a stream runs on. The queue is for its queue pair alone, and sends events to the channel.
struct stream_parts {
  completion_channel channel;  ///< has the events of `cq`
  completion_queue cq;         ///< where all of `qp` completes
  queue_pair<rc> qp;           ///< connected by the caller
};

/// Sizes and times, then a stream:
/// `stream_builder{}.buffer_size(128_KiB).receives(32).start(std::move(parts), pd)`.
class stream_builder {
 public:
  /// With the sizes of `stream_options` as they are.
  stream_builder() = default;
  /// As if each of them had been set.
  explicit stream_builder(const stream_options& options) : options_(options) {}

  /// @{
  /// Each sets the field of `stream_options` of its name.
  stream_builder& transport(stream_transport how) { return set(options_.transport, how); }
  stream_builder& buffer_size(std::size_t bytes) { return set(options_.buffer_size, bytes); }
  stream_builder& receives(std::size_t count) { return set(options_.receives, count); }
  stream_builder& sends(std::size_t count) { return set(options_.sends, count); }
  stream_builder& send_buffer(std::size_t bytes) { return set(options_.send_buffer, bytes); }
  stream_builder& direct_writes(bool wanted) { return set(options_.direct_writes, wanted); }
  stream_builder& keep_alive(std::chrono::milliseconds every) {
    return set(options_.keep_alive, every);
  }
  stream_builder& linger(std::chrono::milliseconds at_most) {
    return set(options_.linger, at_most);
  }
  stream_builder& spin(std::chrono::microseconds time) { return set(options_.spin, time); }
  /// @}

  /// What was set so far.
  [[nodiscard]] const stream_options& options() const { return options_; }

  /// To a listener, by the rdma_cm; a name is not looked up. Its device is where the route goes.
  /// `at_most`: for the address, for the route, and for the peer's answer, each.
  /// `connection_refused` where nobody listens; `timed_out`; `host_unreachable`.
  [[nodiscard]] Result<stream> connect(
      const cm::socket_address& peer,
      std::chrono::milliseconds at_most = std::chrono::seconds(30)) const {
    return connect(peer, stream_connect_options{.timeout = at_most});
  }
  /// The same, from an address of ours, and until it is asked to stop.
  [[nodiscard]] Result<stream> connect(const cm::socket_address& peer,
                                       const stream_connect_options& how) const;
  /// "192.168.1.7:4791", "[fe80::1%eth0]:4791".
  [[nodiscard]] Result<stream> connect(
      std::string_view peer, std::chrono::milliseconds at_most = std::chrono::seconds(30)) const;

  /// The same without waiting. `at_most`: for the address and for the route, each; the peer's
  /// answer may take as long as the caller goes on asking.
  [[nodiscard]] Result<stream_connecting> start_connect(
      const cm::socket_address& peer,
      std::chrono::milliseconds at_most = std::chrono::seconds(30)) const;

  /// How much a queue pair of such a stream holds.
  [[nodiscard]] qp_caps caps() const;
  /// How many completions its completion queue holds.
  [[nodiscard]] std::size_t cq_depth() const;

  /// Queues of these sizes; `parts.qp` is then to be connected, by its endpoints or otherwise,
  /// with the right of remote writes.
  [[nodiscard]] Result<stream_parts> make_parts(const context& ctx,
                                                const protection_domain& pd) const;
  /// A stream over a connected queue pair, which has nothing posted. The peer does the same, with
  /// sizes of its own. `invalid_argument` names an option or a part that does not fit.
  [[nodiscard]] Result<stream> start(stream_parts parts, const protection_domain& pd) const;

 private:
  template <typename T>
  stream_builder& set(T& option, T value) {
    option = value;
    return *this;
  }
  stream_options options_;
};

inline Result<stream> stream::connect(const cm::socket_address& peer) {
  return stream_builder().connect(peer);
}
inline Result<stream> stream::connect(std::string_view peer) {
  return stream_builder().connect(peer);
}

}  // namespace verbena::verbs
