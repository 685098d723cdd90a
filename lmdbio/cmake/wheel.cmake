# The files of a wheel beside those of Python (pyproject.toml): the C API as shared libraries in
# the package, and the programs, which tools/CMakeLists.txt adds. `cmake --install` leaves them out.
#
# LMDBIO_WHEEL_LICENCES  a folder with the licences of statically linked libraries, for the wheel
set(LMDBIO_WHEEL_LICENCES "" CACHE PATH "Licences of the libraries in the wheel")
mark_as_advanced(LMDBIO_WHEEL_LICENCES)

add_custom_target(lmdbio_wheel)
set(wheel_libraries lmdbio_c)
if(LMDBIO_WITH_MPI)
  list(APPEND wheel_libraries lmdbio_c_mpi)  # it finds liblmdbio beside itself
endif()
add_dependencies(lmdbio_wheel ${wheel_libraries})
# A wheel holds no symbolic links, so a library is one file with the name that others load.
set_target_properties(${wheel_libraries} PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})
install(TARGETS ${wheel_libraries}
  LIBRARY DESTINATION lmdbio COMPONENT wheel NAMELINK_SKIP EXCLUDE_FROM_ALL)
if(LMDBIO_WHEEL_LICENCES)
  install(DIRECTORY ${LMDBIO_WHEEL_LICENCES}/ DESTINATION ${SKBUILD_METADATA_DIR}/licenses/libraries
          COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
