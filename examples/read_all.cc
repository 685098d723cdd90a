// read_all PATH: reads each record of a database once, and prints their number and total size.
#include <cstdint>
#include <cstdio>
#include <string>

#include "lmdbio/load/loader/loader.h"

static lmdbio::Status ReadAll(const std::string& path) {
  lmdbio::load::LoaderOptions options;
  options.tail = lmdbio::load::Tail::kShort;
  const auto group = lmdbio::ranks::SoloGroup();
  LMDBIO_TRY(const auto loader, lmdbio::load::Loader::Open(*group, path, options));
  uint64_t record_count = 0, bytes = 0;
  do {
    LMDBIO_TRY_VOID(loader->Next());
    record_count += loader->batch().record_count();
    bytes += loader->batch().payload_bytes();
  } while (!loader->batch().ends_epoch());
  std::printf("%llu records, %llu bytes\n", static_cast<unsigned long long>(record_count),
              static_cast<unsigned long long>(bytes));
  return {};
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: read_all PATH\n");
    return 2;
  }
  const lmdbio::Status status = ReadAll(argv[1]);
  if (status) return 0;
  std::fprintf(stderr, "read_all: %s\n", status.error().message().c_str());
  return 1;
}
