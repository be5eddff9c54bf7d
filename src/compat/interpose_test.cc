// SPDX-License-Identifier: Apache-2.0
// The interposer in other programs: files of devices, dlopen, and what is left behind (nothing).
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "compat/abi.h"
#include "compat/test_command.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(__LLVM_INSTR_PROFILE_GENERATE)
#define VERBENA_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VERBENA_INSTRUMENTED 1
#endif
#endif

namespace verbena::compat {
namespace {

namespace fs = std::filesystem;
using testing::Output;
using testing::TemporaryFolder;

class PreloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef VERBENA_INSTRUMENTED
    GTEST_SKIP() << "an instrumented library cannot be preloaded into a program that is not";
#endif
  }
  /// Runs a command under the interposer, without a settings file, its files in `folder`.
  Output preloaded(const std::string& command) const {
    return testing::run(
        "env -u VERBENA_ADDR VERBENA_CONFIG= XDG_RUNTIME_DIR=" + folder.path().string() +
        " LD_PRELOAD=" VERBENA_LIBRARY_DIR "/libverbena.so " + command + " 2>&1");
  }

  TemporaryFolder folder;
};

TEST_F(PreloadTest, ProgramsReadTheFilesOfADevice) {
  EXPECT_EQ(preloaded("cat /sys/class/infiniband/vrb0/node_type").text, "1: CA\n");
  EXPECT_EQ(preloaded("cat /sys/class/infiniband/vrb0/ports/1/gid_attrs/types/0").text,
            "RoCE v2\n");
  EXPECT_EQ(preloaded("cat /sys/class/infiniband/vrb0/ports/1/link_layer").text, "Ethernet\n");
  EXPECT_EQ(preloaded("cat /sys/class/infiniband_verbs/uverbs900/ibdev").text, "vrb0\n");
  EXPECT_NE(preloaded("cat /sys/class/infiniband_verbs/uverbs900/device/numa_node").text, "");
  EXPECT_NE(preloaded("ls /sys/class/infiniband").text.find("vrb0\n"), std::string::npos);
  EXPECT_EQ(preloaded("ls /sys/class/infiniband/vrb0/ports").text, "1\n");
  EXPECT_EQ(preloaded("stat -L -c %F /dev/infiniband/uverbs900").text, "character special file\n");
  EXPECT_EQ(preloaded("test -w /dev/infiniband/uverbs900").status, 0);
  EXPECT_NE(preloaded("cat /sys/class/infiniband/vrb0/no_such_file").status, 0);
  EXPECT_NE(preloaded("cat /sys/class/infiniband/other0/node_type").status, 0);
}

TEST_F(PreloadTest, ProgramsReadTheFilesOfRdmaCm) {
  EXPECT_EQ(preloaded("stat -c '%F %a' /dev/infiniband/rdma_cm").text,
            "character special file 666\n");
  EXPECT_EQ(preloaded("test -w /dev/infiniband/rdma_cm").status, 0);
  EXPECT_NE(preloaded("ls /dev/infiniband").text.find("rdma_cm\n"), std::string::npos);
  EXPECT_EQ(preloaded("cat /sys/class/misc/rdma_cm/abi_version").text, "4\n");
  const std::string number = preloaded("cat /sys/class/misc/rdma_cm/dev").text;
  EXPECT_EQ(number.substr(0, 3), "10:") << number;
  EXPECT_EQ(preloaded("ls /sys/class/infiniband/vrb0/device/net/").text, "lo\n");
  EXPECT_EQ(preloaded("cat /sys/class/infiniband/vrb0/device/net/lo/ifindex").text, "1\n");
}

TEST_F(PreloadTest, NothingIsLeftBehind) {
  EXPECT_EQ(preloaded("cat /sys/class/infiniband/vrb0/node_type").status, 0);
  EXPECT_EQ(folder.entries(), 0U);
  EXPECT_EQ(preloaded("cat /etc/hostname /dev/null").status, 0);
  EXPECT_EQ(folder.entries(), 0U);
}

TEST_F(PreloadTest, TheNextProcessRemovesWhatAKilledOneLeft) {
  preloaded("sh -c 'read line < /sys/class/infiniband/vrb0/node_type; kill -9 $$'");
  EXPECT_EQ(folder.entries(), 1U);
  EXPECT_EQ(preloaded("cat /sys/class/infiniband/vrb0/node_type").text, "1: CA\n");
  EXPECT_EQ(folder.entries(), 0U);
}

TEST_F(PreloadTest, ThisProgramSeesOurLibraryInsteadOfTheSystems) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const Output output = preloaded("env VERBENA_TEST_INSIDE=1 " + self +
                                  " --gtest_filter='InsidePreload.*' --gtest_brief=1");
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_EQ(output.text.find("SKIPPED"), std::string::npos) << output.text;
}

TEST_F(PreloadTest, TheSecondFormServesProgramsByItself) {
  const Output output =
      testing::run("env -u VERBENA_ADDR VERBENA_CONFIG= LD_LIBRARY_PATH=" VERBENA_LIBRARY_DIR
                   "/verbs ibv_devices 2>&1");
  if (output.status == 127 << 8) GTEST_SKIP() << "no ibv_devices on this machine";
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_NE(output.text.find("vrb0"), std::string::npos) << output.text;
}

TEST_F(PreloadTest, ByTheSecondFormLibrdmacmFindsTheDevice) {
  const Output output =
      testing::run("env -u VERBENA_ADDR VERBENA_CONFIG= LD_LIBRARY_PATH=" VERBENA_LIBRARY_DIR
                   "/verbs timeout 20 rping -c -a 127.0.0.1 -p 9 2>&1");
  if (output.status == 127 << 8) GTEST_SKIP() << "no rping on this machine";
  EXPECT_EQ(output.text.find("failed to create RDMA CM event channel"), std::string::npos)
      << output.text;
}

/// Runs again inside a process with the interposer, which the test above starts.
class InsidePreload : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("VERBENA_TEST_INSIDE") == nullptr)
      GTEST_SKIP() << "runs in a process of its own";
  }
};

TEST_F(InsidePreload, DlopenGivesTheSecondForm) {
  for (const char* name : {"libibverbs.so.1", "libibverbs.so"}) {
    void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << ::dlerror();
    EXPECT_NE(::dlsym(handle, "verbena_second_form"), nullptr);
    // As NCCL looks its functions up.
    EXPECT_NE(::dlvsym(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8"), nullptr);
    EXPECT_NE(::dlvsym(handle, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"), nullptr);
    auto* const get = reinterpret_cast<decltype(&ibv_get_device_list)>(
        ::dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1"));
    ASSERT_NE(get, nullptr);
    int count = 0;
    ibv_device** const list = get(&count);
    ASSERT_GE(count, 1);
    EXPECT_STREQ(list[0]->name, "vrb0");
    reinterpret_cast<decltype(&ibv_free_device_list)>(::dlsym(handle, "ibv_free_device_list"))(
        list);
  }
}

constexpr const char* kRdmaCm = "/dev/infiniband/rdma_cm";

int open_rdma_cm_node(int flags = 0) {
  const int fd = ::open(kRdmaCm, O_RDWR | O_CLOEXEC | flags);
  EXPECT_GE(fd, 0);
  return fd;
}

/// What the device says to a write that is no command: EINVAL. 0 for a file that takes it.
int answer_of(int fd) { return ::write(fd, "0123456", 7) < 0 ? errno : 0; }

// What librdmacm's open_cdev() and check_abi_version() ask.
TEST_F(InsidePreload, RdmaCmIsACharacterDevice) {
  const int fd = open_rdma_cm_node();
  struct stat by_descriptor{};
  struct stat by_path{};
  struct stat at_descriptor{};
  struct statx extended{};
  ASSERT_EQ(::fstat(fd, &by_descriptor), 0);
  ASSERT_EQ(::lstat(kRdmaCm, &by_path), 0);
  ASSERT_EQ(::fstatat(fd, "", &at_descriptor, AT_EMPTY_PATH), 0);
  ASSERT_EQ(::statx(AT_FDCWD, kRdmaCm, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &extended), 0);
  for (const struct stat& seen : {by_descriptor, by_path, at_descriptor}) {
    EXPECT_TRUE(S_ISCHR(seen.st_mode));
    EXPECT_EQ(seen.st_rdev, by_descriptor.st_rdev);
    EXPECT_EQ(major(seen.st_rdev), 10U);
  }
  EXPECT_TRUE(S_ISCHR(extended.stx_mode));
  EXPECT_EQ(makedev(extended.stx_rdev_major, extended.stx_rdev_minor), by_descriptor.st_rdev);
  EXPECT_EQ(::access(kRdmaCm, R_OK | W_OK), 0);
  EXPECT_EQ(::close(fd), 0);
}

TEST_F(InsidePreload, AWriteToRdmaCmIsACommand) {
  const int fd = open_rdma_cm_node();
  rdma_ucm_create_id_resp response{.id = 0xFFFFFFFF};
  struct {
    rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_CREATE_ID, sizeof body, sizeof response};
    rdma_ucm_create_id body{};
  } command;
  command.body.response = reinterpret_cast<std::uintptr_t>(&response);
  command.body.ps = RDMA_PS_TCP;
  EXPECT_EQ(::write(fd, &command, sizeof command), ssize_t{sizeof command});
  EXPECT_NE(response.id, 0xFFFFFFFF);
  const iovec twice[] = {{&command, sizeof command}, {&command, sizeof command}};
  EXPECT_EQ(::writev(fd, twice, 2), ssize_t{2 * sizeof command});
  EXPECT_EQ(answer_of(fd), EINVAL);
  pollfd events{.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&events, 1, 0), 0);
  EXPECT_EQ(::close(fd), 0);
  EXPECT_EQ(answer_of(fd), EBADF);
}

TEST_F(InsidePreload, RdmaCmEndsWithItsDescriptor) {
  const int file = ::open("/dev/null", O_WRONLY);
  // The number is another file's then, which takes what is written.
  int fd = open_rdma_cm_node();
  EXPECT_EQ(::dup2(-1, fd), -1);
  EXPECT_EQ(::dup3(file, fd, O_APPEND), -1);
  EXPECT_EQ(answer_of(fd), EINVAL) << "is still there when nothing took its place";
  EXPECT_EQ(::dup2(file, fd), fd);
  EXPECT_EQ(answer_of(fd), 0);
  EXPECT_EQ(::close(fd), 0);

  fd = open_rdma_cm_node();
  EXPECT_EQ(::dup3(file, fd, O_CLOEXEC), fd);
  EXPECT_EQ(answer_of(fd), 0);
  EXPECT_EQ(::close(fd), 0);

  fd = open_rdma_cm_node();
  const auto number = static_cast<unsigned int>(fd);
  EXPECT_EQ(::close_range(number, number, CLOSE_RANGE_CLOEXEC), 0);
  EXPECT_EQ(answer_of(fd), EINVAL);
  EXPECT_EQ(::close_range(number, ~0U, 0), 0);
  EXPECT_EQ(answer_of(fd), EBADF);
  EXPECT_EQ(open_rdma_cm_node(), fd);
  ::closefrom(fd);
  EXPECT_EQ(answer_of(fd), EBADF);
  EXPECT_EQ(::dup2(file, fd), fd);
  EXPECT_EQ(answer_of(fd), 0);
}

TEST_F(InsidePreload, ADuplicateOfRdmaCmIsTheSameFile) {
  const int fd = open_rdma_cm_node();
  const int file = ::open("/dev/null", O_WRONLY);
  const std::array duplicates{::dup(fd), ::dup2(fd, 700), ::dup3(fd, 701, O_CLOEXEC),
                              ::fcntl(fd, F_DUPFD, 800), ::fcntl(fd, F_DUPFD_CLOEXEC, 900)};
  EXPECT_EQ(::dup2(fd, fd), fd);
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC) << "other commands go on unchanged";
  EXPECT_EQ(::fcntl(duplicates[3], F_GETFD), 0);
  EXPECT_EQ(::fcntl(duplicates[4], F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::close(fd), 0);
  EXPECT_EQ(answer_of(fd), EBADF);
  for (const int duplicate : duplicates) {
    struct stat about{};
    EXPECT_EQ(::fstat(duplicate, &about), 0);
    EXPECT_TRUE(S_ISCHR(about.st_mode)) << duplicate;
    EXPECT_EQ(answer_of(duplicate), EINVAL) << duplicate;
    EXPECT_EQ(::dup2(file, duplicate), duplicate);
    EXPECT_EQ(answer_of(duplicate), 0) << duplicate;
  }
  EXPECT_EQ(answer_of(::dup(file)), 0);
  EXPECT_EQ(::dup(-1), -1);
}

// Python's subprocess closes all descriptors in such a child.
TEST_F(InsidePreload, AChildInItsParentsMemoryEndsNothing) {
  const int fd = open_rdma_cm_node();
  const pid_t child = ::vfork();
  if (child == 0) {
    ::close(fd);
    ::closefrom(3);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(answer_of(fd), EINVAL);
  EXPECT_EQ(::close(fd), 0);
}

TEST_F(InsidePreload, AForkedChildOpensRdmaCmAnew) {
  const int fd = open_rdma_cm_node();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool dead = answer_of(fd) == EIO;
    ::close(fd);
    const bool free = answer_of(fd) == EBADF;
    const bool works = answer_of(open_rdma_cm_node()) == EINVAL;
    ::_exit(dead && free && works ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(answer_of(fd), EINVAL);
  EXPECT_EQ(::close(fd), 0);
}

TEST_F(InsidePreload, OtherLibrariesOpenAsBefore) {
  EXPECT_NE(::dlopen(nullptr, RTLD_NOW), nullptr);
  EXPECT_NE(::dlopen("libm.so.6", RTLD_NOW), nullptr);
  EXPECT_EQ(::dlopen("no-such-library.so", RTLD_NOW), nullptr);
  EXPECT_NE(::dlerror(), nullptr);
}

TEST_F(InsidePreload, AForkedChildHasFilesOfItsOwn) {
  EXPECT_EQ(::access("/sys/class/infiniband/vrb0/fw_ver", R_OK), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::access("/sys/class/infiniband/vrb0/fw_ver", R_OK) == 0 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace verbena::compat
