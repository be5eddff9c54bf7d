// SPDX-License-Identifier: Apache-2.0
#include "tools/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tools/testing.h"

namespace verbena::tools {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string sentence(const std::string& name, const std::string& search_path = "/usr/bin:/bin") {
  const auto program = find_program(name, search_path);
  return program ? "no error" : program.error().message;
}

/// The first 4 KiB of a program, with the interpreter of its own.
std::string elf_with_interpreter(const std::string& interpreter) {
  std::ifstream file("/bin/sh", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto at = text.find("/lib64/ld-linux");
  if (at == std::string::npos) return {};
  text.replace(at, interpreter.size() + 1, interpreter.c_str(), interpreter.size() + 1);
  return text;
}

TEST(FindProgram, SearchesThePath) {
  const testing::Folder folder;
  folder.write("tool", "#!/bin/sh\n", 0644);
  const auto second = folder.write("b/tool", "#!/bin/sh\n", 0755);
  const auto program = find_program("tool", folder.path() + ":" + folder.file("b"));
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->path, second);
  EXPECT_THAT(program->runtimes, IsEmpty());
}

TEST(FindProgram, SaysWhatIsMissing) {
  const auto program = find_program("no-such-program", "/usr/bin");
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().condition, std::errc::no_such_file_or_directory);
  EXPECT_EQ(program.error().message, "there is no program no-such-program");
  EXPECT_EQ(sentence("/nowhere/tool"), "there is no program /nowhere/tool");
  EXPECT_EQ(find_program("/nowhere/tool", "").error().condition,
            std::errc::no_such_file_or_directory);
  EXPECT_EQ(find_program("", "/usr/bin").error().condition, std::errc::no_such_file_or_directory);
}

TEST(FindProgram, RefusesWhatCannotBeExecuted) {
  const testing::Folder folder;
  folder.write("text", "words\n", 0644);
  EXPECT_THAT(sentence(folder.file("text")), EndsWith("text is not executable by you"));
  EXPECT_THAT(sentence("text", folder.path()), EndsWith("text is not executable by you"));
  EXPECT_THAT(sentence(folder.path()), HasSubstr("is not a program but a folder"));
}

TEST(FindProgram, RefusesStaticAndMuslPrograms) {
  const testing::Folder folder;
  const auto musl = elf_with_interpreter("/lib/ld-musl.so.1");
  ASSERT_FALSE(musl.empty());
  EXPECT_THAT(sentence(folder.write("musl", musl, 0755)), HasSubstr("is linked to musl"));
  EXPECT_THAT(sentence(folder.write("static", elf_with_interpreter(""), 0755)),
              HasSubstr("is linked statically"));
  EXPECT_EQ(sentence(folder.write("own", elf_with_interpreter("/lib64/ld-linux"), 0755)),
            "no error");
}

TEST(FindProgram, RefusesSetuidToOthers) {
  const testing::Folder folder;
  // Our own file may be set to our own user: the loader sees no change of rights.
  EXPECT_EQ(sentence(folder.write("own", elf_with_interpreter("/lib64/ld-linux"), 04755)),
            "no error");
  const char* foreign = "/usr/bin/passwd";  // setuid root on every system
  if (getuid() != 0 && access(foreign, X_OK) == 0) {
    EXPECT_THAT(sentence(foreign), HasSubstr("is setuid to another user"));
  }
}

TEST(FindProgram, FollowsScripts) {
  const testing::Folder folder;
  const auto good = folder.write("good", "#! /bin/sh -e\n", 0755);
  const auto program = find_program(good, "");
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->path, good);
  const auto statics = folder.write("static", elf_with_interpreter(""), 0755);
  EXPECT_THAT(sentence(folder.write("bad", "#!" + statics + "\n", 0755)),
              HasSubstr("is linked statically"));
  EXPECT_THAT(sentence(folder.write("lost", "#!/nowhere/sh\n", 0755)),
              HasSubstr("there is no program /nowhere/sh"));
  const auto self = folder.file("self");
  EXPECT_THAT(sentence(folder.write("self", "#!" + self + "\n", 0755)),
              HasSubstr("too many interpreters"));
  EXPECT_EQ(sentence(folder.write("plain", "echo hello\n", 0755)), "no error");
  EXPECT_EQ(sentence(folder.write("empty", "", 0755)), "no error");
}

}  // namespace
}  // namespace verbena::tools
