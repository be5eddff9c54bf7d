// SPDX-License-Identifier: Apache-2.0
// In a program that came by the second form alone, the C library stands before libverbena.so, and
// librdmacm would open a device that the kernel may not have. So its own references to the few
// functions that it uses the device by are led here. It asks for the list of devices before it
// opens anything, which is when this is done.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/log.h"
#include "compat/abi.h"

namespace verbena::compat::interpose {

// Defined in files.cc, descriptors.cc and rdma_cm.cc.
VERBENA_EXPORT int open_entry(const char* path, int flags, ...) __asm__("open");
VERBENA_EXPORT int open64_entry(const char* path, int flags, ...) __asm__("open64");
VERBENA_EXPORT int open_2_entry(const char* path, int flags) __asm__("__open_2");
VERBENA_EXPORT int open64_2_entry(const char* path, int flags) __asm__("__open64_2");
VERBENA_EXPORT int close_entry(int fd) __asm__("close");
VERBENA_EXPORT ssize_t write_entry(int fd, const void* from, std::size_t size) __asm__("write");
VERBENA_EXPORT int fstat_entry(int fd, struct stat* to) __asm__("fstat");
VERBENA_EXPORT int fstat64_entry(int fd, struct stat* to) __asm__("fstat64");
VERBENA_EXPORT int fxstat_entry(int version, int fd, struct stat* to) __asm__("__fxstat");
VERBENA_EXPORT int fxstat64_entry(int version, int fd, struct stat* to) __asm__("__fxstat64");

namespace {

struct Entry {
  std::string_view name{};
  std::uintptr_t ours = 0;
};

template <typename Function>
Entry entry(std::string_view name, Function* function) {
  return {name, reinterpret_cast<std::uintptr_t>(function)};
}

std::span<const Entry> entries() {
  static const std::array all{
      entry("open", &open_entry),       entry("open64", &open64_entry),
      entry("__open_2", &open_2_entry), entry("__open64_2", &open64_2_entry),
      entry("close", &close_entry),     entry("write", &write_entry),
      entry("fstat", &fstat_entry),     entry("fstat64", &fstat64_entry),
      entry("__fxstat", &fxstat_entry), entry("__fxstat64", &fxstat64_entry),
  };
  return all;
}

/// What of a loaded library's dynamic section says where its references to functions are.
struct References {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> by_data{};   ///< DT_RELA
  std::span<const ElfW(Rela)> by_calls{};  ///< DT_JMPREL
};

References references_of(const ElfW(Dyn) * section) {
  References found;
  const ElfW(Rela)* data = nullptr;
  const ElfW(Rela)* calls = nullptr;
  std::size_t data_size = 0;
  std::size_t calls_size = 0;
  // The loader has made these addresses absolute.
  for (; section->d_tag != DT_NULL; ++section) {
    const auto address = section->d_un.d_ptr;
    switch (section->d_tag) {
      case DT_SYMTAB: found.symbols = reinterpret_cast<const ElfW(Sym)*>(address); break;
      case DT_STRTAB: found.names = reinterpret_cast<const char*>(address); break;
      case DT_RELA: data = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_RELASZ: data_size = section->d_un.d_val / sizeof(ElfW(Rela)); break;
      case DT_JMPREL: calls = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_PLTRELSZ: calls_size = section->d_un.d_val / sizeof(ElfW(Rela)); break;
      default: break;
    }
  }
  if (data != nullptr) found.by_data = {data, data_size};
  if (calls != nullptr) found.by_calls = {calls, calls_size};
  return found;
}

bool is_read_only(const dl_phdr_info& library, std::uintptr_t address) {
  for (const ElfW(Phdr) & part : std::span(library.dlpi_phdr, library.dlpi_phnum)) {
    const std::uintptr_t start = library.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_RELRO && address >= start && address < start + part.p_memsz)
      return true;
  }
  return false;
}

/// Puts our function into one place of the library's table, which the loader may have closed.
void lead(const dl_phdr_info& library, std::uintptr_t place, std::uintptr_t ours) {
  auto* const slot = reinterpret_cast<std::uintptr_t*>(place);
  if (__atomic_load_n(slot, __ATOMIC_RELAXED) == ours) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto* const start = reinterpret_cast<void*>(place & ~(page - 1));
  const bool closed = is_read_only(library, place);
  if (closed && ::mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
    log(LogLevel::kWarning, "rdma_cm is out of reach: librdmacm's table cannot be written: {}",
        std::strerror(errno));
    return;
  }
  __atomic_store_n(slot, ours, __ATOMIC_RELEASE);
  if (closed) static_cast<void>(::mprotect(start, page, PROT_READ));
}

void lead_all(const dl_phdr_info& library, const References& references) {
  for (const auto& list : {references.by_data, references.by_calls}) {
    for (const ElfW(Rela) & reference : list) {
      const auto type = ELF64_R_TYPE(reference.r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      const ElfW(Sym)& symbol = references.symbols[ELF64_R_SYM(reference.r_info)];
      const std::string_view name = references.names + symbol.st_name;
      for (const Entry& entry : entries()) {
        if (entry.name == name) lead(library, library.dlpi_addr + reference.r_offset, entry.ours);
      }
    }
  }
}

int lead_if_librdmacm(dl_phdr_info* library, std::size_t /*size*/, void* /*nothing*/) {
  const std::string_view path = library->dlpi_name != nullptr ? library->dlpi_name : "";
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (!file.starts_with("librdmacm.so")) return 0;
  for (const ElfW(Phdr) & part : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
    if (part.p_type != PT_DYNAMIC) continue;
    const auto* const section =
        reinterpret_cast<const ElfW(Dyn)*>(library->dlpi_addr + part.p_vaddr);
    const References references = references_of(section);
    if (references.symbols != nullptr && references.names != nullptr)
      lead_all(*library, references);
  }
  return 0;
}

}  // namespace

/// Called for each list of devices that a program gets (`device.cc`).
extern "C" __attribute__((visibility("hidden"), used)) void verbena_lead_librdmacm() {
  // Preloaded we come first anyway, or right behind another preload.
  static const bool is_preloaded =
      ::dlsym(RTLD_DEFAULT, "__fxstat64") == reinterpret_cast<void*>(&fxstat64_entry);
  if (!is_preloaded) ::dl_iterate_phdr(&lead_if_librdmacm, nullptr);
}

}  // namespace verbena::compat::interpose
