// tests/fuzz/replay_main.cc - runs a fuzzer over stored inputs, under any compiler.
//
//   format_replay FILE_OR_DIRECTORY...
//
// A failure ends the process as it would the fuzzer; the last line printed names the input.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "tests/support/file_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::filesystem::path> InputsOf(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) inputs.push_back(entry.path());
  }
  std::ranges::sort(inputs);
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  size_t input_count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::filesystem::path& input : InputsOf(argv[i])) {
      std::printf("%s\n", input.c_str());
      std::fflush(stdout);
      const std::vector<std::byte> bytes = lmdbio::test::ReadWholeFile(input);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++input_count;
    }
  }
  std::printf("%zu inputs\n", input_count);
  return input_count > 0 ? 0 : 1;  // an empty corpus tests nothing
}
