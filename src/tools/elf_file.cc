// SPDX-License-Identifier: Apache-2.0
#include "tools/elf_file.h"

#include <elf.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace verbena::tools {

namespace {

constexpr std::size_t kMaxNeeded = 4096;

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr Elf64_Half kMachine = EM_RISCV;
#else
#error "name this machine's ELF number"
#endif

template <typename T>
std::optional<T> read(ConstBytes file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

/// The text from `offset` to its zero byte; empty when either lies outside.
std::string text_at(ConstBytes file, std::uint64_t offset) {
  if (offset >= file.size()) return {};
  const std::string_view rest(reinterpret_cast<const char*>(file.data() + offset),
                              file.size() - offset);
  const auto end = rest.find('\0');
  return end == std::string_view::npos ? std::string{} : std::string(rest.substr(0, end));
}

std::vector<Elf64_Phdr> segments_of(ConstBytes file, const Elf64_Ehdr& header) {
  std::vector<Elf64_Phdr> segments;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return segments;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) break;
    segments.push_back(*segment);
  }
  return segments;
}

std::optional<std::uint64_t> file_offset(const std::vector<Elf64_Phdr>& segments,
                                         std::uint64_t address) {
  for (const auto& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  return std::nullopt;
}

std::vector<std::string> needed_libraries(ConstBytes file, const std::vector<Elf64_Phdr>& segments,
                                          const Elf64_Phdr& dynamic) {
  std::vector<std::uint64_t> names;
  std::optional<std::uint64_t> strings;
  for (std::uint64_t at = 0; at < dynamic.p_filesz; at += sizeof(Elf64_Dyn)) {
    const auto entry = read<Elf64_Dyn>(file, dynamic.p_offset + at);
    if (!entry || entry->d_tag == DT_NULL || names.size() >= kMaxNeeded) break;
    if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_STRTAB) strings = file_offset(segments, entry->d_un.d_ptr);
  }
  std::vector<std::string> needed;
  for (const auto name : names) {
    if (strings) needed.push_back(text_at(file, *strings + name));
  }
  return needed;
}

}  // namespace

std::optional<ElfFile> parse_elf(ConstBytes file) {
  const auto ident = read<std::array<unsigned char, EI_NIDENT>>(file, 0);
  if (!ident || std::memcmp(ident->data(), ELFMAG, SELFMAG) != 0) return std::nullopt;
  ElfFile elf;
  const auto header = read<Elf64_Ehdr>(file, 0);
  elf.native = (*ident)[EI_CLASS] == ELFCLASS64 && header && header->e_machine == kMachine;
  if (!elf.native) return elf;
  const auto segments = segments_of(file, *header);
  for (const auto& segment : segments) {
    if (segment.p_type == PT_INTERP) elf.interpreter = text_at(file, segment.p_offset);
    if (segment.p_type == PT_DYNAMIC) elf.needed = needed_libraries(file, segments, segment);
  }
  return elf;
}

}  // namespace verbena::tools
