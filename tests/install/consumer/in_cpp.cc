// As in_c.c, with the C++ modules.
#include <cstdint>
#include <iostream>
#include <string>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/group.h"

namespace {

lmdbio::Status Count(const std::string& path) {
  const auto group = lmdbio::ranks::SoloGroup();
  lmdbio::load::LoaderOptions options;
  options.tail = lmdbio::load::Tail::kShort;
  LMDBIO_TRY(const auto loader, lmdbio::load::Loader::Open(*group, path, options));
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  for (bool is_over = false; !is_over; is_over = loader->batch().ends_epoch()) {
    LMDBIO_TRY(const bool found, loader->Next());
    if (!found) break;
    records += loader->batch().record_count();
    for (size_t i = 0; i < loader->batch().record_count(); ++i) {
      bytes += loader->batch().value(i).size();
    }
  }
  std::cout << records << " records, " << bytes << " bytes\n";
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const lmdbio::Status status = Count(argv[1]);
  if (!status) std::cerr << status.error().message() << '\n';
  return status ? 0 : 1;
}
