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

#include "verbena/stream.h"
#include "verbs/stream/core.h"
#include "verbs/stream/descriptor.h"

namespace verbena::verbs::streams {

/// What has brought a connection about and hears of its end: rdma_cm, or nothing.
class Origin {
 public:
  virtual ~Origin() = default;
  /// Readable when there is something to hear; -1 where there never is.
  [[nodiscard]] virtual int fd() const = 0;
  /// Takes it, without waiting: an error when the connection is over.
  [[nodiscard]] virtual Result<> check() = 0;
  /// The connection is not needed any more.
  virtual void disconnect() = 0;
};

/// A core on a queue pair.
///
/// There is no thread of its own. Of the threads that wait, one sleeps on the descriptors and
/// serves the queues for all (`driving_`); the others wait until it tells them to look again, and
/// the next one takes over when it leaves. One lock guards it all, but not the copying of bytes.
class Connection {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Connection>> make(const stream_options& options,
                                                                stream_parts parts,
                                                                const protection_domain& pd,
                                                                std::unique_ptr<Origin> origin);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  enum class Wait : bool { kNo, kYes };
  [[nodiscard]] Result<std::size_t> read_some(std::span<std::byte> into, Wait wait);
  [[nodiscard]] Result<std::size_t> write_some(std::span<const std::byte> from, Wait wait);
  [[nodiscard]] Result<> flush();
  [[nodiscard]] Result<> shutdown();
  [[nodiscard]] Result<> close(std::chrono::milliseconds at_most);

  [[nodiscard]] int read_fd() { return fd_of(reader_); }
  [[nodiscard]] int write_fd() { return fd_of(writer_); }
  void set_read_timeout(stream_timeout timeout);
  void set_write_timeout(stream_timeout timeout);
  [[nodiscard]] stream_counters counters() const;
  [[nodiscard]] std::string describe() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Deadline = std::optional<Clock::time_point>;
  using Lock = std::unique_lock<std::mutex>;
  using Ready = std::function<bool()>;
  struct Regions {
    memory_region send;
    memory_region slots;
    std::optional<memory_region> ring;
  };
  /// One direction's user.
  struct Side {
    std::mutex one_at_a_time;
    stream_timeout timeout;
    bool parked = false;  ///< was told would_block, and waits for its descriptor
    Flag ready;
    Descriptor fd;
  };

  Connection(const stream_options& options, stream_parts parts, Regions regions,
             std::unique_ptr<Origin> origin, Flag wake, Flag read_ready, Flag write_ready);

  [[nodiscard]] static Memory memory_of(const Regions& regions);

  // With the lock, all of them. connection_wait.cc has how threads wait.
  bool pump();
  bool poll_completions();
  void handle(const work_completion& completion);
  void post();
  void post_receives();
  void post_sends();
  void fail_with(const Error& error);
  void check_origin();
  void after_progress();
  [[nodiscard]] bool arm();
  void take_events();
  void drive(Lock& lock, Clock::time_point now, Deadline deadline);
  [[nodiscard]] Result<> wait(Lock& lock, Deadline deadline, const char* verb, const Ready& ready);
  [[nodiscard]] Result<> look(Side& side, const Ready& ready);
  void serve_parked();
  [[nodiscard]] bool has_to_read() const { return !is_pending(core_.front()); }
  [[nodiscard]] bool has_room() { return !is_pending(core_.room()); }
  template <typename T>
  [[nodiscard]] static bool is_pending(const Result<T>& result) {
    return !result && result.error().would_block();
  }
  [[nodiscard]] int fd_of(Side& side);
  [[nodiscard]] static Deadline deadline_of(stream_timeout timeout);
  [[nodiscard]] static send_request<rc> request_of(const Transmit& transmit,
                                                   std::span<const mr_slice> from, posting how);
  [[nodiscard]] static mr_slice part_of(const memory_region& region,
                                        std::span<const std::byte> part);

  const stream_options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // The queue pair goes first, then what it uses, then what it came from.
  std::unique_ptr<Origin> origin_;
  completion_channel channel_;
  completion_queue cq_;
  Regions regions_;
  queue_pair<rc> qp_;
  Core core_;
  Flag wake_;  ///< of the thread that sleeps
  Side reader_;
  Side writer_;
  bool driving_ = false;
  bool asleep_ = false;
  std::size_t waiting_ = 0;     ///< threads behind the one that drives
  bool armed_ = false;          ///< an event will come, or is on the channel
  std::uint64_t progress_ = 0;  ///< grows with whatever has come
  bool broken_ = false;         ///< the queue pair was told of a failure
};

}  // namespace verbena::verbs::streams
