// SPDX-License-Identifier: Apache-2.0
//
// Two programs send each other much at the same time, over one stream, and each looks by a checksum
// whether all of the other's has come as it was.
#include <fmt/format.h>
#include <isa-l/crc64.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <thread>
#include <vector>

#include "api/stream_load.h"
#include "verbena/stream_listener.h"

namespace verbena::api {
namespace {

using verbs::fail;
using verbs::Result;
using verbs::stream;

constexpr std::size_t kPiece = std::size_t{256} << 10;

struct Options {
  Meeting meeting{};
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::uint64_t seed = 1;
  bool in_place = false;
};

/// CRC-64 of ECMA-182, by ISA-L.
class Checksum {
 public:
  using Bytes = std::array<std::byte, sizeof(std::uint64_t)>;
  void add(std::span<const std::byte> bytes) {
    value_ =
        crc64_ecma_refl(value_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  [[nodiscard]] Bytes bytes() const {
    Bytes to{};
    for (std::size_t i = 0; i < to.size(); ++i) to.at(i) = static_cast<std::byte>(value_ >> 8 * i);
    return to;
  }

 private:
  std::uint64_t value_ = 0;
};

/// A line on the terminal, twice a second; nowhere else.
class Progress {
 public:
  explicit Progress(std::uint64_t all) : all_(all), shown_(::isatty(STDERR_FILENO) != 0) {}
  void at(std::uint64_t done) {
    if (!shown_ || (done != all_ && watch_.seconds() < next_)) return;
    next_ = watch_.seconds() + 0.5;
    fmt::print(stderr, "\r{:3} %{}", all_ == 0 ? 100 : done * 100 / all_, done == all_ ? "\n" : "");
  }

 private:
  std::uint64_t all_;
  bool shown_;
  Stopwatch watch_;
  double next_ = 0;
};

/// All bytes, in pieces of all sizes, and their checksum.
Result<> write_all(stream& to, const Options& wanted) {
  Pattern pattern(wanted.seed + (wanted.meeting.is_server() ? 1 : 0));
  Checksum sum;
  std::vector<std::byte> room(kPiece);
  for (std::uint64_t done = 0; done < wanted.bytes;) {
    std::span<std::byte> piece = room;
    if (wanted.in_place) piece = VERBENA_TRY(to.prepare());
    const std::uint64_t most = std::min<std::uint64_t>(piece.size(), wanted.bytes - done);
    piece = piece.first(1 + pattern.next() % most);
    pattern.fill(piece);
    sum.add(piece);
    VERBENA_TRY(wanted.in_place ? to.commit(piece.size()) : to.write(piece));
    done += piece.size();
  }
  VERBENA_TRY(to.write(sum.bytes()));
  return to.shutdown();
}

Result<> read_all(stream& from, const Options& wanted) {
  Checksum sum;
  Progress progress(wanted.bytes);
  std::vector<std::byte> room(kPiece);
  for (std::uint64_t done = 0; done < wanted.bytes;) {
    const std::uint64_t left = wanted.bytes - done;
    std::span<const std::byte> piece = room;
    if (wanted.in_place) {
      piece = VERBENA_TRY(from.peek());
      piece = piece.first(std::min<std::uint64_t>(piece.size(), left));
    } else {
      const auto into = std::span(room).first(std::min<std::uint64_t>(kPiece, left));
      piece = piece.first(VERBENA_TRY(from.read_some(into)));
    }
    if (piece.empty())
      return fail(std::errc::connection_aborted, "stream_transfer",
                  fmt::format("{} of {} bytes came", done, wanted.bytes));
    sum.add(piece);
    done += piece.size();
    if (wanted.in_place) VERBENA_TRY(from.consume(piece.size()));
    progress.at(done);
  }
  Checksum::Bytes told{};
  if (VERBENA_TRY(from.read(told)) != told.size() || told != sum.bytes())
    return fail(std::errc::illegal_byte_sequence, "stream_transfer", "the checksums differ");
  if (VERBENA_TRY(from.read_some(told)) != 0)
    return fail(std::errc::illegal_byte_sequence, "stream_transfer", "more came than was written");
  return {};
}

Result<stream> meet(const Meeting& where) {
  const auto sizes = verbs::stream_builder().transport(where.transport);
  if (!where.is_server()) return sizes.connect(where.place());
  auto at = VERBENA_TRY(verbs::listener::bind(where.place(), sizes));
  return at.accept();
}

Result<> run(const Options& wanted) {
  stream peer = VERBENA_TRY(meet(wanted.meeting));
  const Stopwatch watch;
  Result<> written;
  Result<> read;
  {
    const std::jthread writing([&] { written = write_all(peer, wanted); });
    read = read_all(peer, wanted);
  }
  VERBENA_TRY(written);
  VERBENA_TRY(read);
  const double seconds = watch.seconds();
  const std::string took = watch.text();
  const verbs::stream_counters counters = peer.counters();
  VERBENA_TRY(peer.close());
  fmt::print("{} bytes each way at once in {}, {:.0f} MB/s each; the checksums are right\n",
             wanted.bytes, took, static_cast<double>(wanted.bytes) / 1e6 / seconds);
  fmt::print("{} messages sent, {} received; {} frames sent; {} stalls\n", counters.messages_sent,
             counters.messages_received, counters.frames_sent, counters.stalls);
  return {};
}

}  // namespace
}  // namespace verbena::api

int main(int argc, char** argv) {
  CLI::App app("Sends much over a stream, both ways at once, with checksums.");
  verbena::api::Options wanted;
  wanted.meeting.add_to(app);
  app.add_option("-b,--bytes", wanted.bytes, "Bytes each way; both ends say the same")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--seed", wanted.seed, "What decides the bytes")->capture_default_str();
  app.add_flag("--in-place", wanted.in_place, "By prepare, commit, peek and consume: no copies");
  CLI11_PARSE(app, argc, argv);
  return verbena::api::finish("stream_transfer", verbena::api::run(wanted));
}
