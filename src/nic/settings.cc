// SPDX-License-Identifier: Apache-2.0
#include "nic/settings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "nic/interface_fit.h"

namespace verbena::nic {

namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;

enum class Missing : bool { kIsFine, kIsAnError };

std::unexpected<Error> cannot_read(const std::string& path, int number) {
  return fail(static_cast<std::errc>(number),
              fmt::format("cannot read the settings file {}: {}", path, std::strerror(number)));
}

/// The file's text, or nothing when it is not there. Raw system calls: open() may be interposed, by
/// us too.
Result<std::optional<std::string>> read_file(const std::string& path, Missing missing) {
  const long opened = syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (opened < 0) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    if (absent && missing == Missing::kIsFine) return std::nullopt;
    return cannot_read(path, errno);
  }
  std::string text;
  std::array<char, 4096> part{};
  int error = 0;
  while (text.size() <= kMaxFileBytes) {
    const long count = syscall(SYS_read, opened, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) error = errno;
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  syscall(SYS_close, opened);
  if (error != 0) return cannot_read(path, error);
  if (text.size() > kMaxFileBytes) {
    return fail(std::errc::file_too_large,
                fmt::format("the settings file {} is larger than 1 MiB", path));
  }
  return text;
}

std::string_view variable(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr ? std::string_view(value) : std::string_view{};
}

Result<void> load_file(const Environment& environment, Settings& settings) {
  const auto missing =
      environment("VERBENA_CONFIG") != nullptr ? Missing::kIsAnError : Missing::kIsFine;
  for (const auto& path : settings_files(environment)) {
    const auto text = VERBENA_TRY(read_file(path, missing));
    if (!text) continue;
    settings.file = path;
    return apply_file(*text, path, settings);
  }
  return {};
}

/// What no single value can tell, what follows from others, and what the machine says to them.
Result<void> settle(Settings& settings) {
  for (const auto& address : settings.addresses) VERBENA_TRY(check_is_local(address));
  auto& engine = settings.nic.engine;
  if (engine.window_min > engine.window_initial || engine.window_initial > engine.window_max) {
    return fail(std::errc::invalid_argument,
                fmt::format("transport.window_min ({}), window_initial ({}) and window_max ({}) "
                            "must not fall",
                            engine.window_min, engine.window_initial, engine.window_max));
  }
  if (engine.congestion.min_rate > engine.congestion.line_rate)
    return fail(std::errc::invalid_argument,
                "transport.dcqcn_min_rate must not be above dcqcn_line_rate");
  engine.max_qp = settings.nic.limits.max_qp;
  engine.max_pieces = settings.nic.limits.max_sge;
  if (const auto place = settings.pcap.find("%p"); place != std::string::npos) {
    settings.pcap.replace(place, 2, fmt::format("{}", syscall(SYS_getpid)));
  }
  return {};
}

Result<Settings> load(const Environment& environment) {
  Settings settings;
  VERBENA_TRY(load_file(environment, settings));
  VERBENA_TRY(apply_environment(environment, settings));
  VERBENA_TRY(settle(settings));
  return settings;
}

}  // namespace

std::vector<std::string> settings_files(const Environment& environment) {
  if (const char* file = environment("VERBENA_CONFIG"); file != nullptr) {
    if (*file == '\0') return {};
    return {file};
  }
  std::vector<std::string> files;
  const auto configuration = variable(environment, "XDG_CONFIG_HOME");
  const auto home = variable(environment, "HOME");
  if (!configuration.empty() && configuration.front() == '/') {  // relative ones count for nothing
    files.push_back(fmt::format("{}/verbena/verbena.toml", configuration));
  } else if (!home.empty()) {
    files.push_back(fmt::format("{}/.config/verbena/verbena.toml", home));
  }
  files.emplace_back("/etc/verbena/verbena.toml");
  return files;
}

Result<void> apply_environment(const Environment& environment, Settings& settings) {
  for (const auto& setting : setting_table()) {
    const char* value = environment(setting.environment.data());
    if (value == nullptr) continue;
    VERBENA_TRY(set_value(setting, value, setting.environment, settings));
  }
  return {};
}

Result<Settings> load_settings(const Environment& environment) noexcept {
  try {
    return load(environment);
  } catch (const std::exception&) {
    return fail(std::errc::not_enough_memory);
  }
}

Result<Settings> load_settings() noexcept {
  // No settings from the environment of a program that runs with another user's rights.
  return load_settings([](const char* name) -> const char* { return secure_getenv(name); });
}

}  // namespace verbena::nic
