// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <utility>
#include <vector>

#include "bench/streams/ends.h"
#include "bench/support/figure.h"

namespace verbena::bench {
namespace {

using Bytes = std::vector<std::byte>;

void write_message(verbs::stream& to, const Bytes& message, bool in_place) {
  if (!in_place) return must(to.write(message));
  for (std::size_t left = message.size(); left != 0;) {
    const std::size_t room = must(to.prepare()).size();
    const std::size_t part = room < left ? room : left;
    must(to.commit(part));
    left -= part;
  }
}

/// Returns how many bytes were there; 0 at the end.
std::size_t read_message(verbs::stream& from, Bytes& into, bool in_place) {
  if (!in_place) return must(from.read_some(into));
  const std::size_t arrived = must(from.peek()).size();
  must(from.consume(arrived));
  return arrived;
}

void read_all(verbs::stream& from, Bytes& into, bool in_place) {
  while (read_message(from, into, in_place) != 0) continue;
}

}  // namespace

void stream_throughput(const Streams& wanted) {
  const bool in_place = wanted.copying == "in-place";
  verbs::stream stream = connect_ends(wanted);
  Bytes message(wanted.bytes);
  if (wanted.serve) {
    read_all(stream, message, in_place);
    return must(stream.close());
  }
  std::size_t messages = 0;
  const auto begin = Clock::now();
  do {
    write_message(stream, message, in_place);
    ++messages;
  } while (seconds_since(begin) < wanted.seconds);
  must(stream.close());  // the peer has read all
  print_figure(static_cast<double>(messages) * wanted.bytes / seconds_since(begin) / 1e9, "GB/s");
}

void stream_latency(const Streams& wanted) {
  verbs::stream stream = connect_ends(wanted);
  Bytes message(wanted.bytes);
  if (wanted.serve) {
    while (must(stream.read(message)) == message.size()) must(stream.write(message));
    return must(stream.close());
  }
  std::vector<double> microseconds;
  microseconds.reserve(1 << 20);
  const auto begin = Clock::now();
  for (double elapsed = 0; elapsed < wanted.seconds;) {
    const auto start = Clock::now();
    must(stream.write(message));
    (void)must(stream.read(message));
    const auto now = Clock::now();
    elapsed = std::chrono::duration<double>(now - begin).count();
    if (elapsed > wanted.seconds / 10)  // until then it warms up
      microseconds.push_back(std::chrono::duration<double, std::micro>(now - start).count() / 2);
  }
  must(stream.close());
  print_latencies(microseconds);
}

}  // namespace verbena::bench
