// SPDX-License-Identifier: Apache-2.0
#include "wire/icrc.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/copy_crc.h"
#include "wire/headers.h"
#include "wire/ip_udp.h"

namespace verbena::wire {
namespace {

constexpr std::size_t kLeadingOnes =
    8;  // 64 one-bits stand for what InfiniBand has before the IP header
constexpr std::byte kOnes{0xFF};
constexpr std::size_t kMaxPrefixSize = kLeadingOnes + kMaxNetworkHeaderSize;
/// Of what of a BTH changes on the way: FECN, BECN and the bits beside them.
constexpr std::size_t kMaskedOffset = 4;

// Polynomials modulo the CRC's own, reflected: bit 31 is the coefficient of 1, bit 0 that of x^31.
constexpr std::uint32_t kPolynomial = 0xEDB88320;
constexpr std::uint32_t kOne = 0x80000000;

constexpr std::uint32_t multiply_by_x(std::uint32_t a) {
  return (a >> 1) ^ (kPolynomial & (0U - (a & 1U)));
}

constexpr std::uint32_t divide_by_x(std::uint32_t a) {
  // The polynomial's constant term makes bit 31 tell whether multiply_by_x had reduced.
  const std::uint32_t reduced = 0U - (a >> 31);
  return ((a ^ (kPolynomial & reduced)) << 1) | (reduced & 1U);
}
static_assert(divide_by_x(multiply_by_x(0x12345678)) == 0x12345678 &&
              divide_by_x(multiply_by_x(0x87654321)) == 0x87654321);

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int bit = 0; bit < 32; ++bit) {
    product ^= a & (0U - (b >> 31));
    b <<= 1;
    a = multiply_by_x(a);
  }
  return product;
}

/// x^(-8 * step * i) for i in 0..255: going back over step * i bytes.
constexpr std::array<std::uint32_t, 256> make_inverse_powers(unsigned step) {
  std::uint32_t factor = kOne;
  for (unsigned i = 0; i < 8 * step; ++i) factor = divide_by_x(factor);
  std::array<std::uint32_t, 256> powers{kOne};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = multiply(powers[i - 1], factor);
  return powers;
}

constexpr std::array<std::uint32_t, 256> kBackBytes = make_inverse_powers(1);
constexpr std::array<std::uint32_t, 256> kBackPages = make_inverse_powers(256);

/// What a difference of two CRC states was `count` bytes of equal input earlier; count is below
/// 65536.
constexpr std::uint32_t go_back(std::uint32_t difference, std::size_t count) {
  return multiply(difference, multiply(kBackBytes[count & 0xFF], kBackPages[count >> 8]));
}

/// What a difference of two CRC states is `count` zero bytes later.
constexpr std::uint32_t go_on(std::uint32_t difference, std::size_t count) {
  for (std::size_t bit = 0; bit < 8 * count; ++bit) difference = multiply_by_x(difference);
  return difference;
}

constexpr std::size_t kIdentificationOffset = 4;  // in an IPv4 header
/// From the beginning of the identification to the end of the UDP header.
constexpr std::size_t kFromIdentification = kIpv4Size - kIdentificationOffset + kUdpSize;

/// What each value of the byte of an identification that goes first on the wire, and of the other
/// one, adds to the state behind the UDP header.
constexpr std::array<std::uint32_t, 256> make_identifications(std::size_t from_byte) {
  std::array<std::uint32_t, 256> states{};
  for (std::size_t bit = 0; bit < 8; ++bit)
    states[std::size_t{1} << bit] = go_on(std::uint32_t{1} << bit, from_byte);
  for (std::size_t value = 1; value < states.size(); ++value)
    states[value] = states[value & (value - 1)] ^ states[value & (0 - value)];
  return states;
}

constexpr std::array<std::uint32_t, 256> kFirstByte = make_identifications(kFromIdentification);
constexpr std::array<std::uint32_t, 256> kSecondByte =
    make_identifications(kFromIdentification - 1);

/// What each value of the byte that is masked changes, at the BTH's beginning.
constexpr std::array<std::uint32_t, 256> make_masks() {
  std::array<std::uint32_t, 256> masks{};
  for (std::uint32_t value = 0; value < masks.size(); ++value)
    masks[value] = go_back(value ^ 0xFF, kMaskedOffset);
  return masks;
}

constexpr std::array<std::uint32_t, 256> kMasks = make_masks();

/// What stands before the UDP payload, as the ICRC wants it. Returns its size, at most
/// kMaxPrefixSize.
std::size_t encode_prefix(const Path& path, std::uint16_t identification,
                          std::size_t udp_payload_size, std::byte* to) {
  std::byte* ip = to + kLeadingOnes;
  const std::size_t size =
      encode_network_headers(path, identification, 0xFFFF, udp_payload_size, ip);
  std::memset(to, 0xFF, kLeadingOnes);
  if (size == kIpv4Size + kUdpSize) {
    ip[1] = kOnes;            // ToS
    ip[8] = kOnes;            // TTL
    ip[10] = ip[11] = kOnes;  // header checksum
  } else {
    ip[0] |= std::byte{0x0F};  // traffic class and flow label
    ip[1] = ip[2] = ip[3] = kOnes;
    ip[7] = kOnes;  // hop limit
  }
  return kLeadingOnes + size;
}

}  // namespace

std::uint32_t icrc_start(const Path& path, std::uint16_t identification,
                         std::size_t udp_payload_size) {
  std::array<std::byte, kMaxPrefixSize> bytes;
  const std::size_t size = encode_prefix(path, identification, udp_payload_size, bytes.data());
  return crc32(0, ConstBytes(bytes.data(), size));
}

std::uint32_t icrc_of_identification(const Path& path, std::uint16_t identification) {
  if (!is_ipv4(path)) return 0;
  return kFirstByte[identification >> 8] ^ kSecondByte[identification & 0xFF];
}

std::uint32_t icrc_masked(std::uint32_t state, const std::byte* bth) {
  return state ^ kMasks[std::to_integer<std::uint8_t>(bth[kMaskedOffset])];
}

/// A peer's datagram may be shorter than a BTH: that is no packet, but it has a CRC.
std::uint32_t icrc_finish(std::uint32_t state, ConstBytes udp_payload) {
  if (udp_payload.size() >= Bth::kSize) state = icrc_masked(state, udp_payload.data());
  return crc32(state, udp_payload);
}

std::uint32_t icrc_finish_copied(std::uint32_t state, ConstBytes udp_payload,
                                 std::size_t header_size, std::byte* to) {
  return copy_crc32(icrc_masked(state, udp_payload.data()), udp_payload.first(header_size), to,
                    udp_payload.data() + header_size, udp_payload.size() - header_size);
}

std::uint32_t icrc(const Path& path, std::uint16_t identification, ConstBytes udp_payload) {
  return icrc_finish(icrc_start(path, identification, udp_payload.size() + kIcrcSize), udp_payload);
}

std::optional<std::uint16_t> icrc_solve_identification(const Path& path, ConstBytes udp_payload,
                                                       std::uint32_t expected) {
  return icrc_solve_identification(path, udp_payload.size(), 0, icrc(path, 0, udp_payload),
                                   expected);
}

std::optional<std::uint16_t> icrc_solve_identification(const Path& path, std::size_t size,
                                                       std::uint16_t known,
                                                       std::uint32_t icrc_of_known,
                                                       std::uint32_t expected) {
  const std::uint32_t difference = icrc_of_known ^ expected;
  if (!is_ipv4(path)) return difference == 0 ? std::optional<std::uint16_t>(0) : std::nullopt;
  // A CRC is linear: two inputs that differ in the identification alone have CRCs whose difference
  // depends on that difference and on the number of bytes behind it. Going back to where the
  // identification begins leaves its two bytes as the register's low half, and nothing in the upper
  // one if an identification can explain the difference at all.
  const std::uint32_t before = go_back(difference, kFromIdentification + size);
  if ((before >> 16) != 0) return std::nullopt;
  return static_cast<std::uint16_t>(known ^ (((before & 0xFF) << 8) | (before >> 8)));
}

}  // namespace verbena::wire
