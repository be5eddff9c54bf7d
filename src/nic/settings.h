// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "nic/fetching.h"
#include "nic/nic.h"
#include "wire/address.h"

namespace verbena::nic {

/// All that a user can set, from one file and the environment. A default-made value holds the
/// defaults.
struct Settings {
  /// Name, MTU, limits, transport and ICRC of every device; name and address are those of the
  /// first.
  NicConfig nic{};
  /// What a device's name begins with: vrb0, vrb1, …
  std::string device_prefix = "vrb";
  /// One device for each, in this order. Naming an address opens it; empty means that the host
  /// takes a loopback address.
  std::vector<wire::Address> addresses{};
  /// Every packet goes into this pcapng file; empty for none. `%p` has become the process id.
  std::string pcap{};
  std::uint64_t pcap_limit = std::uint64_t{4} << 30;  ///< bytes
  /// The fault plan, in the words of `link/fault_plan.h`; empty for none.
  std::string faults{};
  /// How processes of this machine reach each other.
  enum class SameHost : std::uint8_t { kUdp, kRings, kAuto };
  SameHost same_host = SameHost::kUdp;
  Fetching fetching = Fetching::kAuto;
  std::string ethernet{};  ///< the interface that raw packets go to; empty: the machine's segment
  LogLevel log_level = LogLevel::kWarning;
  /// The file that was read; empty when there was none.
  std::string file{};
};

/// The configuration of the device for `addresses[index]`.
[[nodiscard]] NicConfig device_config(const Settings& settings, std::size_t index);

enum class SettingKind : std::uint8_t {
  kNumber,    ///< whole; K, M and G multiply by 1024, 1024², 1024³
  kDuration,  ///< 20ms; ns, us, ms and s
  kChoice,    ///< one word of several
  kText,
  kList,  ///< in the file an array of strings or one string, in the environment separated by commas
};

/// A row of the table that drives parsing, defaults, help and docs/settings.md.
struct Setting {
  std::string_view key;          ///< in the file: "limits.max_qp" is max_qp in [limits]
  std::string_view environment;  ///< the variable that overrides the file
  SettingKind kind{};
  std::string_view meaning;  ///< one sentence
  std::string_view allowed;  ///< for kText and kList; empty: told by the bounds or choices
  // kNumber, kDuration (nanoseconds) and kChoice (the place in `choices`).
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::span<const std::string_view> choices{};
  std::uint64_t (*number)(const Settings&) = nullptr;
  void (*set_number)(Settings&, std::uint64_t) = nullptr;
  // kText and kList.
  std::string (*text)(const Settings&) = nullptr;
  /// Whether it was allowed; a reason may be given.
  Result<void> (*set_text)(Settings&, std::string_view) = nullptr;
};

[[nodiscard]] std::span<const Setting> setting_table();
/// The current value as set_value() reads it.
[[nodiscard]] std::string show_value(const Setting& setting, const Settings& settings);
/// "a whole number from 1 to 65536".
[[nodiscard]] std::string allowed_values(const Setting& setting);
/// The setting's line in docs/settings.md.
[[nodiscard]] std::string document_row(const Setting& setting);

/// Text as an error quotes it: short, and without what a terminal would obey.
[[nodiscard]] std::string quoted(std::string_view value);

/// Reads a value as the environment writes it. `origin` begins the sentence of an error:
/// "VERBENA_MTU".
[[nodiscard]] Result<void> set_value(const Setting& setting, std::string_view value,
                                     std::string_view origin, Settings& settings);

/// Reads the text of a settings file. The first wrong line ends it, with a sentence that names
/// `file`, the line, the key and what is allowed. Throws nothing.
[[nodiscard]] Result<void> apply_file(std::string_view text, std::string_view file,
                                      Settings& settings) noexcept;

/// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;
[[nodiscard]] Result<void> apply_environment(const Environment& environment, Settings& settings);

/// Where a settings file may lie, best first: `$VERBENA_CONFIG` alone when that is set (empty means
/// no file), else
/// `$XDG_CONFIG_HOME/verbena/verbena.toml` (or `~/.config/…` without that variable) and
/// /etc/verbena/verbena.toml.
[[nodiscard]] std::vector<std::string> settings_files(const Environment& environment);

/// The first settings file that is there, then the environment, then what must hold between values.
/// A file that
/// `$VERBENA_CONFIG` names must be there. Throws nothing; needs no lock, starts nothing, and makes
/// raw system calls only (it runs inside foreign programs).
[[nodiscard]] Result<Settings> load_settings() noexcept;
[[nodiscard]] Result<Settings> load_settings(const Environment& environment) noexcept;

}  // namespace verbena::nic
