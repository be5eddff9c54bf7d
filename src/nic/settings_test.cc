// SPDX-License-Identifier: Apache-2.0
#include "nic/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace verbena::nic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string error_of(const Result<void>& result) {
  return result ? "no error" : result.error().message;
}

/// Reads a settings file's text into fresh settings; the error's sentence, or nothing.
std::string read(std::string_view text, Settings& settings) {
  const auto result = apply_file(text, "file.toml", settings);
  return result ? std::string{} : result.error().message;
}

std::string sentence(std::string_view text) {
  Settings settings;
  return read(text, settings);
}

using Values = std::initializer_list<std::pair<const char*, std::string>>;

Environment variables(Values values) {
  std::map<std::string, std::string> map(values.begin(), values.end());
  return [map = std::move(map)](const char* name) -> const char* {
    const auto found = map.find(name);
    return found == map.end() ? nullptr : found->second.c_str();
  };
}

class Folder {
 public:
  Folder() { path_ = mkdtemp(name_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  char name_[32] = "/tmp/verbena-settings-XXXXXX";
  std::string path_;
};

TEST(SettingTable, NamesAreUniqueAndFollowOneRule) {
  std::set<std::string_view> keys;
  std::set<std::string_view> variables;
  for (const auto& setting : setting_table()) {
    EXPECT_TRUE(keys.insert(setting.key).second) << setting.key;
    EXPECT_TRUE(variables.insert(setting.environment).second) << setting.environment;
    std::string expected = "VERBENA_";
    const auto dot = setting.key.find('.');
    for (const char c : setting.key.substr(dot == std::string_view::npos ? 0 : dot + 1)) {
      expected += static_cast<char>(std::toupper(c));
    }
    EXPECT_EQ(setting.environment, expected);
    EXPECT_EQ(setting.environment.data()[setting.environment.size()], '\0');
  }
}

TEST(SettingTable, EveryDefaultIsAllowedAndReadsBackAsItself) {
  for (const auto& setting : setting_table()) {
    const std::string value = show_value(setting, Settings{});
    Settings settings;
    EXPECT_EQ(error_of(set_value(setting, value, setting.key, settings)), "no error")
        << setting.key;
    EXPECT_EQ(show_value(setting, settings), value) << setting.key;
  }
}

TEST(SettingTable, BothBoundsAreAllowedAndNothingBeyond) {
  for (const auto& setting : setting_table()) {
    if (setting.kind != SettingKind::kNumber && setting.kind != SettingKind::kDuration) continue;
    const std::string unit = setting.kind == SettingKind::kDuration ? "ns" : "";
    Settings settings;
    for (const auto value : {setting.low, setting.high}) {
      EXPECT_TRUE(set_value(setting, std::to_string(value) + unit, "x", settings)) << setting.key;
      EXPECT_EQ(setting.number(settings), value) << setting.key;
    }
    EXPECT_FALSE(set_value(setting, std::to_string(setting.high + 1) + unit, "x", settings));
    if (setting.low > 0) {
      EXPECT_FALSE(set_value(setting, std::to_string(setting.low - 1) + unit, "x", settings));
    }
    EXPECT_EQ(setting.number(settings), setting.high);
  }
}

TEST(SettingTable, EveryChoiceIsStoredAsItself) {
  for (const auto& setting : setting_table()) {
    for (const auto choice : setting.choices) {
      Settings settings;
      EXPECT_TRUE(set_value(setting, choice, "x", settings));
      EXPECT_EQ(show_value(setting, settings), choice) << setting.key;
    }
  }
}

TEST(SettingsFile, ReadsEveryKind) {
  Settings settings;
  ASSERT_EQ(read(R"(
addr = ["192.168.7.1", "::1"]
mtu = 1024
icrc = "strict"
log = "debug"
pcap = "/tmp/all.pcapng"
[limits]
max_qp = 17
max_mr_size = "1G"
[transport]
min_ack_timeout = "50ms"
window_max = "1M"
)",
                 settings),
            "");
  EXPECT_THAT(settings.addresses, ElementsAre(*wire::Address::from_string("192.168.7.1"),
                                              *wire::Address::from_string("::1")));
  EXPECT_EQ(settings.nic.address, settings.addresses[0]);
  EXPECT_EQ(settings.nic.max_mtu, 1024U);
  EXPECT_EQ(settings.nic.icrc, NicConfig::Icrc::kStrict);
  EXPECT_EQ(settings.log_level, LogLevel::kDebug);
  EXPECT_EQ(settings.pcap, "/tmp/all.pcapng");
  EXPECT_EQ(settings.nic.limits.max_qp, 17U);
  EXPECT_EQ(settings.nic.limits.max_mr_size, 1U << 30);
  EXPECT_EQ(settings.nic.engine.min_ack_timeout, std::chrono::milliseconds(50));
  EXPECT_EQ(settings.nic.engine.window_max, 1U << 20);
}

TEST(SettingsFile, AWrongLineIsNamedWithFileLineKeyAndWhatIsAllowed) {
  EXPECT_EQ(sentence("\n[limits]\nmax_qp = 0\n"),
            "file.toml:3: limits.max_qp is '0', but must be a whole number from 1 to 64K");
  EXPECT_EQ(sentence("icrc = \"maybe\""),
            "file.toml:1: icrc is 'maybe', but must be strict, solve or off");
  EXPECT_EQ(sentence("mtu = 1500"),
            "file.toml:1: mtu is '1500', but must be 256, 512, 1024, 2048 or 4096");
  EXPECT_EQ(sentence("[limits]\nmax_qp = true"),
            "file.toml:2: limits.max_qp must be a whole number from 1 to 64K");
  EXPECT_EQ(sentence("[limits]\nmax_qp = 1.5"),
            "file.toml:2: limits.max_qp must be a whole number from 1 to 64K");
  EXPECT_EQ(sentence("\n\nmax_qp = 7"), "file.toml:3: there is no setting 'max_qp'");
  EXPECT_EQ(sentence("[limits.deeper]\nmax_qp = 7"),
            "file.toml:1: there is no setting 'limits.deeper'");
  EXPECT_EQ(sentence("\"a\\nb\" = 1"), "file.toml:1: there is no setting 'a?b'");
  EXPECT_THAT(sentence("addr = \"10.0.0\""),
              StartsWith("file.toml:1: addr is '10.0.0', but must be auto"));
  EXPECT_THAT(sentence("addr = [\"127.0.0.1\", 7]"), StartsWith("file.toml:1: addr must be auto"));
  EXPECT_THAT(sentence("log = \"info\"\nmtu = ="), StartsWith("file.toml:2: this is not TOML: "));
  EXPECT_THAT(sentence("mtu = 256\nmtu = 512"), StartsWith("file.toml:2: this is not TOML: "));
  EXPECT_THAT(sentence("x = " + std::string(100, '[')),
              StartsWith("file.toml:1: this is not TOML: "));
}

TEST(SettingsFile, WhatTheParserDoesNotExpectIsNoMoreThanAWrongLine) {
  EXPECT_EQ(sentence("[=]"), "file.toml:1: this is not TOML");
  EXPECT_EQ(sentence("mtu = 256\n\n[limits]\nmax_qp = 3\n[=]\nmax_cq = 3\n"),
            "file.toml:5: this is not TOML");
}

TEST(SettingsFile, WhatIsNotAsciiStandsInCommentsAndIsEscapedInStrings) {
  Settings settings;
  EXPECT_EQ(read("\xEF\xBB\xBF# für alle\npcap = \"/#/\\\"\\u00e9\" # é\n", settings), "");
  EXPECT_EQ(settings.pcap, "/#/\"é");
  EXPECT_EQ(read("pcap = '/tmp/\\' # é", settings), "");
  EXPECT_EQ(settings.pcap, "/tmp/\\");
  const std::string rule =
      ": strings are of one line, and what is not ASCII must be written \\uXXXX in them";
  EXPECT_EQ(sentence("mtu = 256\n[é]"), "file.toml:2" + rule);
  EXPECT_EQ(sentence("mtu = \u00a0256"), "file.toml:1" + rule);
  EXPECT_EQ(sentence("pcap = \"é\""), "file.toml:1" + rule);
  EXPECT_EQ(sentence("pcap = \"#é\""), "file.toml:1" + rule);
  EXPECT_EQ(sentence("pcap = '\\#é'"), "file.toml:1" + rule);
  EXPECT_EQ(sentence("pcap = \"\\é\""), "file.toml:1" + rule);
  EXPECT_EQ(sentence("pcap = \"\"\"\nx\"\"\""), "file.toml:1" + rule);
  EXPECT_EQ(sentence("mtu = 256\npcap = '''\n'''"), "file.toml:2" + rule);
}

TEST(SettingsFile, NumbersTakeUnitsAndNeverWrap) {
  Settings settings;
  EXPECT_EQ(read("[limits]\nmax_cqe = \"4K\"", settings), "");
  EXPECT_EQ(settings.nic.limits.max_cqe, 4096U);
  for (const auto* bad :
       {"\"\"", "\"-1\"", "-1", "\"4X\"", "\"4 K\"", "\"K\"", "\"99999999999999999999\"",
        "\"18014398509481985K\"", "\"0x10\"", "\"1K1\""}) {
    EXPECT_THAT(sentence(std::string("[limits]\nmax_cqe = ") + bad),
                HasSubstr("must be a whole number"))
        << bad;
  }
  for (const auto* bad : {"20", "\"20\"", "\"20 ms\"", "\"1h\"", "\"0ms\"", "\"11s\"", "\"ms\""}) {
    EXPECT_THAT(sentence(std::string("[transport]\nmin_ack_timeout = ") + bad),
                HasSubstr("must be a time from 1ms to 10s"))
        << bad;
  }
}

TEST(SettingsFile, RefusesAddressesThatNoDeviceCanHave) {
  for (const auto* bad :
       {"", "0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1", "localhost", "127.0.0.1,",
        ",127.0.0.1", "127.0.0.1,127.0.0.1", "127.0.0.1,auto"}) {
    Settings settings;
    EXPECT_FALSE(set_value(setting_table()[0], bad, "VERBENA_ADDR", settings)) << bad;
    EXPECT_THAT(settings.addresses, IsEmpty()) << bad;
  }
}

TEST(SettingsFile, AnInterfaceStandsForItsAddress) {
  Settings settings;
  EXPECT_EQ(read("addr = [\"lo\", \"127.0.0.2\"]", settings), "");
  EXPECT_THAT(settings.addresses, ElementsAre(*wire::Address::from_string("127.0.0.1"),
                                              *wire::Address::from_string("127.0.0.2")));
  EXPECT_THAT(sentence("addr = \"nowhere0\""),
              HasSubstr("nowhere0 is neither an IP address nor an interface"));
  EXPECT_THAT(sentence("addr = \"fe80::1%lo\""), HasSubstr("is no IP address"));
  EXPECT_FALSE(read("addr = [\"lo\", \"127.0.0.1\"]", settings).empty());
}

TEST(Settings, AnAddressOfAnotherMachineIsRefused) {
  const auto settings =
      load_settings(variables({{"VERBENA_CONFIG", ""}, {"VERBENA_ADDR", "192.0.2.1"}}));
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().condition, std::errc::address_not_available);
  EXPECT_THAT(settings.error().message, HasSubstr("127.0.0.1 (lo)"));
}

TEST(Settings, TheFileIsTheOneNamedOrTheUsersOrTheMachines) {
  const auto files = [](Values values) { return settings_files(variables(values)); };
  EXPECT_THAT(files({{"VERBENA_CONFIG", "/a"}, {"HOME", "/h"}}), ElementsAre("/a"));
  EXPECT_THAT(files({{"VERBENA_CONFIG", ""}, {"HOME", "/h"}}), IsEmpty());
  EXPECT_THAT(files({{"XDG_CONFIG_HOME", "/x"}, {"HOME", "/h"}}),
              ElementsAre("/x/verbena/verbena.toml", "/etc/verbena/verbena.toml"));
  EXPECT_THAT(files({{"XDG_CONFIG_HOME", "x"}, {"HOME", "/h"}}),
              ElementsAre("/h/.config/verbena/verbena.toml", "/etc/verbena/verbena.toml"));
  EXPECT_THAT(files({}), ElementsAre("/etc/verbena/verbena.toml"));
}

TEST(Settings, TheEnvironmentOverridesTheFile) {
  const Folder folder;
  const auto file = folder.write("verbena/verbena.toml", "log = \"debug\"\nmtu = 512\n");
  const auto settings =
      load_settings(variables({{"XDG_CONFIG_HOME", folder.path()}, {"VERBENA_MTU", "2048"}}));
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->file, file);
  EXPECT_EQ(settings->log_level, LogLevel::kDebug);
  EXPECT_EQ(settings->nic.max_mtu, 2048U);
}

TEST(Settings, AFileThatIsNamedMustBeThere) {
  const auto settings = load_settings(variables({{"VERBENA_CONFIG", "/nowhere/verbena.toml"}}));
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().condition, std::errc::no_such_file_or_directory);
  EXPECT_EQ(settings.error().message,
            "cannot read the settings file /nowhere/verbena.toml: No such file or directory");
}

TEST(Settings, AFolderOrAHugeFileIsRefused) {
  const Folder folder;
  const auto of = [](const std::string& path) {
    const auto settings = load_settings(variables({{"VERBENA_CONFIG", path}}));
    return settings ? std::string("no error") : settings.error().message;
  };
  EXPECT_THAT(of(folder.path()), HasSubstr("Is a directory"));
  EXPECT_THAT(of(folder.write("huge", std::string((1 << 20) + 1, '#'))),
              HasSubstr("larger than 1 MiB"));
  EXPECT_EQ(of(folder.write("large", std::string((1 << 20) - 1, '#'))), "no error");
}

TEST(Settings, AWrongVariableIsNamed) {
  const auto settings =
      load_settings(variables({{"VERBENA_CONFIG", ""}, {"VERBENA_MAX_QP", "many"}}));
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().condition, std::errc::invalid_argument);
  EXPECT_EQ(settings.error().message,
            "VERBENA_MAX_QP is 'many', but must be a whole number from 1 to 64K");
}

TEST(Settings, TheControllersRatesAreInMegabitsAndInOrder) {
  const auto of = [](const char* low, const char* line) {
    return load_settings(variables({{"VERBENA_CONFIG", ""},
                                    {"VERBENA_CONGESTION_CONTROL", "dcqcn"},
                                    {"VERBENA_DCQCN_MIN_RATE", low},
                                    {"VERBENA_DCQCN_LINE_RATE", line}}));
  };
  const auto settings = of("20", "10000");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_TRUE(settings->nic.engine.congestion.on);
  EXPECT_EQ(settings->nic.engine.congestion.min_rate, 20'000'000U);
  EXPECT_EQ(settings->nic.engine.congestion.line_rate, 10'000'000'000U);
  const auto refused = of("20", "10");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "transport.dcqcn_min_rate must not be above dcqcn_line_rate");
  EXPECT_FALSE(load_settings(variables({{"VERBENA_CONFIG", ""}}))->nic.engine.congestion.on);
}

TEST(Settings, WhatFollowsFromOthersIsSettled) {
  const auto settings = load_settings(variables({{"VERBENA_CONFIG", ""},
                                                 {"VERBENA_MAX_QP", "20"},
                                                 {"VERBENA_MAX_SGE", "5"},
                                                 {"VERBENA_ADDR", "127.0.0.3,::1"},
                                                 {"VERBENA_DEVICE_PREFIX", "soft"},
                                                 {"VERBENA_PCAP", "/tmp/%p.pcapng"}}));
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->nic.engine.max_qp, 20U);
  EXPECT_EQ(settings->nic.engine.max_pieces, 5U);
  EXPECT_EQ(settings->pcap, "/tmp/" + std::to_string(getpid()) + ".pcapng");
  EXPECT_EQ(settings->nic.name, "soft0");
  const auto second = device_config(*settings, 1);
  EXPECT_EQ(second.name, "soft1");
  EXPECT_EQ(wire::to_string(second.address), "::1");
  EXPECT_EQ(second.limits.max_qp, 20U);
}

TEST(Settings, AFaultPlanIsChecked) {
  const auto good = load_settings(
      variables({{"VERBENA_CONFIG", ""}, {"VERBENA_FAULTS", "seed=7,drop=1%,drop:ack@3"}}));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->faults, "seed=7,drop=1%,drop:ack@3");
  const auto bad =
      load_settings(variables({{"VERBENA_CONFIG", ""}, {"VERBENA_FAULTS", "loss=1%"}}));
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message,
              StartsWith("VERBENA_FAULTS is 'loss=1%', but must be a fault plan such as "));
  EXPECT_EQ(load_settings(variables({{"VERBENA_CONFIG", ""}, {"VERBENA_FAULTS", ""}}))->faults, "");
}

TEST(Settings, WindowsThatFallAreRefused) {
  const auto settings =
      load_settings(variables({{"VERBENA_CONFIG", ""}, {"VERBENA_WINDOW_MIN", "64M"}}));
  ASSERT_FALSE(settings);
  EXPECT_THAT(settings.error().message, HasSubstr("must not fall"));
}

TEST(Settings, TheDocumentSaysWhatTheTableSays) {
  std::ifstream file(VERBENA_SOURCE_DIR "/docs/settings.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(document.empty());
  std::size_t rows = 0;
  for (const auto& setting : setting_table()) {
    const std::string row = document_row(setting);
    EXPECT_NE(document.find("\n" + row + "\n"), std::string::npos) << "missing: " << row;
  }
  for (auto at = document.find("` | `VERBENA_"); at != std::string::npos;
       at = document.find("` | `VERBENA_", at + 1)) {
    ++rows;
  }
  EXPECT_EQ(rows, setting_table().size()) << "the document has rows that the table does not know";
}

}  // namespace
}  // namespace verbena::nic
