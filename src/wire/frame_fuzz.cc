// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as an Ethernet frame: what parse_frame() takes lies within them, and its headers encode
// to the same bytes.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "wire/frame.h"

using namespace verbena;
using namespace verbena::wire;

namespace {

constexpr std::size_t kEtherTypeAt = 12;
constexpr std::size_t kIpv4ChecksumAt = 24;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes bytes = std::as_bytes(std::span(data, size));
  const Result<Frame> frame = parse_frame(bytes);
  if (!frame) {
    VERBENA_CHECK(!frame.error().message.empty());
    return 0;
  }
  std::array<std::byte, kMaxFrameHeaderSize> headers{};
  const std::size_t header_size = encode_frame_headers(*frame, headers.data());
  VERBENA_CHECK(frame->udp_payload.data() == bytes.data() + header_size);
  VERBENA_CHECK(header_size + frame->udp_payload.size() <= bytes.size());
  // Zero has two forms in the Internet checksum; both are right, and we write one of them.
  if (bytes[kEtherTypeAt] == std::byte{0x08} &&
      load_be<std::uint16_t>(headers.data() + kIpv4ChecksumAt) == 0) {
    std::ranges::copy(bytes.subspan(kIpv4ChecksumAt, 2), headers.begin() + kIpv4ChecksumAt);
  }
  VERBENA_CHECK(
      std::ranges::equal(std::span(headers).first(header_size), bytes.first(header_size)));
  return 0;
}
