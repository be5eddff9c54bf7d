// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <cstdio>

namespace verbena {
namespace {

constexpr std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
    case LogLevel::kOff: break;
  }
  return "";
}

void write_to_stderr(LogLevel level, std::string_view line) {
  const std::string_view name = name_of(level);
  std::fprintf(stderr, "verbena: %.*s: %.*s\n", static_cast<int>(name.size()), name.data(),
               static_cast<int>(line.size()), line.data());
}

std::atomic<LogSink> sink{&write_to_stderr};
std::atomic<LogLevel> threshold{LogLevel::kWarning};

}  // namespace

void set_log_sink(LogSink new_sink) {
  sink.store(new_sink != nullptr ? new_sink : &write_to_stderr);
}
void set_log_level(LogLevel level) { threshold.store(level); }
bool log_enabled(LogLevel level) { return level <= threshold.load(std::memory_order_relaxed); }
void log_line(LogLevel level, std::string_view line) { sink.load()(level, line); }

}  // namespace verbena
