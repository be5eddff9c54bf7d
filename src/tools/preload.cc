// SPDX-License-Identifier: Apache-2.0
#include "tools/preload.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace verbena::tools {

namespace {

// A build tree; /usr or /usr/local; Debian's multiarch folders; Fedora's lib64.
constexpr std::array<std::string_view, 6> kPlaces{"../lib/libverbena.so",
                                                  "../lib/verbena/libverbena.so",
                                                  "../lib64/libverbena.so",
                                                  "../lib64/verbena/libverbena.so",
                                                  "../lib/x86_64-linux-gnu/verbena/libverbena.so",
                                                  "../lib/aarch64-linux-gnu/verbena/libverbena.so"};

}  // namespace

Result<std::string> find_library(const std::string& command_folder) {
  for (const auto place : kPlaces) {
    std::error_code error;
    const auto path =
        std::filesystem::canonical(std::filesystem::path(command_folder) / place, error);
    if (!error) return path.string();
  }
  return fail(
      std::errc::no_such_file_or_directory,
      fmt::format("libverbena.so is missing: it should be {}/{}", command_folder, kPlaces.front()));
}

Result<std::string> find_library() {
  std::error_code error;
  const auto command = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return fail(static_cast<std::errc>(error.value()),
                fmt::format("cannot tell where this command lies: {}", error.message()));
  }
  return find_library(command.parent_path().string());
}

Result<std::string> preload_value(const std::string& library, std::span<const std::string> runtimes,
                                  std::string_view existing) {
  if (library.find_first_of(": ") != std::string::npos) {
    return fail(std::errc::invalid_argument,
                fmt::format("the path {} has a space or a colon in it, which LD_PRELOAD cannot "
                            "carry; move Verbena elsewhere",
                            library));
  }
  std::vector<std::string> list(runtimes.begin(), runtimes.end());
  list.push_back(library);
  while (!existing.empty()) {
    const auto end = std::min(existing.find_first_of(": "), existing.size());
    const std::string entry(existing.substr(0, end));
    existing.remove_prefix(std::min(end + 1, existing.size()));
    if (!entry.empty() && std::ranges::find(list, entry) == list.end()) list.push_back(entry);
  }
  return fmt::format("{}", fmt::join(list, ":"));
}

}  // namespace verbena::tools
