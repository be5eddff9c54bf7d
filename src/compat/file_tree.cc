// SPDX-License-Identifier: Apache-2.0
#include "compat/file_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "compat/cm_files.h"
#include "compat/device_files.h"
#include "compat/device_table.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLockName = ".lock";

/// The folder of this process, never destroyed.
struct Tree {
  std::mutex lock;
  bool made = false;  ///< or tried
  std::uint32_t generation = 0;
  pid_t owner = 0;
  std::string root;  ///< empty when it could not be made
  int lock_fd = -1;
};

Tree& tree() {
  static auto* const leaked = new Tree;
  return *leaked;
}

/// Where a user's folders lie: the session's own place, which is gone after it, or the system's.
std::string parent_folder() {
  const char* const session = std::getenv("XDG_RUNTIME_DIR");
  if (session != nullptr && session[0] == '/' && ::access(session, W_OK | X_OK) == 0)
    return session;
  return "/tmp";
}

std::string name_prefix() { return fmt::format("verbena-files-{}-", ::geteuid()); }

/// Takes the lock that says the folder is in use; -1 when another process has it.
int take_lock(const fs::path& folder) {
  const std::string name = folder / kLockName;
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

bool is_own_folder(const fs::path& folder) {
  struct stat found{};
  return ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == ::geteuid();
}

/// Removes what killed processes left behind.
void sweep(const std::string& parent, const std::string& prefix) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& folder = entry->path();
    if (!folder.filename().native().starts_with(prefix) || !is_own_folder(folder)) continue;
    // A folder without a lock yet is just being made.
    if (!fs::exists(folder / kLockName, error)) continue;
    const int lock = take_lock(folder);
    if (lock < 0) continue;
    fs::remove_all(folder, error);
    error.clear();
    ::close(lock);
  }
}

void make_file(const std::string& root, const DeviceFile& file) {
  const fs::path path = root + file.path;
  fs::create_directories(file.kind == DeviceFile::Kind::kFolder ? path : path.parent_path());
  if (file.kind == DeviceFile::Kind::kLink) {
    std::error_code exists;
    fs::create_symlink(file.content, path, exists);
  } else if (file.kind == DeviceFile::Kind::kText) {
    std::ofstream(path) << file.content;
  }
}

/// Links for what is really there beside ours.
void link_real_entries(const std::string& root, std::string_view folder) {
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(folder), error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code exists;
    fs::create_symlink(entry->path(), root + entry->path().native(), exists);
  }
}

void write_tree(const std::string& root) {
  const auto ours = devices();
  if (!ours) return;
  for (const Device* device : *ours) {
    for (const DeviceFile& file : files_of(*device)) make_file(root, file);
  }
  for (const DeviceFile& file : common_files()) make_file(root, file);
  for (const std::string_view folder : {kClassRoot, kVerbsRoot, kNodeRoot})
    link_real_entries(root, folder);
}

void remove_own_tree() {
  Tree& mine = tree();
  if (mine.root.empty() || mine.owner != ::getpid()) return;
  const real::Unredirected guard;
  std::error_code error;
  fs::remove_all(mine.root, error);
}

void make_tree(Tree& mine) {
  const std::string parent = parent_folder();
  const std::string prefix = name_prefix();
  sweep(parent, prefix);
  std::string root = parent + "/" + prefix + "XXXXXX";
  if (::mkdtemp(root.data()) == nullptr) {
    log(LogLevel::kWarning, "no folder for the device files in {}: {}", parent,
        std::strerror(errno));
    return;
  }
  mine.lock_fd = take_lock(root);
  write_tree(root);
  mine.root = root;
}

/// The folder, made when it is not there yet; null when it cannot be.
const char* root_of_tree() {
  Tree& mine = tree();
  const std::scoped_lock lock(mine.lock);
  if (!mine.made || is_dead(mine.generation)) {
    const bool again = mine.made;
    mine.made = true;
    mine.generation = process_generation();
    mine.owner = ::getpid();
    if (again && mine.lock_fd >= 0) ::close(mine.lock_fd);
    mine.lock_fd = -1;
    mine.root.clear();
    const real::Unredirected guard;
    make_tree(mine);
    if (!again) static_cast<void>(std::atexit(&remove_own_tree));
  }
  return mine.root.empty() ? nullptr : mine.root.c_str();
}

bool is_at_or_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Whether a path below one of the roots belongs to us: a root itself, or an entry with the name of
/// one of our devices.
bool is_ours_below(std::string_view path, std::string_view root, std::string_view own) {
  path.remove_prefix(root.size());
  if (path.empty() || path == "/") return true;
  if (path.front() != '/') return false;
  path.remove_prefix(1);
  return path.starts_with(own) && (path.size() == own.size() || path[own.size()] == '/');
}

bool is_ours(std::string_view path) {
  const auto ours = devices();
  if (!ours || ours->empty()) return false;
  if (is_at_or_below(path, kCmNode) || is_at_or_below(path, kCmClass)) return true;
  for (const Device* device : *ours) {
    // The longer root first: the other is a prefix of it.
    if (path.starts_with(kVerbsRoot)) {
      if (is_ours_below(path, kVerbsRoot, device->dev_name) ||
          path.substr(kVerbsRoot.size()) == "/abi_version") {
        return true;
      }
    } else if (path.starts_with(kClassRoot)) {
      if (is_ours_below(path, kClassRoot, device->name)) return true;
    } else if (path.starts_with(kNodeRoot)) {
      if (is_ours_below(path, kNodeRoot, device->dev_name)) return true;
    }
  }
  return false;
}

/// Writes a file in one move, so that who reads it meanwhile has the old text or the new.
void renew_file(const fs::path& path, const std::string& content) {
  const fs::path next = path.native() + ".new";
  fs::create_directories(path.parent_path());
  std::ofstream(next) << content;
  fs::rename(next, path);
}

/// Of the files that tell of a running device, brings those up to date that `path` names: itself,
/// or what lies below it.
void renew_live_files(const Device& device, const std::string& root, std::string_view path) {
  if (!is_at_or_below(path, live_folder(device))) return;
  const std::vector<DeviceFile> files = live_files_of(device);
  for (const DeviceFile& file : files) {
    if (is_at_or_below(file.path, path)) renew_file(root + file.path, file.content);
  }
  // The entries of a GID that was deleted.
  std::vector<fs::path> gone;
  std::error_code error;
  const std::string at = root + std::string(path);
  if (fs::is_regular_file(at, error)) gone.emplace_back(at);
  for (fs::recursive_directory_iterator entry(at, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file(error)) gone.push_back(entry->path());
  }
  std::erase_if(gone, [&](const fs::path& there) {
    return std::ranges::any_of(files, [&](const auto& file) { return root + file.path == there; });
  });
  for (const fs::path& file : gone) fs::remove(file, error);
}

void renew(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const auto ours = devices();
  if (!ours) return;
  Tree& mine = tree();
  const std::scoped_lock lock(mine.lock);
  const real::Unredirected guard;
  for (const Device* device : *ours) renew_live_files(*device, mine.root, path);
}

const char* redirect_or_throw(const char* path, PathRoom& room) {
  if (!is_ours(path)) return path;
  const char* const root = root_of_tree();
  if (root == nullptr) return path;
  renew(path);
  const int size = std::snprintf(room.text, sizeof room.text, "%s%s", root, path);
  return size > 0 && static_cast<std::size_t>(size) < sizeof room.text ? room.text : path;
}

}  // namespace

namespace detail {

const char* redirect_device_path(const char* path, PathRoom& room) noexcept {
  if (real::unredirected()) return path;
  const int before = errno;
  const char* result = path;
  try {
    result = redirect_or_throw(path, room);
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, "cannot make the device files: {}", error.what());
  }
  errno = before;
  return result;
}

}  // namespace detail

void lock_file_tree() { tree().lock.lock(); }
void unlock_file_tree() { tree().lock.unlock(); }

}  // namespace verbena::compat
