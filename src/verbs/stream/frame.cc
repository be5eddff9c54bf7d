// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verbs/bytes.h"

namespace verbena::verbs::streams {
namespace {

enum Kind : std::uint8_t { kHello = 1, kCredit = 2, kFin = 3, kBye = 4, kLeave = 5 };
constexpr std::size_t kHelloSize = 16 + remote_region::wire_size;
constexpr std::size_t kCreditSize = 24;
constexpr std::size_t kBareSize = 8;
constexpr std::uint64_t kMaxRing = std::uint64_t{1} << 40;

std::size_t put(const Hello& hello, std::span<std::byte> to) {
  Writer(to)
      .u8(kHello)
      .u8(static_cast<std::uint8_t>(hello.transport))
      .u16(kVersion)
      .u32(kMagic)
      .u32(hello.receives)
      .u32(hello.buffer_size);
  std::ranges::copy(hello.ring.to_bytes(), to.begin() + 16);
  return kHelloSize;
}
std::size_t put(const Credit& credit, std::span<std::byte> to) {
  Writer(to).u64(std::uint64_t{kCredit} << 56).u64(credit.messages).u64(credit.bytes);
  return kCreditSize;
}
std::size_t put(const Fin& /*frame*/, std::span<std::byte> to) {
  Writer(to).u64(std::uint64_t{kFin} << 56);
  return kBareSize;
}
std::size_t put(const Bye& /*frame*/, std::span<std::byte> to) {
  Writer(to).u64(std::uint64_t{kBye} << 56);
  return kBareSize;
}
std::size_t put(const Leave& /*frame*/, std::span<std::byte> to) {
  Writer(to).u64(std::uint64_t{kLeave} << 56);
  return kBareSize;
}

Result<> check_ring(const Hello& hello) {
  if (hello.transport == stream_transport::messages) {
    if (hello.ring == remote_region()) return {};
    return protocol_error("a ring with a transport of messages");
  }
  if (hello.ring.size() < stream_options::min_buffer || hello.ring.size() > kMaxRing)
    return protocol_error(fmt::format("a ring of {} bytes", hello.ring.size()));
  return {};
}

Result<Frame> parse_hello(std::span<const std::byte> from) {
  if (from.size() != kHelloSize)
    return protocol_error(fmt::format("a hello of {} bytes", from.size()));
  Reader reader(from);
  reader.u8();
  const std::uint8_t transport = reader.u8();
  const std::uint16_t version = reader.u16();
  if (const std::uint32_t magic = reader.u32(); magic != kMagic)
    return protocol_error(fmt::format("{:#x} where a stream has {:#x}", magic, kMagic));
  if (version != kVersion)
    return protocol_error(fmt::format("version {}; this end has {}", version, kVersion));
  if (transport != std::to_underlying(stream_transport::messages) &&
      transport != std::to_underlying(stream_transport::ring))
    return protocol_error(fmt::format("transport {}", transport));
  Hello hello{.transport = static_cast<stream_transport>(transport),
              .receives = reader.u32(),
              .buffer_size = reader.u32(),
              .ring = {}};
  if (hello.receives == 0 || hello.receives > stream_options::max_receives)
    return protocol_error(fmt::format("{} receives", hello.receives));
  if (hello.buffer_size < stream_options::min_buffer ||
      hello.buffer_size > stream_options::max_buffer)
    return protocol_error(fmt::format("buffers of {} bytes", hello.buffer_size));
  const auto ring = remote_region::from_bytes(from.subspan(16));
  if (!ring) return protocol_error("a ring that ends behind the last address");
  hello.ring = *ring;
  VERBENA_TRY(check_ring(hello));
  return hello;
}

}  // namespace

std::unexpected<Error> protocol_error(std::string what) {
  return fail(std::errc::protocol_error, "stream", "the peer has sent " + std::move(what));
}

std::size_t write_frame(const Frame& frame, std::span<std::byte, kMaxFrame> to) {
  return std::visit([to](const auto& one) { return put(one, to); }, frame);
}

Result<DataImmediate> parse_immediate(std::uint32_t value) {
  const DataImmediate immediate{.before = static_cast<std::uint8_t>(value >> 24),
                                .padding = static_cast<std::uint8_t>(value >> 16),
                                .released = static_cast<std::uint16_t>(value)};
  if (immediate.before != 0 || immediate.padding == 0 || immediate.padding == kPadding)
    return immediate;
  return protocol_error(fmt::format("immediate {:#x}", value));
}

Result<Frame> parse_frame(std::span<const std::byte> from) {
  if (from.size() < kBareSize)
    return protocol_error(fmt::format("a frame of {} bytes", from.size()));
  const auto kind = static_cast<std::uint8_t>(from.front());
  if (kind == kHello) return parse_hello(from);
  Reader reader(from);
  if ((reader.u64() & (~std::uint64_t{0} >> 8)) != 0)
    return protocol_error(fmt::format("a frame of kind {} without its zeros", kind));
  if (kind == kCredit && from.size() == kCreditSize) {
    const std::uint64_t messages = reader.u64();
    return Credit{.messages = messages, .bytes = reader.u64()};
  }
  if (kind == kFin && from.size() == kBareSize) return Fin{};
  if (kind == kBye && from.size() == kBareSize) return Bye{};
  if (kind == kLeave && from.size() == kBareSize) return Leave{};
  return protocol_error(fmt::format("a frame of kind {} and {} bytes", kind, from.size()));
}

}  // namespace verbena::verbs::streams
