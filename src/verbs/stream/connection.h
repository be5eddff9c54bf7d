// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "verbena/stream.h"
#include "verbs/stream/descriptor.h"
#include "verbs/stream/resources.h"

namespace verbena::verbs::streams {

/// The queue pair with what has connected it, and hears of its end: rdma_cm, or nothing.
class Origin {
 public:
  virtual ~Origin() = default;
  [[nodiscard]] virtual queue_pair<rc>& qp() = 0;
  /// Readable when there is something to hear; -1 where there never is.
  [[nodiscard]] virtual int fd() const = 0;
  /// Takes it, without waiting: an error when the connection is over.
  [[nodiscard]] virtual Result<> check() = 0;
  /// The connection is not needed any more.
  virtual void disconnect() = 0;
  [[nodiscard]] virtual cm::socket_address local_addr() const { return {}; }
  [[nodiscard]] virtual cm::socket_address peer_addr() const { return {}; }
};

/// A core on a queue pair.
///
/// There is no thread of its own. Of the threads that wait, one sleeps on the descriptors and
/// serves the queues for all (`driving_`); the others wait until it tells them to look again, and
/// the next one takes over when it leaves. One lock guards it all, but not the copying of bytes.
class connection {
 public:
  [[nodiscard]] static Result<std::shared_ptr<connection>> make(Resources resources,
                                                                std::unique_ptr<Origin> origin);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  enum class Wait : bool { kNo, kYes };
  [[nodiscard]] Result<std::size_t> read_some(std::span<std::byte> into, Wait wait);
  [[nodiscard]] Result<std::size_t> write_some(std::span<const std::byte> from, Wait wait);
  [[nodiscard]] Result<> write(std::span<const std::byte> from);
  [[nodiscard]] Result<std::span<const std::byte>> peek();
  [[nodiscard]] Result<> consume(std::size_t bytes);
  [[nodiscard]] Result<std::span<std::byte>> prepare();
  [[nodiscard]] Result<> commit(std::size_t bytes);
  [[nodiscard]] Result<> flush();
  [[nodiscard]] Result<> shutdown();
  [[nodiscard]] Result<> check_idle();
  [[nodiscard]] Result<> probe(std::chrono::milliseconds at_most);
  [[nodiscard]] Result<> close(std::chrono::milliseconds at_most);

  [[nodiscard]] int read_fd() { return fd_of(reader_); }
  [[nodiscard]] int write_fd() { return fd_of(writer_); }
  void set_read_timeout(stream_timeout timeout);
  void set_write_timeout(stream_timeout timeout);
  [[nodiscard]] stream_counters counters() const;
  [[nodiscard]] cm::socket_address local_addr() const;
  [[nodiscard]] cm::socket_address peer_addr() const;
  [[nodiscard]] std::string describe() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Deadline = std::optional<Clock::time_point>;
  using Lock = std::unique_lock<std::mutex>;
  using Ready = std::function<bool()>;
  /// One direction's user.
  struct Side {
    std::mutex one_at_a_time;
    stream_timeout timeout;
    bool parked = false;  ///< was told would_block, and waits for its descriptor
    Flag ready;
    Descriptor fd;
  };

  connection(Resources resources, std::unique_ptr<Origin> origin, Flag wake, Flag read_ready,
             Flag write_ready);
  [[nodiscard]] Core& core() { return *resources_.core; }
  [[nodiscard]] const Core& core() const { return *resources_.core; }
  [[nodiscard]] queue_pair<rc>& qp() const { return origin_->qp(); }

  // connection_direct.cc
  [[nodiscard]] std::size_t direct_part(std::size_t size);
  [[nodiscard]] Result<> write_direct(std::span<const std::byte> from);
  void finish_direct();

  // With the lock, all of them. connection_wait.cc has how threads wait.
  bool pump();
  bool poll_completions();
  void handle(const work_completion& completion);
  void handle_failed(const work_completion& completion);
  void post();
  void post_written();
  void fail_with(const Error& error);
  void check_origin();
  void after_progress();
  [[nodiscard]] bool arm();
  void take_events();
  void drive(Lock& lock, Clock::time_point now, Deadline deadline);
  [[nodiscard]] Result<> wait(Lock& lock, Deadline deadline, const char* verb, const Ready& ready);
  [[nodiscard]] Result<> look(Side& side, const Ready& ready);
  template <typename Get>
  [[nodiscard]] std::invoke_result_t<Get> await(Lock& lock, Side& side, Wait how, const char* verb,
                                                const Get& get);
  [[nodiscard]] Result<std::span<const std::byte>> await_bytes(Lock& lock, Wait how);
  [[nodiscard]] Result<std::span<std::byte>> await_room(Lock& lock, Wait how);
  [[nodiscard]] Result<std::size_t> await_direct_room(Lock& lock);
  void keep_alive();
  void serve_parked();
  [[nodiscard]] bool has_to_read() const { return !is_pending(core().front()); }
  [[nodiscard]] bool has_room() { return !is_pending(core().room()); }
  template <typename T>
  [[nodiscard]] static bool is_pending(const Result<T>& result) {
    return !result && result.error().would_block();
  }
  [[nodiscard]] int fd_of(Side& side);
  [[nodiscard]] Deadline deadline_of(stream_timeout timeout) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Resources resources_;
  std::unique_ptr<Origin> origin_;  ///< its queue pair goes before the memory that it uses
  Flag wake_;                       ///< of the thread that sleeps
  Side reader_;
  Side writer_;
  std::optional<Alarm> alarm_;  ///< for who waits with a descriptor, once one was asked for
  bool driving_ = false;
  bool asleep_ = false;
  std::size_t waiting_ = 0;     ///< threads behind the one that drives
  bool armed_ = false;          ///< an event will come, or is on the channel
  std::uint64_t progress_ = 0;  ///< grows with whatever has come
  bool broken_ = false;         ///< the queue pair was told of a failure
  bool lingers_ = true;         ///< unless `close` has waited already
};

}  // namespace verbena::verbs::streams
