// Goal: the answer of MPI decides, and a refusal has its reason. Method: this
// program has the question of MPI itself, and answers it.
#include "lmdbio/sync/over_mpi/mpi_device_memory.h"

#include <string>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "tests/support/catch.h"

namespace {
int answer_of_mpi = 0;
}  // namespace

#ifdef MPIX_CUDA_AWARE_SUPPORT
extern "C" int MPIX_Query_cuda_support(void) { return answer_of_mpi; }
#endif

namespace lmdbio::sync {
namespace {

TEST_CASE("MPI is asked at run time whether it takes memory of GPUs", "[mpi_device_memory]") {
#ifdef MPIX_CUDA_AWARE_SUPPORT
  answer_of_mpi = 0;
  CHECK(QueryMpiDeviceMemory() == MpiDeviceMemory::kNotTaken);
  answer_of_mpi = 1;
  CHECK(QueryMpiDeviceMemory() == MpiDeviceMemory::kTaken);
#else
  CHECK(QueryMpiDeviceMemory() == MpiDeviceMemory::kUnknown);
#endif
}

TEST_CASE("A program that asks MPI to take memory of a GPU gets the reason why not",
          "[mpi_device_memory]") {
  const auto [answer, words] = GENERATE(table<MpiDeviceMemory, std::string>(
      {{MpiDeviceMemory::kNotTaken, "MPI does not take memory of GPUs (MPIX_Query_cuda_support)"},
       {MpiDeviceMemory::kUnknown,
        "MPI does not say whether it takes memory of GPUs (no MPIX_Query_cuda_support)"}}));
  const Status refused = CheckMpiDeviceMemory(answer);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == ErrorCode::kUnsupported);
  CHECK(refused.error().message() ==
        "device_collective: 'mpi': " + words +
            "; use 'auto', whose messages pass through pinned memory of the host");
  CHECK(CheckMpiDeviceMemory(MpiDeviceMemory::kTaken));
}

}  // namespace
}  // namespace lmdbio::sync
