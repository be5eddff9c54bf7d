// SPDX-License-Identifier: Apache-2.0
#include "tools/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>

#include "base/bytes.h"
#include "tools/elf_file.h"

namespace verbena::tools {

namespace {

constexpr int kMaxInterpreters = 4;  // as many as the kernel follows from script to script

constexpr std::string_view kWhyPreload =
    "Verbena reaches a program as a preloaded library, which the dynamic loader";

std::unexpected<Error> unsupported(const std::string& path, std::string_view what) {
  return fail(std::errc::not_supported, fmt::format("{} {}", path, what));
}

/// A file seen as memory, for as long as this lives.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat facts{};
    if (fstat(file, &facts) == 0 && facts.st_size > 0) {
      const auto size = static_cast<std::size_t>(facts.st_size);
      void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
      if (start != MAP_FAILED) bytes_ = ConstBytes(static_cast<const std::byte*>(start), size);
    }
    close(file);
  }
  ~Mapping() {
    if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] ConstBytes bytes() const { return bytes_; }

 private:
  ConstBytes bytes_{};
};

/// "/usr/bin/env" of "#! /usr/bin/env -S python3"; nothing for what is no script.
std::optional<std::string> script_interpreter(ConstBytes file) {
  constexpr std::size_t kLongestLine = 256;  // BINPRM_BUF_SIZE
  std::string_view line(reinterpret_cast<const char*>(file.data()),
                        std::min(file.size(), kLongestLine));
  if (!line.starts_with("#!")) return std::nullopt;
  line = line.substr(2, line.find('\n') - 2);
  const auto begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  line.remove_prefix(begin);
  return std::string(line.substr(0, line.find_first_of(" \t\r")));
}

/// Where the kernel would start the program in secure mode, the loader ignores what is to be
/// preloaded (ld.so(8)).
Result<void> check_rights(const std::string& path) {
  struct stat facts{};
  if (stat(path.c_str(), &facts) != 0) {
    return fail(static_cast<std::errc>(errno), fmt::format("there is no program {}", path));
  }
  if (!S_ISREG(facts.st_mode)) return unsupported(path, "is not a program but a folder or device");
  if (access(path.c_str(), X_OK) != 0) {
    return fail(std::errc::permission_denied, fmt::format("{} is not executable by you", path));
  }
  if ((facts.st_mode & S_ISUID) != 0 && facts.st_uid != getuid()) {
    return unsupported(
        path, fmt::format("is setuid to another user: {} does not allow there", kWhyPreload));
  }
  if ((facts.st_mode & S_ISGID) != 0 && facts.st_gid != getgid()) {
    return unsupported(
        path, fmt::format("is setgid to another group: {} does not allow there", kWhyPreload));
  }
  if (geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return unsupported(path,
                       fmt::format("has file capabilities: {} does not allow there", kWhyPreload));
  }
  return {};
}

bool is_sanitizer(std::string_view library) {
  return library.starts_with("libasan.so") || library.starts_with("libtsan.so") ||
         library.starts_with("libclang_rt.asan") || library.starts_with("libclang_rt.tsan");
}

Result<Program> inspect_elf(const std::string& path, const ElfFile& elf) {
  if (!elf.native) return unsupported(path, "is built for another kind of machine than Verbena is");
  if (elf.interpreter.empty()) {
    return unsupported(path, fmt::format("is linked statically: {} has no part in", kWhyPreload));
  }
  if (elf.interpreter.find("ld-musl") != std::string::npos) {
    return unsupported(path, "is linked to musl; Verbena's library needs the GNU C library");
  }
  Program program{path, {}};
  std::ranges::copy_if(elf.needed, std::back_inserter(program.runtimes), is_sanitizer);
  return program;
}

Result<Program> inspect(const std::string& path, int depth) {
  VERBENA_TRY(check_rights(path));
  const Mapping file(path);
  if (const auto elf = parse_elf(file.bytes())) return inspect_elf(path, *elf);
  if (const auto interpreter = script_interpreter(file.bytes())) {
    if (depth == 0) return unsupported(path, "is a script with too many interpreters in a row");
    auto program = VERBENA_TRY(inspect(*interpreter, depth - 1));
    program.path = path;
    return program;
  }
  // Not readable, or text without #!: nothing to find out. The program is run, and what that says
  // counts.
  return Program{path, {}};
}

}  // namespace

Result<Program> find_program(const std::string& name, std::string_view search_path) {
  if (name.empty()) return fail(std::errc::no_such_file_or_directory, "the program has no name");
  if (name.find('/') != std::string::npos) return inspect(name, kMaxInterpreters);
  std::optional<std::string> not_executable;
  for (bool more = true; more;) {
    const auto colon = search_path.find(':');
    more = colon != std::string_view::npos;
    const auto folder = search_path.substr(0, colon);
    if (more) search_path.remove_prefix(colon + 1);
    const auto path = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    struct stat facts{};
    if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    if (access(path.c_str(), X_OK) == 0) return inspect(path, kMaxInterpreters);
    if (!not_executable) not_executable = path;
  }
  if (not_executable) {
    return fail(std::errc::permission_denied,
                fmt::format("{} is not executable by you", *not_executable));
  }
  return fail(std::errc::no_such_file_or_directory, fmt::format("there is no program {}", name));
}

}  // namespace verbena::tools
