// The main function of test programs with MPI processes as ranks (lmdbio_add_mpi_test).
//
// All ranks run the same cases in the same order, so every call of a case is collective. Rank 0
// prints. Another rank stores its output until a check fails there. Then it prints the output on
// standard error and ends all ranks at once, because its peers may wait for it.
#define CATCH_CONFIG_RUNNER
// A rank that MPI_Abort ends must not report a failure. Catch2 version 3 reads this setting only in
// its own build; there, FailureListener sees to it.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string_view>

#include <mpi.h>

#include "tests/support/catch.h"
#include "tests/support/in_child.h"

#if defined(LMDBIO_TEST_LEAKS)
#include <sanitizer/lsan_interface.h>

// Open MPI leaks some memory. The leak checker identifies it by the library in the allocation
// stack. So these stacks must be unwound through libraries without frame pointers.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the names are the sanitizer's
const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() {
  return "leak:libmpi.so\nleak:libopen-rte.so\nleak:libopen-pal.so\nleak:libpmix.so\n";
}
const char* __asan_default_options();
const char* __asan_default_options() { return "fast_unwind_on_malloc=0:print_suppressions=0"; }
// NOLINTEND(bugprone-reserved-identifier)
}
#endif

namespace {

constexpr int kFailed = 1;  // the exit code of mpirun

// The stored output of a rank that does not print.
std::ostringstream& KeptOutput() {
  static std::ostringstream output;
  return output;
}

[[noreturn]] void EndAllRanks() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::cout << std::flush;
  if (rank != 0) std::fprintf(stderr, "rank %d:\n%s", rank, KeptOutput().str().c_str());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, kFailed);
  std::abort();
}

// Ends all ranks at the end of a failed section, which is the earliest event after the failing rank
// has left the section.
class FailureListener final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void sectionEnded(const Catch::SectionStats& stats) override {
    if (stats.assertions.failed > 0) EndAllRanks();
  }
#if CATCH_VERSION_MAJOR >= 3
  // MPI_Abort of another rank ends this one by SIGTERM.
  void fatalErrorEncountered(Catch::StringRef error) override {
    if (std::string_view(error.data(), error.size()).starts_with("SIGTERM")) std::_Exit(kFailed);
  }
#endif
};
CATCH_REGISTER_LISTENER(FailureListener)

// Looks for leaks while MPI runs, and ends this rank if there are any. After MPI_Finalize the check
// is useless: it unloads the components of Open MPI and with them the only pointers to their
// memory, which the checker would report as leaks without a known library.
void CheckLeaks() {
#if defined(LMDBIO_TEST_LEAKS)
  __lsan_do_leak_check();
#endif
}

int RunTests(int argc, char** argv) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::streambuf* const printed = std::cout.rdbuf();
  if (rank != 0) std::cout.rdbuf(KeptOutput().rdbuf());
  const int result = Catch::Session().run(argc, argv);
  std::cout.rdbuf(printed);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  lmdbio::test::RefuseCallsIfAsked();
  // Tests with several threads that call MPI request MPI_THREAD_MULTIPLE; the others need less.
  const bool is_multiple = std::getenv("LMDBIO_TEST_MPI_MULTIPLE") != nullptr;
  const int asked = is_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, asked, &provided);
  if (provided < asked) {
    std::fprintf(stderr, "MPI does not provide the requested thread level\n");
    EndAllRanks();
  }
  const int result = RunTests(argc, argv);
  if (result != 0) EndAllRanks();
  CheckLeaks();
  MPI_Finalize();
  return 0;
}
