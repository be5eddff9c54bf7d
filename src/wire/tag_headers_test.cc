// SPDX-License-Identifier: Apache-2.0
#include "wire/tag_headers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace verbena::wire {
namespace {

std::array<std::byte, 16> counting() {
  std::array<std::byte, 16> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(0xF0 + i);
  return bytes;
}

TEST(TagHeaders, FieldsLieWhereTheHeaderFileHasThem) {
  const auto bytes = counting();
  const TagHeader tag = TagHeader::parse(bytes.data());
  EXPECT_EQ(static_cast<unsigned>(tag.operation), 0xF0U);  // which is none: kept as it came
  EXPECT_EQ(tag.reserved[2], std::byte{0xF3});
  EXPECT_EQ(tag.application_context, 0xF4F5F6F7U);
  EXPECT_EQ(tag.tag, 0xF8F9FAFBFCFDFEFFU);
  const RendezvousHeader rendezvous = RendezvousHeader::parse(bytes.data());
  EXPECT_EQ(rendezvous.address, 0xF0F1F2F3F4F5F6F7U);
  EXPECT_EQ(rendezvous.rkey, 0xF8F9FAFBU);
  EXPECT_EQ(rendezvous.length, 0xFCFDFEFFU);
}

TEST(TagHeaders, EncodeGivesTheSameBytes) {
  const auto bytes = counting();
  std::array<std::byte, 16> again{};
  TagHeader::parse(bytes.data()).encode(again.data());
  EXPECT_EQ(again, bytes);
  again = {};
  RendezvousHeader::parse(bytes.data()).encode(again.data());
  EXPECT_EQ(again, bytes);
}

}  // namespace
}  // namespace verbena::wire
