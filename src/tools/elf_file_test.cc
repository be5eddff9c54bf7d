// SPDX-License-Identifier: Apache-2.0
#include "tools/elf_file.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace verbena::tools {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::byte> own_file() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

Elf64_Half own_machine() {
  Elf64_Ehdr header{};
  std::ifstream("/proc/self/exe", std::ios::binary)
      .read(reinterpret_cast<char*>(&header), sizeof header);
  return header.e_machine;
}

/// A program of headers only: PT_INTERP, and two libraries named in a dynamic section.
struct Image {
  Elf64_Ehdr header{};
  Elf64_Phdr segments[3]{};
  Elf64_Dyn dynamic[4]{};
  char strings[64]{};
  char interpreter[32]{};

  Image() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = own_machine();
    header.e_phoff = offsetof(Image, segments);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 3;
    constexpr std::uint64_t kBase = 0x400000;
    segments[0] = {.p_type = PT_LOAD,
                   .p_flags = 0,
                   .p_offset = 0,
                   .p_vaddr = kBase,
                   .p_paddr = 0,
                   .p_filesz = sizeof(Image),
                   .p_memsz = sizeof(Image),
                   .p_align = 1};
    segments[1] = segments[0];
    segments[1].p_type = PT_INTERP;
    segments[1].p_offset = offsetof(Image, interpreter);
    segments[2] = segments[0];
    segments[2].p_type = PT_DYNAMIC;
    segments[2].p_offset = offsetof(Image, dynamic);
    segments[2].p_filesz = sizeof dynamic;
    dynamic[0] = {.d_tag = DT_NEEDED, .d_un = {.d_val = 1}};
    dynamic[1] = {.d_tag = DT_NEEDED, .d_un = {.d_val = 14}};
    dynamic[2] = {.d_tag = DT_STRTAB, .d_un = {.d_ptr = kBase + offsetof(Image, strings)}};
    std::memcpy(strings, "\0libasan.so.8\0libc.so.6", 23);
    std::strcpy(interpreter, "/lib/ld-musl-x86_64.so.1");
  }
  [[nodiscard]] ConstBytes bytes() const { return std::as_bytes(std::span(this, 1)); }
};

TEST(ElfFile, ReadsTheProgramThatRunsThis) {
  const auto elf = parse_elf(own_file());
  ASSERT_TRUE(elf);
  EXPECT_TRUE(elf->native);
  EXPECT_THAT(elf->interpreter, HasSubstr("ld-linux"));
  EXPECT_THAT(elf->needed, Contains(StartsWith("libc.so")));
}

TEST(ElfFile, ReadsInterpreterAndLibraries) {
  const Image image;
  const auto elf = parse_elf(image.bytes());
  ASSERT_TRUE(elf);
  EXPECT_EQ(elf->interpreter, "/lib/ld-musl-x86_64.so.1");
  EXPECT_THAT(elf->needed, ElementsAre("libasan.so.8", "libc.so.6"));
}

TEST(ElfFile, KnowsOtherMachinesAndOtherFiles) {
  Image image;
  image.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_FALSE(parse_elf(image.bytes())->native);
  image.header.e_ident[EI_CLASS] = ELFCLASS64;
  image.header.e_machine = EM_SPARC;
  EXPECT_FALSE(parse_elf(image.bytes())->native);
  image.header.e_ident[1] = 'F';
  EXPECT_FALSE(parse_elf(image.bytes()));
  EXPECT_FALSE(parse_elf({}));
}

TEST(ElfFile, SurvivesEveryTruncation) {
  const Image image;
  for (std::size_t size = 0; size < sizeof image; ++size) {
    const std::vector<std::byte> cut(image.bytes().begin(),
                                     image.bytes().begin() + static_cast<std::ptrdiff_t>(size));
    const auto elf = parse_elf(cut);
    const bool no_names = !elf || size >= offsetof(Image, strings);
    EXPECT_TRUE(no_names || std::ranges::all_of(elf->needed, &std::string::empty)) << size;
  }
}

TEST(ElfFile, SurvivesEveryWildByte) {
  const Image image;
  for (std::size_t at = 0; at < sizeof(Image); ++at) {
    for (const auto wild : {std::byte{0}, std::byte{0x7F}, std::byte{0xFF}}) {
      std::vector<std::byte> bytes(image.bytes().begin(), image.bytes().end());
      bytes[at] = wild;
      const auto elf = parse_elf(bytes);
      EXPECT_LE(elf ? elf->needed.size() : 0, 4U);
    }
  }
}

}  // namespace
}  // namespace verbena::tools
