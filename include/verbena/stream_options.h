// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace verbena::verbs {

inline namespace literals {
/// `128_KiB`
[[nodiscard]] constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }
/// `4_MiB`.
[[nodiscard]] constexpr std::size_t operator""_MiB(unsigned long long n) { return n << 20; }
}  // namespace literals

/// How an end of a stream receives. Each end tells the other in its first message, and each
/// direction follows its receiver: the two may differ.
enum class stream_transport : std::uint8_t {
  messages = 1,  ///< SENDs into the receives of this end: one for each message, whatever its size
  ring = 2,      ///< RDMA WRITEs into a ring of this end's memory, told of by an immediate
};

/// Sizes and times of one end.
struct stream_options {
  static constexpr std::size_t min_buffer = 64;  ///< bytes; the peer's is not smaller either
  static constexpr std::size_t max_buffer = std::size_t{1} << 30;    ///< bytes
  static constexpr std::size_t max_receives = std::size_t{1} << 14;  ///< also of `sends`

  stream_transport transport = stream_transport::messages;  ///< of this end's receiving
  /// Bytes of the largest message received; into a ring, of `receives` times as many bytes, a
  /// quarter of it may go as one. As it is, a message, be it with an immediate, is two whole trains
  /// of packets as a software NIC sends them, whatever the path MTU.
  std::size_t buffer_size = std::size_t{120} * 1024 - 4;
  std::size_t receives = 32;  ///< messages that the peer may send before this end has read one
  std::size_t sends = 32;     ///< messages of this end under way
  /// Bytes of this end under way. Together with what the peer has it fits into a processor's cache,
  /// and messages of powers of two, up to 256 KiB, fill it without one that is cut at its end.
  std::size_t send_buffer = 768_KiB;
  /// A `write` of more than the send buffer, without a time-out, is sent from where its bytes lie,
  /// but for the last quarter of a buffer, which is copied: where the device brings pages when they
  /// are needed (on-demand paging). The call then waits for the device of the peer.
  bool direct_writes = true;
  /// A peer that says nothing for so long, while somebody waits, is asked for a sign of life: one
  /// that died fails the stream. 0: never.
  std::chrono::milliseconds keep_alive{1000};
  /// How long the destructor waits for what was written to arrive. 0: it is lost.
  std::chrono::milliseconds linger{1000};
  /// How long a call that waits looks for completions, from the last one on, before it sleeps: some
  /// times what sleeping and waking take.
  std::chrono::microseconds spin{200};
  /// What time it is, for programs that live in another than the machine's. Calls that sleep need
  /// that one.
  std::chrono::steady_clock::time_point (*now)() = &std::chrono::steady_clock::now;
};

/// What has gone through an end.
struct stream_counters {
  std::uint64_t bytes_sent = 0;         ///< of the program's, taken to be sent
  std::uint64_t bytes_direct = 0;       ///< of those, sent from where they lay
  std::uint64_t bytes_received = 0;     ///< that have arrived, read or not
  std::uint64_t messages_sent = 0;      ///< that were begun to be sent
  std::uint64_t messages_received = 0;  ///< that have arrived
  std::uint64_t frames_sent = 0;        ///< of the stream itself: hello, credits, end
  std::uint64_t frames_received = 0;    ///< likewise
  std::uint64_t stalls = 0;             ///< times that data waited for the peer to read
};

}  // namespace verbena::verbs
