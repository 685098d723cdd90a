#include "lmdbio/sync/over_nccl/nccl_table.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/catch.h"
#include "tests/sync/over_nccl/nccl_rank.h"

namespace lmdbio::sync {
namespace {

using test::Good;
using test::NcclControl;

Error ErrorOfLoading(const char* library) {
  Result<LoadedNccl> loaded = LoadNccl(library);
  if (loaded) throw std::runtime_error("NCCL was loaded");
  return std::move(loaded).error();
}

TEST_CASE("NCCL is opened at run time with all its functions", "[nccl_table]") {
  NcclControl().Reset();
  const LoadedNccl loaded = Good(LoadNccl(kNcclLibrary));
  CHECK(loaded.version == test::kEmulatedNcclVersion);
  int found = 0;
  ForEachNcclFunction(loaded.table, [&](const char*, auto function) {
    if (function != nullptr) ++found;
  });
  CHECK(found == 11);
  CHECK(loaded.table.GetErrorString(nccl_code::kRemoteError) ==
        std::string("remote process exited or there was a network error"));
}

TEST_CASE("A system without NCCL is kNotFound, with the remedy", "[nccl_table]") {
  const Error error = ErrorOfLoading("libno-such-nccl.so.2");
  CHECK(error.code() == ErrorCode::kNotFound);
  for (const char* const part : {"no NCCL: libno-such-nccl.so.2", "NCCL 2.14 or later", "libnccl2",
                                 "nvidia-nccl-cu13", "LD_LIBRARY_PATH"}) {
    CHECK_THAT(error.message(), ContainsSubstring(part));
  }
}

TEST_CASE("An older NCCL is kUnsupported with both versions", "[nccl_table]") {
  const Error error = ErrorOfLoading(LMDBIO_TEST_OLD_NCCL);
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK_THAT(error.message(), ContainsSubstring("is NCCL 2.13.4; lmdbio needs NCCL 2.14 or later"));
}

TEST_CASE("The first version that lmdbio takes is 2.14", "[nccl_table]") {
  NcclControl().Reset();
  NcclControl().SetVersion(21400);
  CHECK(LoadNccl(kNcclLibrary));
  NcclControl().SetVersion(21399);
  CHECK_FALSE(LoadNccl(kNcclLibrary));
}

TEST_CASE("All functions that NCCL lacks are named at once", "[nccl_table]") {
  const Error error = ErrorOfLoading(LMDBIO_TEST_PARTIAL_NCCL);
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK_THAT(
      error.message(),
      ContainsSubstring("lacks ncclGetErrorString, ncclGetLastError, ncclGetUniqueId, "
                        "ncclCommInitRankConfig, ncclCommGetAsyncError, ncclAllReduce, "
                        "ncclBroadcast, ncclCommFinalize, ncclCommDestroy, ncclCommAbort; "));
}

TEST_CASE("An NCCL that does not tell its version is too old", "[nccl_table]") {
  NcclControl().Reset();
  NcclControl().FailCall("ncclGetVersion", 1, 3);
  const Error error = ErrorOfLoading(kNcclLibrary);
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK_THAT(error.message(), ContainsSubstring("libnccl.so.2 does not tell its version"));
}

TEST_CASE("Versions of NCCL have two kinds of numbers", "[nccl_table]") {
  CHECK(NcclVersionText(22809) == "2.28.9");
  CHECK(NcclVersionText(21400) == "2.14.0");
  CHECK(NcclVersionText(2804) == "2.8.4");
}

}  // namespace
}  // namespace lmdbio::sync
