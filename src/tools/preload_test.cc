// SPDX-License-Identifier: Apache-2.0
#include "tools/preload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/testing.h"

namespace verbena::tools {
namespace {

using ::testing::HasSubstr;

TEST(FindLibrary, LooksBesideTheCommand) {
  for (const auto* place : {"lib/libverbena.so", "lib/verbena/libverbena.so",
                            "lib/x86_64-linux-gnu/verbena/libverbena.so"}) {
    const testing::Folder folder;
    folder.write("bin/verbena", "");
    const auto library = folder.write(place, "");
    const auto found = find_library(folder.file("bin"));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, library);
  }
}

TEST(FindLibrary, SaysWhereItShouldBe) {
  const testing::Folder folder;
  const auto found = find_library(folder.file("bin"));
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().condition, std::errc::no_such_file_or_directory);
  EXPECT_THAT(found.error().message, HasSubstr(folder.file("bin/../lib/libverbena.so")));
}

TEST(PreloadValue, PutsSanitizersFirstAndKeepsWhatIsThere) {
  const std::vector<std::string> none;
  const std::vector<std::string> runtime{"libasan.so.8"};
  EXPECT_EQ(preload_value("/v/libverbena.so", none, ""), "/v/libverbena.so");
  EXPECT_EQ(preload_value("/v/libverbena.so", none, "/a.so:/b.so"), "/v/libverbena.so:/a.so:/b.so");
  EXPECT_EQ(preload_value("/v/libverbena.so", runtime, "/a.so"),
            "libasan.so.8:/v/libverbena.so:/a.so");
}

TEST(PreloadValue, NamesNothingTwice) {
  const std::vector<std::string> none;
  EXPECT_EQ(preload_value("/v.so", none, "/a.so /v.so::/a.so :"), "/v.so:/a.so");
}

TEST(PreloadValue, RefusesPathsThatTheLoaderWouldCut) {
  const std::vector<std::string> none;
  for (const auto* path : {"/my lib/libverbena.so", "/a:b/libverbena.so"}) {
    const auto value = preload_value(path, none, "");
    ASSERT_FALSE(value);
    EXPECT_THAT(value.error().message, HasSubstr("LD_PRELOAD"));
  }
}

}  // namespace
}  // namespace verbena::tools
