// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a frame: what steering looks at lies within them, and what is cut off behind it
// changes nothing.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "wire/frame_headers.h"

using namespace verbena;
using namespace verbena::wire;

namespace {

/// Two tags, IPv4 with options or IPv6, TCP.
constexpr std::size_t kMostHeaders = 14 + 2 * 4 + 60 + 20;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes bytes = std::as_bytes(std::span(data, size));
  const auto headers = FrameHeaders::parse(bytes);
  VERBENA_CHECK(headers.has_value() == (size >= kMinFrameSize));
  if (!headers) return 0;
  VERBENA_CHECK(headers->has(FrameLayer::kEthernet));
  VERBENA_CHECK(!(headers->has(FrameLayer::kIpv4) && headers->has(FrameLayer::kIpv6)));
  VERBENA_CHECK(!(headers->has(FrameLayer::kTcp) && headers->has(FrameLayer::kUdp)));
  const auto cut = FrameHeaders::parse(bytes.first(std::min(size, kMostHeaders)));
  VERBENA_CHECK(cut.has_value());
  for (const FrameLayer layer : kFrameLayers) {
    const ConstBytes fields = headers->fields(layer);
    VERBENA_CHECK(fields.size() == (headers->has(layer) ? size_of(layer) : 0));
    VERBENA_CHECK(std::ranges::equal(fields, cut->fields(layer)));
  }
  return 0;
}
