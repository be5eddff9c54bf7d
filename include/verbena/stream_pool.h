// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "verbena/stream_connector.h"

namespace verbena::verbs {

/// How many streams a pool has, and for how long.
struct stream_pool_options {
  std::size_t max_open = 64;  ///< streams, leased and idle, to all peers: idle ones make room
  std::size_t max_open_per_peer = 16;  ///< leased
  /// Of more than so many the one that was idle for longest goes.
  std::size_t max_idle_per_peer = 8;
  /// One that nobody has leased for so long goes. 0: never.
  std::chrono::milliseconds idle_timeout{60'000};
  /// One that was opened so long ago is not used again. 0: however long ago.
  std::chrono::milliseconds max_age{0};
  /// One that was idle for so long is asked for a sign of life before it is leased, which takes a
  /// round trip. A peer that died without a word is not known by less. 0: none is asked.
  std::chrono::milliseconds probe_after{1000};
  /// How long the sign may take, whatever a call has left: positive.
  std::chrono::milliseconds probe_timeout{1000};
  stream_builder sizes{};        ///< what its streams are made with
  reconnect_policy reconnect{};  ///< of each peer by itself
};

/// What a pool has done, and what it has now.
struct stream_pool_counters {
  std::uint64_t opened = 0;     ///< streams that were connected
  std::uint64_t reused = 0;     ///< leases of one that was there
  std::uint64_t failed = 0;     ///< calls that waited and gave no stream
  std::uint64_t discarded = 0;  ///< streams that were not good any more, or given up by `discard`
  std::uint64_t expired = 0;    ///< streams that were idle for too long, too old, or too many
  std::size_t leased = 0;       ///< and those that are being connected
  std::size_t idle = 0;         ///< streams that wait for a lease
  std::size_t waiting = 0;      ///< calls that wait for another's stream to come back
};

/// Whose stream is wanted, and for how long a call waits for one.
struct acquire_options {
  std::size_t peer = 0;      ///< its number among those that the pool was made for
  stream_timeout at_most{};  ///< for a place, and then for a connection
  std::stop_token stop{};    ///< ends the call: `operation_canceled`
};

namespace streams {
class pool_core;
}  // namespace streams

/// A stream of a pool's, for as long as this is there. Then it goes back, if it is between messages
/// (`stream::check_idle`): a program that gives one back in the middle of an exchange must
/// `discard` it. One that has failed, that has ended in a direction, or whose bytes were not read
/// is dropped, as is one that was moved out; the next `acquire` has another.
///
/// A moved-from lease's stream reports `bad_file_descriptor`. It may outlive its pool.
///
/// Threads: as the stream's.
class stream_lease {
 public:
  stream_lease(stream_lease&&) noexcept = default;
  stream_lease& operator=(stream_lease&& from) noexcept;
  ~stream_lease();

  /// The stream, as long as the lease.
  [[nodiscard]] stream& operator*() noexcept { return stream_; }
  /// Likewise; never null.
  [[nodiscard]] stream* operator->() noexcept { return &stream_; }
  /// Whether it is a pool's: not of one that was moved from or discarded.
  [[nodiscard]] explicit operator bool() const noexcept { return pool_ != nullptr; }
  /// Drops the stream whatever its state, as the stream's destructor does, and gives its place to
  /// the next.
  void discard();

 private:
  friend class streams::pool_core;
  stream_lease(std::shared_ptr<streams::pool_core> pool, std::size_t peer, stream one,
               retry_environment::time_point opened)
      : pool_(std::move(pool)), peer_(peer), stream_(std::move(one)), opened_(opened) {}
  void end(bool is_good);

  std::shared_ptr<streams::pool_core> pool_;
  std::size_t peer_;
  stream stream_;
  retry_environment::time_point opened_;
};

/// Connected streams to one peer or several, leased one at a time. `acquire` gives one that is idle
/// and healthy, or connects: by the first path that may be tried, and again after a while where
/// none leads to the peer, as the `reconnect_policy` says.
///
/// Where all are leased, calls wait, and get a place in the order in which they came: a call is
/// passed over only while its peer has `max_open_per_peer`. There is no thread of the pool's own:
/// streams that have expired go when something is leased or comes back, or with `trim`.
///
/// Threads: any, but moving and destroying it.
class stream_pool {
 public:
  /// Nothing is connected yet. `invalid_argument` says what does not fit.
  [[nodiscard]] static Result<stream_pool> create(stream_endpoint peer,
                                                  const stream_pool_options& options = {});
  /// The peers are numbered as they stand there.
  [[nodiscard]] static Result<stream_pool> create(std::vector<stream_endpoint> peers,
                                                  const stream_pool_options& options = {});
  stream_pool(stream_pool&&) noexcept = default;
  stream_pool& operator=(stream_pool&& from) noexcept;
  /// Closes it.
  ~stream_pool();

  /// `timed_out`, with what was waited for; `operation_canceled` when it was asked to stop;
  /// `bad_file_descriptor` when the pool is closed, before or meanwhile; or why no path leads to
  /// the peer, each with its address.
  [[nodiscard]] Result<stream_lease> acquire(const acquire_options& how = {}) const;
  /// Of the first peer.
  [[nodiscard]] Result<stream_lease> acquire(std::chrono::milliseconds at_most) const {
    return acquire(acquire_options{.at_most = at_most});
  }
  /// Without waiting: one that is idle, and has not been for `probe_after`. `would_block` where
  /// there is none, or its place is another's: connecting takes a wait.
  [[nodiscard]] Result<stream_lease> try_acquire(std::size_t peer = 0) const;

  /// Drops what has expired, for programs with a timer.
  void trim() const;
  /// Drops all that is idle. Calls that wait end, as later ones do; streams that are leased go when
  /// they come back. Once more is no error.
  void close() const;

  /// All of one moment.
  [[nodiscard]] stream_pool_counters counters() const;
  /// How the ways to a peer do; empty where there is no such peer.
  [[nodiscard]] std::vector<stream_path_state> paths(std::size_t peer = 0) const;

 private:
  explicit stream_pool(std::shared_ptr<streams::pool_core> core) : core_(std::move(core)) {}
  std::shared_ptr<streams::pool_core> core_;
};

}  // namespace verbena::verbs
