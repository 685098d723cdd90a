# The HTML reference of the C and C++ headers: target `docs`, installed beside the man pages.
include(GNUInstallDirs)
find_package(Doxygen REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(docs_dir ${PROJECT_BINARY_DIR}/docs)
set(docs_filter ${PROJECT_SOURCE_DIR}/scripts/doxygen_filter.py)
configure_file(cmake/Doxyfile.in ${CMAKE_CURRENT_BINARY_DIR}/Doxyfile @ONLY)
file(GLOB_RECURSE docs_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
add_custom_command(OUTPUT ${docs_dir}/html/index.html
  COMMAND ${CMAKE_COMMAND} -E make_directory ${docs_dir}
  COMMAND Doxygen::doxygen ${CMAKE_CURRENT_BINARY_DIR}/Doxyfile
  DEPENDS ${docs_filter} ${CMAKE_CURRENT_BINARY_DIR}/Doxyfile ${docs_headers}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
add_custom_target(docs ALL DEPENDS ${docs_dir}/html/index.html)
install(DIRECTORY ${docs_dir}/html DESTINATION ${CMAKE_INSTALL_DOCDIR})
