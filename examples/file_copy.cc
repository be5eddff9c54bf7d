// SPDX-License-Identifier: Apache-2.0
//
// Copies a file over a stream, and shows how far it is. The receiver waits for one sender.
// Try: verbena run ./file_copy --file there & verbena run ./file_copy --file here 127.0.0.1

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "examples/meeting.h"
#include "verbena/stream_listener.h"

namespace {

using namespace verbena::verbs;
using std::chrono::steady_clock;

constexpr std::size_t kPiece = std::size_t{256} * 1024;

struct Options {
  std::string host{};
  std::uint16_t port = 18515;
  std::string file{};
};

/// FNV-1a, 64 bits: enough to see that all of it came, and as it was.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value_ = (value_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// A line on the terminal, written over ten times a second.
class Progress {
 public:
  explicit Progress(std::uint64_t all) : all_(all) {}
  void at(std::uint64_t done) {
    const auto now = steady_clock::now();
    if (done != all_ && now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    const std::chrono::duration<double> took = now - start_;
    fmt::print(stderr, "\r{:3} %, {:.0f} MB/s ", all_ == 0 ? 100 : done * 100 / all_,
               static_cast<double>(done) / 1e6 / std::max(took.count(), 1e-6));
    if (done == all_) fmt::print(stderr, "\n");
  }

 private:
  std::uint64_t all_;
  steady_clock::time_point start_ = steady_clock::now();
  steady_clock::time_point last_{};
};

using Number = std::array<std::byte, 8>;
Number bytes_of(std::uint64_t value) {
  Number to{};
  for (std::size_t i = 0; i < to.size(); ++i) to.at(i) = static_cast<std::byte>(value >> 8 * i);
  return to;
}
Result<std::uint64_t> number_from(stream& from) {
  Number bytes{};
  if (VERBENA_TRY(from.read(bytes)) != bytes.size())
    return fail(std::errc::connection_aborted, "file_copy", "the peer ended too early");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |= std::to_integer<std::uint64_t>(bytes.at(i)) << 8 * i;
  return value;
}

Result<> send(const Options& wanted) {
  std::ifstream file(wanted.file, std::ios::binary | std::ios::ate);
  if (!file) return fail(std::errc::no_such_file_or_directory, "file_copy", wanted.file);
  const auto size = static_cast<std::uint64_t>(file.tellg());
  file.seekg(0);
  stream to = VERBENA_TRY(stream::connect(fmt::format("{}:{}", wanted.host, wanted.port)));
  VERBENA_TRY(to.write(bytes_of(size)));
  Checksum sum;
  Progress progress(size);
  std::vector<std::byte> piece(kPiece);
  for (std::uint64_t done = 0; done < size;) {
    const std::size_t next = std::min<std::uint64_t>(kPiece, size - done);
    file.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(next));
    if (!file) return fail(std::errc::io_error, "file_copy", wanted.file + " became shorter");
    const std::span<const std::byte> bytes = std::span(piece).first(next);
    sum.add(bytes);
    VERBENA_TRY(to.write(bytes));
    done += next;
    progress.at(done);
  }
  // The receiver says what it has; a checksum from here on the same way would only say what was
  // sent.
  VERBENA_TRY(to.shutdown());
  if (VERBENA_TRY(number_from(to)) != sum.value())
    return fail(std::errc::io_error, "file_copy", "the receiver has other bytes");
  fmt::print("sent {} bytes, and they are the same there\n", size);
  return to.close();
}

Result<> receive(const Options& wanted) {
  listener at = VERBENA_TRY(listener::bind(fmt::format("0.0.0.0:{}", wanted.port)));
  stream from = VERBENA_TRY(at.accept());
  const std::uint64_t size = VERBENA_TRY(number_from(from));
  std::ofstream file(wanted.file, std::ios::binary | std::ios::trunc);
  Checksum sum;
  Progress progress(size);
  std::vector<std::byte> piece(kPiece);
  std::uint64_t done = 0;
  for (std::size_t got = 0; (got = VERBENA_TRY(from.read_some(piece))) != 0; done += got) {
    const std::span<const std::byte> bytes = std::span(piece).first(got);
    sum.add(bytes);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(got));
    progress.at(done + got);
  }
  file.close();
  if (!file) return fail(std::errc::io_error, "file_copy", "cannot write " + wanted.file);
  if (done != size)
    return fail(std::errc::connection_aborted, "file_copy",
                fmt::format("{} of {} bytes came", done, size));
  VERBENA_TRY(from.write(bytes_of(sum.value())));
  fmt::print("received {} bytes\n", size);
  return from.close();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Copies a file over RDMA.");
  Options wanted;
  app.add_option("HOST", wanted.host, "The receiver's address; without it this is the receiver");
  app.add_option("-p,--port", wanted.port, "The rdma_cm port to meet at")->capture_default_str();
  app.add_option("-f,--file", wanted.file, "What is sent, or where what comes is written")
      ->required();
  CLI11_PARSE(app, argc, argv);
  return examples::finish(wanted.host.empty() ? receive(wanted) : send(wanted));
}
