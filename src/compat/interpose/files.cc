// SPDX-License-Identifier: Apache-2.0
// The C library's functions that take a path, so that programs find the files of our devices. Every
// other path goes on unchanged. Each function has the symbol that its asm label names: the C
// library's headers declare some of them with inline bodies, which a definition of the same name
// would run into.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

#include "compat/abi.h"
#include "compat/cm_files.h"
#include "compat/file_tree.h"
#include "compat/interpose/next.h"
#include "compat/interpose/rdma_cm.h"

namespace verbena::compat::interpose {
namespace {

template <typename R>
R missing() {
  errno = ENOSYS;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else {
    return static_cast<R>(-1);
  }
}

/// Calls the next function of that name with the path that is meant.
template <real::Name kName, typename R, typename... Rest>
R with_path(const char* path, Rest... rest) {
  auto* const function = next<kName, R(const char*, Rest...)>();
  if (function == nullptr) return missing<R>();
  PathRoom room;
  return function(redirect(path, room), rest...);
}

/// The same for functions that begin with the descriptor of a folder, which an absolute path
/// ignores.
template <real::Name kName, typename R, typename... Rest>
R with_path_at(int folder, const char* path, Rest... rest) {
  auto* const function = next<kName, R(int, const char*, Rest...)>();
  if (function == nullptr) return missing<R>();
  PathRoom room;
  return function(folder, redirect(path, room), rest...);
}

/// The stat functions: on a path, and on a path in a folder or on the folder's descriptor itself,
/// for which the path is empty.
template <real::Name kName>
int describe(const char* path, struct stat* to) {
  return is_cm_node(path) ? describe_cm_node(to) : with_path<kName, int>(path, to);
}

bool is_opened_rdma_cm_at(int folder, const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && is_opened_rdma_cm(folder) &&
         (path == nullptr || *path == '\0');
}

template <real::Name kName>
int describe_at(int folder, const char* path, struct stat* to, int flags) {
  if (is_cm_node(path) || is_opened_rdma_cm_at(folder, path, flags)) return describe_cm_node(to);
  return with_path_at<kName, int>(folder, path, to, flags);
}

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

/// The mode of an open, which is there only when the flags say so.
unsigned int mode_of(int flags, va_list arguments) {
  return takes_mode(flags) ? va_arg(arguments, unsigned int) : 0;
}

template <real::Name kName>
int open_path(const char* path, int flags, unsigned int mode) {
  if (is_cm_node(path)) return open_cm_node(flags);
  auto* const function = next<kName, int(const char*, int, ...)>();
  if (function == nullptr) return missing<int>();
  PathRoom room;
  return function(redirect(path, room), flags, mode);
}

template <real::Name kName>
int open_path_at(int folder, const char* path, int flags, unsigned int mode) {
  if (is_cm_node(path)) return open_cm_node(flags);
  auto* const function = next<kName, int(int, const char*, int, ...)>();
  if (function == nullptr) return missing<int>();
  PathRoom room;
  return function(folder, redirect(path, room), flags, mode);
}

}  // namespace

// Opening.

VERBENA_EXPORT int open_entry(const char* path, int flags, ...) __asm__("open");
VERBENA_EXPORT int open64_entry(const char* path, int flags, ...) __asm__("open64");
VERBENA_EXPORT int openat_entry(int folder, const char* path, int flags, ...) __asm__("openat");
VERBENA_EXPORT int openat64_entry(int folder, const char* path, int flags, ...) __asm__("openat64");

int open_entry(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned int mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_path<"open">(path, flags, mode);
}

int open64_entry(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned int mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_path<"open64">(path, flags, mode);
}

int openat_entry(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned int mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_path_at<"openat">(folder, path, flags, mode);
}

int openat64_entry(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned int mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_path_at<"openat64">(folder, path, flags, mode);
}

// What _FORTIFY_SOURCE makes of open() without a mode.
VERBENA_EXPORT int open_2_entry(const char* path, int flags) __asm__("__open_2");
VERBENA_EXPORT int open64_2_entry(const char* path, int flags) __asm__("__open64_2");
VERBENA_EXPORT int openat_2_entry(int folder, const char* path, int flags) __asm__("__openat_2");
VERBENA_EXPORT int openat64_2_entry(int folder, const char* path,
                                    int flags) __asm__("__openat64_2");

int open_2_entry(const char* path, int flags) {
  if (is_cm_node(path)) return open_cm_node(flags);
  return with_path<"__open_2", int>(path, flags);
}
int open64_2_entry(const char* path, int flags) {
  if (is_cm_node(path)) return open_cm_node(flags);
  return with_path<"__open64_2", int>(path, flags);
}
int openat_2_entry(int folder, const char* path, int flags) {
  if (is_cm_node(path)) return open_cm_node(flags);
  return with_path_at<"__openat_2", int>(folder, path, flags);
}
int openat64_2_entry(int folder, const char* path, int flags) {
  if (is_cm_node(path)) return open_cm_node(flags);
  return with_path_at<"__openat64_2", int>(folder, path, flags);
}

VERBENA_EXPORT FILE* fopen_entry(const char* path, const char* mode) __asm__("fopen");
VERBENA_EXPORT FILE* fopen64_entry(const char* path, const char* mode) __asm__("fopen64");
VERBENA_EXPORT void* opendir_entry(const char* path) __asm__("opendir");
VERBENA_EXPORT int scandir_entry(const char* path, void* list, void* filter,
                                 void* order) __asm__("scandir");
VERBENA_EXPORT int scandir64_entry(const char* path, void* list, void* filter,
                                   void* order) __asm__("scandir64");

FILE* fopen_entry(const char* path, const char* mode) {
  return with_path<"fopen", FILE*>(path, mode);
}
FILE* fopen64_entry(const char* path, const char* mode) {
  return with_path<"fopen64", FILE*>(path, mode);
}
void* opendir_entry(const char* path) { return with_path<"opendir", void*>(path); }
int scandir_entry(const char* path, void* list, void* filter, void* order) {
  return with_path<"scandir", int>(path, list, filter, order);
}
int scandir64_entry(const char* path, void* list, void* filter, void* order) {
  return with_path<"scandir64", int>(path, list, filter, order);
}

// Looking. The `__xstat` family is what programs call that were built before glibc 2.33; on 64-bit
// machines its structs are those of today, and the C library has it for linked programs only, so it
// ends in today's functions.

VERBENA_EXPORT int stat_entry(const char* path, struct stat* to) __asm__("stat");
VERBENA_EXPORT int stat64_entry(const char* path, struct stat* to) __asm__("stat64");
VERBENA_EXPORT int lstat_entry(const char* path, struct stat* to) __asm__("lstat");
VERBENA_EXPORT int lstat64_entry(const char* path, struct stat* to) __asm__("lstat64");
VERBENA_EXPORT int fstatat_entry(int folder, const char* path, struct stat* to,
                                 int flags) __asm__("fstatat");
VERBENA_EXPORT int fstatat64_entry(int folder, const char* path, struct stat* to,
                                   int flags) __asm__("fstatat64");
VERBENA_EXPORT int statx_entry(int folder, const char* path, int flags, unsigned int mask,
                               struct statx* to) __asm__("statx");
VERBENA_EXPORT int xstat_entry(int version, const char* path, struct stat* to) __asm__("__xstat");
VERBENA_EXPORT int xstat64_entry(int version, const char* path,
                                 struct stat* to) __asm__("__xstat64");
VERBENA_EXPORT int lxstat_entry(int version, const char* path, struct stat* to) __asm__("__lxstat");
VERBENA_EXPORT int lxstat64_entry(int version, const char* path,
                                  struct stat* to) __asm__("__lxstat64");
VERBENA_EXPORT int fxstatat_entry(int version, int folder, const char* path, struct stat* to,
                                  int flags) __asm__("__fxstatat");
VERBENA_EXPORT int fxstatat64_entry(int version, int folder, const char* path, struct stat* to,
                                    int flags) __asm__("__fxstatat64");

int stat_entry(const char* path, struct stat* to) { return describe<"stat">(path, to); }
int stat64_entry(const char* path, struct stat* to) { return describe<"stat64">(path, to); }
int lstat_entry(const char* path, struct stat* to) { return describe<"lstat">(path, to); }
int lstat64_entry(const char* path, struct stat* to) { return describe<"lstat64">(path, to); }
int fstatat_entry(int folder, const char* path, struct stat* to, int flags) {
  return describe_at<"fstatat">(folder, path, to, flags);
}
int fstatat64_entry(int folder, const char* path, struct stat* to, int flags) {
  return describe_at<"fstatat64">(folder, path, to, flags);
}
int statx_entry(int folder, const char* path, int flags, unsigned int mask, struct statx* to) {
  if (is_cm_node(path) || is_opened_rdma_cm_at(folder, path, flags))
    return describe_cm_node(to, mask);
  return with_path_at<"statx", int>(folder, path, flags, mask, to);
}
int xstat_entry(int /*version*/, const char* path, struct stat* to) {
  return describe<"stat">(path, to);
}
int xstat64_entry(int /*version*/, const char* path, struct stat* to) {
  return describe<"stat64">(path, to);
}
int lxstat_entry(int /*version*/, const char* path, struct stat* to) {
  return describe<"lstat">(path, to);
}
int lxstat64_entry(int /*version*/, const char* path, struct stat* to) {
  return describe<"lstat64">(path, to);
}
int fxstatat_entry(int /*version*/, int folder, const char* path, struct stat* to, int flags) {
  return describe_at<"fstatat">(folder, path, to, flags);
}
int fxstatat64_entry(int /*version*/, int folder, const char* path, struct stat* to, int flags) {
  return describe_at<"fstatat64">(folder, path, to, flags);
}

VERBENA_EXPORT int access_entry(const char* path, int mode) __asm__("access");
VERBENA_EXPORT int faccessat_entry(int folder, const char* path, int mode,
                                   int flags) __asm__("faccessat");
VERBENA_EXPORT int eaccess_entry(const char* path, int mode) __asm__("eaccess");
VERBENA_EXPORT int euidaccess_entry(const char* path, int mode) __asm__("euidaccess");

int access_entry(const char* path, int mode) { return with_path<"access", int>(path, mode); }
int faccessat_entry(int folder, const char* path, int mode, int flags) {
  return with_path_at<"faccessat", int>(folder, path, mode, flags);
}
int eaccess_entry(const char* path, int mode) { return with_path<"eaccess", int>(path, mode); }
int euidaccess_entry(const char* path, int mode) {
  return with_path<"euidaccess", int>(path, mode);
}

// Links.

VERBENA_EXPORT ssize_t readlink_entry(const char* path, char* to, size_t size) __asm__("readlink");
VERBENA_EXPORT ssize_t readlink_chk_entry(const char* path, char* to, size_t size,
                                          size_t room) __asm__("__readlink_chk");
VERBENA_EXPORT ssize_t readlinkat_entry(int folder, const char* path, char* to,
                                        size_t size) __asm__("readlinkat");
VERBENA_EXPORT ssize_t readlinkat_chk_entry(int folder, const char* path, char* to, size_t size,
                                            size_t room) __asm__("__readlinkat_chk");
VERBENA_EXPORT char* realpath_entry(const char* path, char* to) __asm__("realpath");
VERBENA_EXPORT char* realpath_chk_entry(const char* path, char* to,
                                        size_t room) __asm__("__realpath_chk");
VERBENA_EXPORT char* canonicalize_entry(const char* path) __asm__("canonicalize_file_name");

ssize_t readlink_entry(const char* path, char* to, size_t size) {
  return with_path<"readlink", ssize_t>(path, to, size);
}
ssize_t readlink_chk_entry(const char* path, char* to, size_t size, size_t room) {
  return with_path<"__readlink_chk", ssize_t>(path, to, size, room);
}
ssize_t readlinkat_entry(int folder, const char* path, char* to, size_t size) {
  return with_path_at<"readlinkat", ssize_t>(folder, path, to, size);
}
ssize_t readlinkat_chk_entry(int folder, const char* path, char* to, size_t size, size_t room) {
  return with_path_at<"__readlinkat_chk", ssize_t>(folder, path, to, size, room);
}
char* realpath_entry(const char* path, char* to) { return with_path<"realpath", char*>(path, to); }
char* realpath_chk_entry(const char* path, char* to, size_t room) {
  return with_path<"__realpath_chk", char*>(path, to, room);
}
char* canonicalize_entry(const char* path) {
  return with_path<"canonicalize_file_name", char*>(path);
}

}  // namespace verbena::compat::interpose
