// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace verbena {

enum class LogLevel : std::uint8_t { kOff, kError, kWarning, kInfo, kDebug };

/// Where lines go: standard error unless the owner of `main` (or a test) says otherwise. The sink
/// may be called from any thread, and never with memory contents, keys or PSNs above kDebug.
using LogSink = void (*)(LogLevel level, std::string_view line);

void set_log_sink(LogSink sink);
void set_log_level(LogLevel level);
[[nodiscard]] bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view line);

/// Formats and writes one line when the level is on; formatting costs nothing when it is off.
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace verbena
