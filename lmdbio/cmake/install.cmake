# The files of `cmake --install`: the C API as shared libraries with headers, man pages, a CMake
# package and pkg-config files; the C++ modules as static libraries with their headers.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lmdbio)

# lmdbio_install(EXPORT_SET EXPORT_FILE TARGETS ...)
function(lmdbio_install set file)
  install(TARGETS ${ARGN} EXPORT ${set}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/lmdbio
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT ${set} FILE ${file} NAMESPACE lmdbio:: DESTINATION ${package_dir})
endfunction()

set_target_properties(lmdbio_c PROPERTIES EXPORT_NAME lmdbio)
lmdbio_install(lmdbio-c lmdbioTargets.cmake lmdbio_c)
set(c_libraries lmdbio)
set(man_headers ${CMAKE_CURRENT_SOURCE_DIR}/api/c/lmdbio.h
                ${CMAKE_CURRENT_SOURCE_DIR}/api/c/lmdbio_feed.h
                ${CMAKE_CURRENT_SOURCE_DIR}/api/c/lmdbio_sync.h)
if(LMDBIO_WITH_MPI)
  set_target_properties(lmdbio_c_mpi PROPERTIES EXPORT_NAME lmdbio_mpi INSTALL_RPATH "$ORIGIN")
  lmdbio_install(lmdbio-c-mpi lmdbioMpiTargets.cmake lmdbio_c_mpi)
  list(APPEND c_libraries lmdbio_mpi)
  list(APPEND man_headers ${CMAKE_CURRENT_SOURCE_DIR}/api/c/lmdbio_mpi.h)
endif()

get_property(modules GLOBAL PROPERTY LMDBIO_MODULES)
foreach(module IN LISTS modules)
  set_target_properties(lmdbio_${module} PROPERTIES EXPORT_NAME ${module})
endforeach()
list(TRANSFORM modules PREPEND lmdbio_)
lmdbio_install(lmdbio-cxx lmdbioCxxTargets.cmake ${modules})

configure_package_config_file(cmake/lmdbioConfig.cmake.in lmdbioConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(lmdbioConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lmdbioConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/lmdbioConfigVersion.cmake
        DESTINATION ${package_dir})
# A pkg-config file finds the tree relative to its own path, so an installed tree can be moved.
file(RELATIVE_PATH package_to_prefix
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" package_to_prefix "${package_to_prefix}")
foreach(name IN LISTS c_libraries)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# A man page for each call, from the comment before its declaration.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  set(man_dir ${CMAKE_CURRENT_BINARY_DIR}/man3)
  set(man_script ${PROJECT_SOURCE_DIR}/scripts/man_pages.py)
  add_custom_command(OUTPUT ${man_dir}/lmdbio.3
    COMMAND ${Python3_EXECUTABLE} -B ${man_script} --version ${PROJECT_VERSION}
            ${man_dir} ${man_headers}
    DEPENDS ${man_script} ${man_headers} VERBATIM)
  add_custom_target(lmdbio_man ALL DEPENDS ${man_dir}/lmdbio.3)
  install(DIRECTORY ${man_dir}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
endif()
