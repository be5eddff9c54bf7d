# SPDX-License-Identifier: Apache-2.0
# Libraries from the distribution. scripts/install-deps names their packages.

find_package(Threads REQUIRED)
# fmt's headers are in the system's include folder; src/base/fmt_library.cc compiles its body.
find_package(fmt 9 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(ibverbs REQUIRED IMPORTED_TARGET libibverbs)
pkg_check_modules(rdmacm REQUIRED IMPORTED_TARGET librdmacm)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
# Headers only: for include/verbena/asio.h.
find_package(Boost 1.81 REQUIRED)

if(VERBENA_TESTS)
  find_package(GTest REQUIRED)
  find_package(ZLIB REQUIRED)  # the oracle for our CRC
endif()
if(VERBENA_BENCH)
  find_package(benchmark REQUIRED)
endif()
