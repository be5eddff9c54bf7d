# SPDX-License-Identifier: Apache-2.0
# How every target of ours is compiled: language, warnings, output folders, compiler cache.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

find_program(VERBENA_CCACHE ccache)
if(VERBENA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A user without a home of its own (nobody, many a CI) cannot use the cache.
  execute_process(COMMAND sh -c [[d=$("$0" -k cache_dir) && mkdir -p "$d" && test -w "$d"]]
                          "${VERBENA_CCACHE}"
                  RESULT_VARIABLE ccache_status OUTPUT_QUIET ERROR_QUIET)
  if(ccache_status EQUAL 0)
    # What one clone has compiled is found from every other.
    set(launcher env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1)
    if(VERBENA_PCH)  # else it does not look at what uses a precompiled header
      list(APPEND launcher CCACHE_SLOPPINESS=pch_defines,time_macros)
    endif()
    list(APPEND launcher "${VERBENA_CCACHE}")
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  endif()
endif()

# Linked by every target of ours, and by nothing else.
add_library(verbena_flags INTERFACE)
target_compile_options(verbena_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Werror
  # clang counts sign conversions under -Wconversion, GCC does not: one rule for both.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>
  # The same precompiled header is the same file, whenever it was made (for ccache).
  $<$<AND:$<BOOL:${VERBENA_PCH}>,$<COMPILE_LANGUAGE:CXX>>:SHELL:-Xclang\ -fno-pch-timestamp>)
# GCC's choice for a structure of some hundred bytes is one instruction (rep stos, rep movs) that takes
# longer to begin than stores take.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(verbena_flags INTERFACE
    -mmemset-strategy=vector_loop:512:noalign,libcall:-1:noalign
    -mmemcpy-strategy=vector_loop:512:noalign,libcall:-1:noalign)
endif()
# Rooms compiled for both ways of linking: as a whole where a target asks for it, else as ever.
if(VERBENA_LTO)
  set(VERBENA_ROOM_OPTIONS -flto=auto -ffat-lto-objects)
  target_link_options(verbena_flags INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:VERBENA_WHOLE>>,-flto=auto,-fno-lto>)
endif()
# What was executed is noted in a file for each object, to be used from the same build folder.
set(profile "${CMAKE_BINARY_DIR}/profile")
if(VERBENA_PROFILE STREQUAL "make")
  list(APPEND VERBENA_ROOM_OPTIONS "-fprofile-generate=${profile}" -fprofile-update=prefer-atomic)
  target_link_options(verbena_flags INTERFACE -fprofile-generate)
elseif(VERBENA_PROFILE STREQUAL "use")
  if(NOT EXISTS "${profile}")
    message(FATAL_ERROR "There is no profile in ${profile}: scripts/build-profiled makes one")
  endif()
  # What it did not come to may still matter elsewhere: it is not made small in place of fast. Some
  # sources are no part of the library, and have none.
  list(APPEND VERBENA_ROOM_OPTIONS "-fprofile-use=${profile}" -fprofile-partial-training
       -Wno-missing-profile)
elseif(VERBENA_PROFILE)
  message(FATAL_ERROR "VERBENA_PROFILE is '${VERBENA_PROFILE}', not make or use")
endif()
if(VERBENA_PROFILE AND NOT (VERBENA_LTO AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
  message(FATAL_ERROR "VERBENA_PROFILE takes VERBENA_LTO and GCC")
endif()
target_compile_definitions(verbena_flags INTERFACE
  _GNU_SOURCE $<$<BOOL:${VERBENA_MUTANTS}>:VERBENA_MUTANTS=1>)
