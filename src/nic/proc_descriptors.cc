// SPDX-License-Identifier: Apache-2.0
#include "nic/proc_descriptors.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <string_view>

namespace verbena::nic {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

std::optional<int> number_in(const dirent& entry) {
  const std::string_view name(entry.d_name);
  int number = 0;
  if (std::from_chars(name.data(), name.data() + name.size(), number).ec != std::errc{})
    return std::nullopt;
  return number;
}

}  // namespace

std::optional<int> find_descriptor(pid_t pid, const std::string& target) {
  const std::string path = fmt::format("/proc/{}/fd", pid);
  const Folder folder(::opendir(path.c_str()), ::closedir);
  if (!folder) return std::nullopt;
  while (const dirent* entry = ::readdir(folder.get())) {
    std::array<char, 128> link{};
    const std::string name = fmt::format("{}/{}", path, entry->d_name);
    const ssize_t size = ::readlink(name.c_str(), link.data(), link.size());
    if (size > 0 && std::string_view(link.data(), static_cast<std::size_t>(size)) == target)
      return number_in(*entry);
  }
  return std::nullopt;
}

pid_t find_process_with(const std::string& target) {
  const Folder folder(::opendir("/proc"), ::closedir);
  if (!folder) return 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    const auto pid = number_in(*entry);
    if (pid && find_descriptor(*pid, target)) return *pid;
  }
  return 0;
}

}  // namespace verbena::nic
