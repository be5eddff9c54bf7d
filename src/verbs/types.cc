// SPDX-License-Identifier: Apache-2.0
#include "verbena/types.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>

namespace verbena::verbs {
namespace {

constexpr std::uint32_t kPsnMask = 0xffffff;

/// In units of 10 us, by the code (IBA table 45); code 0 is the longest.
constexpr std::array<std::uint32_t, 32> kRnrTimes{
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

constexpr std::size_t kMappedAt = 12;  // where an IPv4 address stands in an IPv6 one
constexpr std::array<std::uint8_t, kMappedAt> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

std::string_view name_of(qp_state state) noexcept {
  switch (state) {
    case qp_state::reset: return "RESET";
    case qp_state::init: return "INIT";
    case qp_state::rtr: return "RTR";
    case qp_state::rts: return "RTS";
    case qp_state::sqd: return "SQD";
    case qp_state::sqe: return "SQE";
    case qp_state::err: return "ERR";
    case qp_state::unknown: break;
  }
  return "unknown";
}

std::string_view name_of(gid_kind kind) noexcept {
  switch (kind) {
    case gid_kind::infiniband: return "IB";
    case gid_kind::roce_v1: return "RoCE v1";
    case gid_kind::roce_v2: return "RoCE v2";
  }
  return "unknown";
}

Result<psn> random_psn() {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value)
    return detail::fail_with(errno, "getrandom");
  return psn(value & kPsnMask);
}

rnr_timer rnr_timer::from(std::chrono::nanoseconds time) noexcept {
  for (unsigned number = 1; number < kRnrTimes.size(); ++number) {
    const rnr_timer timer(static_cast<std::uint8_t>(number));
    if (timer.time() >= time) return timer;
  }
  return rnr_timer(0);
}

std::chrono::nanoseconds rnr_timer::time() const noexcept {
  return std::chrono::microseconds(10) * kRnrTimes.at(code_);
}

gid::gid(const ibv_gid& from) noexcept { std::ranges::copy(from.raw, raw_.begin()); }

ibv_gid gid::native() const noexcept {
  ibv_gid to{};
  std::ranges::copy(raw_, to.raw);
  return to;
}

Result<gid> gid::from_string(std::string_view text) {
  const std::string whole(text);
  std::array<std::uint8_t, 16> raw{};
  if (whole.contains('\0'))
    return fail(std::errc::invalid_argument, "gid::from_string", "a zero byte is in the address");
  if (inet_pton(AF_INET6, whole.c_str(), raw.data()) == 1) return gid(raw);
  std::ranges::copy(kMapped, raw.begin());
  if (inet_pton(AF_INET, whole.c_str(), raw.data() + kMappedAt) == 1) return gid(raw);
  return fail(std::errc::invalid_argument, "gid::from_string",
              '"' + whole + "\" is neither an IPv6 nor an IPv4 address");
}

bool gid::is_ipv4() const noexcept {
  return std::equal(kMapped.begin(), kMapped.end(), raw_.begin());
}
bool gid::is_link_local() const noexcept {
  if (is_ipv4()) return raw_[kMappedAt] == 169 && raw_[kMappedAt + 1] == 254;
  return raw_[0] == 0xfe && (raw_[1] & 0xc0) == 0x80;
}
bool gid::is_multicast() const noexcept {
  return is_ipv4() ? (raw_[kMappedAt] & 0xf0) == 0xe0 : raw_[0] == 0xff;
}
bool gid::is_loopback() const noexcept {
  if (is_ipv4()) return raw_[kMappedAt] == 127;
  std::array<std::uint8_t, 16> one{};
  one.back() = 1;
  return raw_ == one;
}

std::string gid::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv4())
    inet_ntop(AF_INET, raw_.data() + kMappedAt, text.data(), text.size());
  else
    inet_ntop(AF_INET6, raw_.data(), text.data(), text.size());
  return text.data();
}

bool gid::is_in(const gid& prefix, unsigned bits) const noexcept {
  const unsigned whole = std::min(bits, 128U) / 8;
  if (!std::equal(raw_.begin(), raw_.begin() + whole, prefix.raw_.begin())) return false;
  const unsigned rest = std::min(bits, 128U) % 8;
  if (rest == 0) return true;
  const auto differ = static_cast<unsigned>(raw_.at(whole) ^ prefix.raw_.at(whole));
  return differ >> (8 - rest) == 0;
}

}  // namespace verbena::verbs
