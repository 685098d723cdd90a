# The tests of lmdbio-make, which run the built program.
add_executable(make_test make_cifar10_test.cc make_cli_test.cc make_digits_test.cc
                         make_images_test.cc make_synthetic_test.cc make_tool.cc
                         ${PROJECT_SOURCE_DIR}/tools/synthetic_records.cc)
target_link_libraries(make_test PRIVATE
  lmdbio_test_support lmdbio::caffe_datum nlohmann_json::nlohmann_json PkgConfig::STB
  PkgConfig::TURBOJPEG Catch2::Catch2WithMain)
target_compile_definitions(make_test PRIVATE
  LMDBIO_MAKE_PROGRAM="$<TARGET_FILE:lmdbio-make>"
  LMDBIO_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
add_dependencies(make_test lmdbio-make)
add_test(NAME make_test COMMAND make_test)
