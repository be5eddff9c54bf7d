# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: the command and the NIC's libraries (install component nic), and the C++ API
# (install component api) as a CMake package with components and as pkg-config files.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(VERBENA_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/verbena")
# Apart from the linker's own folders: nobody is to get the second form of libibverbs by mistake.
set(VERBENA_NIC_DIR "${CMAKE_INSTALL_LIBDIR}/verbena")

# verbena_component(NAME ROOM room [COMPONENTS name...] [PACKAGES "name [version]"...] [MODULES prefix=module...])
#
# Makes `verbena::NAME` of a room, in the build and in the package: find_package(verbena COMPONENTS NAME), and
# pkg-config verbena-NAME. In the build the room's static library itself is without the MODULES, for programs that bring
# what they stand for.
#   COMPONENTS   others that it needs
#   PACKAGES     what find_package has to find for it, beside the compiler's own
#   MODULES      what pkg-config has to find for it; PkgConfig::prefix is linked
function(verbena_component name)
  cmake_parse_arguments(PARSE_ARGV 1 component "" "ROOM" "COMPONENTS;PACKAGES;MODULES")
  set(library "verbena_${component_ROOM}")
  set(target "verbena_component_${name}")
  get_target_property(kind ${library} TYPE)
  set(scope PUBLIC)
  if(kind STREQUAL INTERFACE_LIBRARY)
    set(scope INTERFACE)
  endif()
  target_include_directories(${library} ${scope}
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_features(${library} ${scope} cxx_std_23)

  add_library(${target} INTERFACE)
  target_link_libraries(${target} INTERFACE ${library})
  foreach(other IN LISTS component_COMPONENTS)
    target_link_libraries(${target} INTERFACE verbena_component_${other})
  endforeach()
  foreach(module IN LISTS component_MODULES)
    string(REGEX REPLACE "=.*" "" prefix "${module}")
    target_link_libraries(${target} INTERFACE PkgConfig::${prefix})
    # Of the library itself, too, or a linker that goes from left to right may come to it after the module.
    target_link_libraries(${library} INTERFACE $<INSTALL_INTERFACE:PkgConfig::${prefix}>)
  endforeach()
  if(component_MODULES)  # in the build a linker may come to the library after the module
    target_link_options(${target} INTERFACE $<BUILD_INTERFACE:LINKER:--no-as-needed>)
  endif()
  add_library(verbena::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name}_unlinked)

  install(TARGETS ${library} ${target} EXPORT verbena-${name}
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT api)
  install(EXPORT verbena-${name} NAMESPACE verbena:: FILE verbena-${name}-targets.cmake
          DESTINATION "${VERBENA_PACKAGE_DIR}" COMPONENT api)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/component.cmake.in" "verbena-${name}.cmake" @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/verbena-${name}.cmake"
          DESTINATION "${VERBENA_PACKAGE_DIR}" COMPONENT api)
  _verbena_pkg_config(${name} ${library} ${kind} "${component_COMPONENTS}" "${component_PACKAGES}"
                      "${component_MODULES}")
endfunction()

# Writes verbena-NAME.pc. What find_package calls a package pkg-config calls a module of the same name, but for Boost,
# whose headers stand where the compiler looks anyway, and threads, which are the C library's.
function(_verbena_pkg_config name library kind components packages modules)
  set(requires "")
  foreach(other IN LISTS components)
    list(APPEND requires "verbena-${other}")
  endforeach()
  foreach(package IN LISTS packages)
    if(package MATCHES "^([^ ]+) ([0-9.]+)")
      list(APPEND requires "${CMAKE_MATCH_1} >= ${CMAKE_MATCH_2}")
    else()
      string(REGEX REPLACE " .*" "" package "${package}")
      list(APPEND requires "${package}")
    endif()
  endforeach()
  list(FILTER requires EXCLUDE REGEX "^(Boost|Threads)")
  foreach(module IN LISTS modules)
    string(REGEX REPLACE ".*=" "" module "${module}")
    list(APPEND requires "${module}")
  endforeach()
  list(JOIN requires ", " requires)
  set(libraries "")
  if(NOT kind STREQUAL INTERFACE_LIBRARY)
    set(libraries "-L\${libdir} -l${library}")
  endif()
  # Relative to the file, so that the prefix may be moved.
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/component.pc.in" "verbena-${name}.pc" @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/verbena-${name}.pc"
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT api)
endfunction()

# Once, whatever components there are.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/verbena" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT api
        FILES_MATCHING PATTERN "*.h")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/verbena-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_SOURCE_DIR}/cmake/verbena-config.cmake"
              "${PROJECT_BINARY_DIR}/verbena-config-version.cmake"
        DESTINATION "${VERBENA_PACKAGE_DIR}" COMPONENT api)
