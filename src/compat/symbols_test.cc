// SPDX-License-Identifier: Apache-2.0
// What the shared libraries export and need, beside what Debian's libibverbs exports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "compat/test_command.h"

namespace verbena::compat {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using testing::lines_of;
using Names = std::set<std::string>;

const std::string kInterposer = VERBENA_LIBRARY_DIR "/libverbena.so";
const std::string kSecondForm = VERBENA_LIBRARY_DIR "/verbs/libibverbs.so.1";

/// "name", "name@@NODE" or "name@NODE" of every symbol that a library defines, version nodes
/// themselves left out.
Names exports_of(const std::string& library) {
  Names names;
  for (const std::string& line : lines_of(testing::run("nm -D --defined-only " + library).text)) {
    std::istringstream fields(line);
    std::string address;
    std::string kind;
    std::string name;
    fields >> address >> kind >> name;
    if (kind != "A") names.insert(name);
  }
  return names;
}

struct Listed {
  Names own{};        ///< names
  Names versioned{};  ///< "name@@NODE", forwarded ones too
};

Listed listed_symbols() {
  Listed listed;
  std::ifstream file(VERBENA_COMPAT_SOURCE_DIR "/verbs_symbols.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    std::string name;
    std::string node;
    std::string kind;
    fields >> name >> node >> kind;
    EXPECT_TRUE(kind == "own" || kind == "forward" || kind == "data") << line;
    if (kind == "own") listed.own.insert(name);
    listed.versioned.insert(name + "@@" + node);
  }
  return listed;
}

Names difference(const Names& left, const Names& right) {
  Names result;
  std::ranges::set_difference(left, right, std::inserter(result, result.end()));
  return result;
}

TEST(Symbols, TheInterposerShowsItsEntryPointsUnversionedAndNothingElse) {
  Names expected = listed_symbols().own;
  std::ifstream file(VERBENA_COMPAT_SOURCE_DIR "/interposed_symbols.txt");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) expected.insert(line);
  }
  expected.insert("verbena_entry_points");
  const Names found = exports_of(kInterposer);
  EXPECT_THAT(difference(found, expected), IsEmpty()) << "exported beyond what is listed";
  EXPECT_THAT(difference(expected, found), IsEmpty()) << "listed, but not exported";
}

TEST(Symbols, TheSecondFormHasEveryListedNameWithItsVersion) {
  Names expected = listed_symbols().versioned;
  expected.insert("verbena_second_form@@VERBENA");
  const Names found = exports_of(kSecondForm);
  EXPECT_THAT(difference(found, expected), IsEmpty()) << "exported beyond what is listed";
  EXPECT_THAT(difference(expected, found), IsEmpty()) << "listed, but not exported";
}

TEST(Symbols, DebiansLibraryHasNothingThatIsNotListed) {
  const fs::path system = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
  std::error_code none;
  if (!fs::canonical(system, none).filename().string().starts_with("libibverbs.so.1.14.44")) {
    GTEST_SKIP() << "the list is that of rdma-core 44";
  }
  Names found;
  for (const std::string& name : exports_of(system)) {
    // Knowingly lacked: the interface of before 2007, which has one @, and with it
    // ibv_register_driver.
    if (name.find("@@") != std::string::npos) found.insert(name);
  }
  const Names listed = listed_symbols().versioned;
  EXPECT_THAT(difference(found, listed), IsEmpty()) << "in the system's library, but not listed";
  EXPECT_THAT(difference(listed, found), IsEmpty()) << "listed, but not in the system's library";
}

/// 2.34 as 2034.
int version_number(const std::string& text) {
  int major = 0;
  int minor = 0;
  return std::sscanf(text.c_str(), "GLIBC_%d.%d", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

// Debian 12 has 2.36. Built there, the C++ runtime inside needs that much by itself (arc4random,
// _dl_find_object); our own code stays at 2.34.
TEST(Symbols, NoLaterGlibcIsNeededThanThis) {
  constexpr int kCap = 2036;
  for (const std::string& library : {kInterposer, kSecondForm}) {
    for (const std::string& line :
         lines_of(testing::run("nm -D --undefined-only " + library).text)) {
      const std::size_t at = line.find("@GLIBC_");
      if (at == std::string::npos) continue;
      EXPECT_LE(version_number(line.substr(at + 1)), kCap) << line;
    }
  }
}

TEST(Symbols, TheCxxRuntimeIsInside) {
  for (const std::string& library : {kInterposer, kSecondForm}) {
    const std::string needed = testing::run("readelf -d " + library).text;
    EXPECT_NE(needed.find("(NEEDED)"), std::string::npos) << library;
    for (const char* name : {"libstdc++", "libibverbs"}) {
      EXPECT_EQ(needed.find(std::string("Shared library: [") + name), std::string::npos)
          << library << " " << name;
    }
    EXPECT_NE(needed.find("NOW"), std::string::npos) << library;
  }
}

}  // namespace
}  // namespace verbena::compat
