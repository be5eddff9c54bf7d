// SPDX-License-Identifier: Apache-2.0
#include "nic/direct_board.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "engine/types.h"

namespace verbena::nic {
namespace {

using engine::kRemoteRead;
using engine::kRemoteWrite;
using Target = engine::DirectMemory::Target;

const wire::Address kPeer = wire::Address::from_ipv4(0x7F000002);

class Board : public ::testing::Test {
 protected:
  Board() {
    made_.board.admit({.qp_number = 0x222,
                       .destination_qp = 0x111,
                       .channel = 1,
                       .pd = 7,
                       .access = kRemoteWrite | kRemoteRead},
                      kPeer);
    made_.board.publish(
        {.key = 0x305,
         .pd = 7,
         .access = kRemoteWrite | kRemoteRead,
         .address = 0x10000,
         .memory = {.pages = pages_, .offset = 0x4000, .home = MemoryHome::kWritable}});
  }

  std::vector<std::byte> pages_ = std::vector<std::byte>(8192);
  DirectBoard::Made made_ = DirectBoard::create().value();
  DirectBoard board_ = DirectBoard::open(made_.descriptor.get()).value();
  const Target right_{.channel = 1,
                      .qp_number = 0x111,
                      .destination_qp = 0x222,
                      .key = 0x305,
                      .address = 0x10100,
                      .length = 256,
                      .access = kRemoteWrite};
};

TEST_F(Board, SaysWhereTheBytesAre) {
  const auto place = board_.find(right_, kPeer);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->key, 0x305U);
  EXPECT_EQ(place->home, MemoryHome::kWritable);
  EXPECT_EQ(place->stretch, 0x4000U);
  EXPECT_EQ(place->stretch_length, 8192U);
  EXPECT_EQ(place->into, 0x100U);
  EXPECT_EQ(place->length, 256U);
}

TEST_F(Board, OpensNothingToWhoIsWrongInAnyRespect) {
  const std::array<std::function<void(Target&)>, 8> wrong = {
      [](Target& t) { t.qp_number = 0x112; },
      [](Target& t) { t.destination_qp = 0x223; },
      [](Target& t) { t.destination_qp = 0x222 + 4096; },  // the same place on the board
      [](Target& t) { t.key = 0x306; },
      [](Target& t) { t.key = 0; },
      [](Target& t) { t.address = 0xFFFF; },
      [](Target& t) { t.length = 8192 - 0x100 + 1; },
      [](Target& t) { t.length = ~std::uint64_t{0}; },
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    Target target = right_;
    wrong[i](target);
    EXPECT_FALSE(board_.find(target, kPeer)) << i;
  }
  EXPECT_FALSE(board_.find(right_, wire::Address::from_ipv4(0x7F000003)));
  Target all = right_;
  all.address = 0x10000;
  all.length = 8192;
  EXPECT_TRUE(board_.find(all, kPeer));
}

TEST_F(Board, BothQueuePairAndKeyMustGrantTheRight) {
  EXPECT_TRUE(made_.board.dismiss(0x222));
  made_.board.admit({.qp_number = 0x222, .destination_qp = 0x111, .pd = 7, .access = kRemoteRead},
                    kPeer);
  EXPECT_FALSE(board_.find(right_, kPeer));
  Target read = right_;
  read.access = kRemoteRead;
  EXPECT_TRUE(board_.find(read, kPeer));
  EXPECT_TRUE(made_.board.dismiss(0x222));
  made_.board.admit({.qp_number = 0x222, .destination_qp = 0x111, .pd = 8, .access = kRemoteRead},
                    kPeer);
  EXPECT_FALSE(board_.find(read, kPeer));  // another protection domain
}

TEST_F(Board, WhatWasTakenAwayIsGone) {
  made_.board.set_up(false);
  EXPECT_FALSE(board_.find(right_, kPeer));
  made_.board.set_up(true);
  EXPECT_TRUE(board_.find(right_, kPeer));
  made_.board.withdraw(0x405);  // not there
  EXPECT_TRUE(board_.find(right_, kPeer));
  made_.board.withdraw(0x305);
  EXPECT_FALSE(board_.find(right_, kPeer));
}

TEST_F(Board, AQueuePairThatAdmitsNobodyIsClosed) {
  EXPECT_FALSE(made_.board.dismiss(0x222 + 4096));  // another one's place is not touched
  made_.board.admit({.qp_number = 0x222 + 4096, .destination_qp = 0x111, .pd = 7}, kPeer);
  EXPECT_TRUE(board_.find(right_, kPeer));
  EXPECT_TRUE(made_.board.dismiss(0x222));
  EXPECT_FALSE(board_.find(right_, kPeer));
}

/// Whatever the board says.
class OtherHomes : public Board, public ::testing::WithParamInterface<MemoryHome> {};

TEST_P(OtherHomes, AreOnlyRead) {
  made_.board.publish({.key = 0x405,
                       .pd = 7,
                       .access = kRemoteWrite | kRemoteRead,
                       .address = 0x10000,
                       .memory = {.pages = pages_, .offset = 0x4000, .home = GetParam()}});
  Target target = right_;
  target.key = 0x405;
  EXPECT_FALSE(board_.find(target, kPeer));
  target.access = kRemoteRead;
  const auto place = board_.find(target, kPeer);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->home, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, OtherHomes,
                         ::testing::Values(MemoryHome::kReadable, MemoryHome::kOwner));

TEST_F(Board, APlaceIsTakenOnce) {
  const std::uint32_t same_place = 0x305 + (4096U << 8);
  made_.board.publish({.key = same_place,
                       .pd = 7,
                       .access = kRemoteWrite,
                       .address = 0x10000,
                       .memory = {.pages = pages_}});
  EXPECT_TRUE(board_.find(right_, kPeer));
  Target other = right_;
  other.key = same_place;
  EXPECT_FALSE(board_.find(other, kPeer));
}

TEST_F(Board, PeersCannotWriteIt) {
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, made_.descriptor.get(), 0),
            MAP_FAILED);
  const std::byte zero{};
  EXPECT_LT(sys::write(made_.descriptor.get(), &zero, 1), 0);
  EXPECT_NE(sys::ftruncate(made_.descriptor.get(), 0), 0);
}

TEST_F(Board, WhatIsNoneIsNotOpened) {
  EXPECT_FALSE(DirectBoard::open(-1));
  const sys::OwnedFd plain(sys::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_FALSE(DirectBoard::open(plain.get()));
  EXPECT_EQ(sys::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_FALSE(DirectBoard::open(plain.get()));  // too short
}

}  // namespace
}  // namespace verbena::nic
