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
  target_link_options(verbena_flags INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:VERBENA_WHOLE>>,-flto=auto,-fno-lto>)
endif()
target_compile_definitions(verbena_flags INTERFACE
  _GNU_SOURCE $<$<BOOL:${VERBENA_MUTANTS}>:VERBENA_MUTANTS=1>)
