# SPDX-License-Identifier: Apache-2.0
# A room is a folder with one static library, one test binary and its fuzz targets.

if(VERBENA_TESTS)
  add_custom_target(tests)  # the rooms' test binaries and the replays of the fuzz targets' corpus
endif()
if(VERBENA_FUZZ)
  add_custom_target(fuzzers)  # all of them
endif()

# verbena_add_rooms(FOLDER...): add_subdirectory for those that are there.
function(verbena_add_rooms)
  foreach(folder IN LISTS ARGN)
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt")
      add_subdirectory("${folder}")
    endif()
  endforeach()
endfunction()

# verbena_room(NAME [LABEL unit] [SERIAL] [COLD] [APART] [DEPENDS room...] [LIBS target...]
#              [TEST_LIBS target...] [EXCLUDE file...])
#
# Builds from the current folder, by the names of its files:
#   *.cc             static library verbena_NAME (main.cc and EXCLUDE are left out)
#   *_test.cc        bin/NAME_test, one GoogleTest binary, one ctest with that LABEL
#   x_fuzz.cc        corpus replay as a ctest; with VERBENA_FUZZ also bin/NAME_x_fuzz
# SERIAL is for tests that live in real time: no other test runs beside them. COLD is for sources whose
# speed is no matter: they are built the quick way, as tests are. APART is for rooms that are no part of
# libverbena.so: they are compiled for ordinary linking only.
# The folder's parent is the include root: #include "NAME/file.h".
function(verbena_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "SERIAL;COLD;APART" "LABEL" "DEPENDS;LIBS;TEST_LIBS;EXCLUDE")
  if(NOT room_LABEL)
    set(room_LABEL unit)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main)\\.cc$")
  list(TRANSFORM room_EXCLUDE PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  list(REMOVE_ITEM sources ${room_EXCLUDE})
  list(TRANSFORM room_DEPENDS PREPEND verbena_)

  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR PARENT_PATH include_root)
  if(sources)
    add_library(verbena_${name} STATIC ${sources})
    target_link_libraries(verbena_${name} PRIVATE $<BUILD_INTERFACE:verbena_flags>)
    if(room_COLD)
      _verbena_build_quickly(verbena_${name})
    else()
      _verbena_precompile(verbena_${name} verbena_base precompiled.h)
    endif()
    if(VERBENA_LTO AND NOT room_APART)
      target_compile_options(verbena_${name} PRIVATE ${VERBENA_ROOM_OPTIONS})
    endif()
    set(scope PUBLIC)
  else()
    add_library(verbena_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(verbena_${name} ${scope} "$<BUILD_INTERFACE:${include_root}>")
  target_link_libraries(verbena_${name} ${scope} ${room_DEPENDS} ${room_LIBS})

  if(VERBENA_TESTS)
    _verbena_room_tests(${name} ${room_LABEL} "${tests}" "${room_TEST_LIBS}")
    if(room_SERIAL AND tests)
      set_tests_properties(${name}_test PROPERTIES RUN_SERIAL ON)
    endif()
    foreach(fuzzer IN LISTS fuzzers)
      _verbena_room_fuzzer(${name} "${fuzzer}")
    endforeach()
  endif()
endfunction()

# Sanitizers (all with clang) make optimizing take long.
function(_verbena_build_quickly target)
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:RelWithDebInfo>:$<IF:$<CXX_COMPILER_ID:Clang>,-O0,-O1> -g1>)
endfunction()

# Where VERBENA_PCH is on, all share what the first of their kind precompiles: same flags, same headers.
function(_verbena_precompile target first header)
  if(NOT VERBENA_PCH)
    return()
  elseif(target STREQUAL first)
    target_precompile_headers(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/${header}")
  elseif(TARGET ${first})
    target_precompile_headers(${target} REUSE_FROM ${first})
  endif()
endfunction()

# One ctest for each binary: starting a process per case would cost more than the cases do.
# The report says how many cases ran.
function(_verbena_room_tests name label sources libs)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  _verbena_build_quickly(${name}_test)
  target_link_libraries(${name}_test PRIVATE
    verbena_flags verbena_${name} ${libs} GTest::gmock GTest::gtest GTest::gtest_main)
  _verbena_precompile(${name}_test base_test precompiled_test.h)
  add_dependencies(tests ${name}_test)
  add_test(NAME ${name}_test
           COMMAND ${name}_test "--gtest_output=json:${CMAKE_BINARY_DIR}/reports/${name}_test.json")
  set_tests_properties(${name}_test PROPERTIES LABELS ${label} TIMEOUT 600)
endfunction()

function(_verbena_room_fuzzer name source)
  cmake_path(GET source STEM stem)
  string(REGEX REPLACE "_fuzz$" "" subject "${stem}")
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${subject}")

  add_executable(${name}_${subject}_replay "${source}" "${PROJECT_SOURCE_DIR}/tests/fuzz/replay.cc")
  target_link_libraries(${name}_${subject}_replay PRIVATE verbena_flags verbena_${name})
  add_dependencies(tests ${name}_${subject}_replay)
  add_test(NAME ${name}_${subject}_corpus COMMAND ${name}_${subject}_replay "${corpus}")
  set_tests_properties(${name}_${subject}_corpus PROPERTIES LABELS corpus TIMEOUT 300)

  if(VERBENA_FUZZ)
    add_executable(${name}_${subject}_fuzz "${source}")
    target_link_libraries(${name}_${subject}_fuzz PRIVATE verbena_flags verbena_${name})
    target_link_options(${name}_${subject}_fuzz PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name}_${subject}_fuzz)
  endif()
endfunction()
