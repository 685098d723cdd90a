// The main function of test programs whose ranks are processes of MPI's (lmdbio_add_mpi_test).
//
// All ranks run the same cases in the same order, which makes every call of a case collective. Rank
// 0 prints. Another rank keeps its output to itself until something fails there; then it prints it,
// on standard error, and ends all ranks at once, for its peers may be waiting for it.
#define CATCH_CONFIG_RUNNER
// The ranks that MPI_Abort ends have not failed. (Version 3 of Catch2 takes this setting only where
// it is built itself; with it, such ranks report the signal.)
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include <mpi.h>

#include "tests/support/catch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>

// Open MPI loses some memory of its own. To tell it by the library that asked for it, the stacks of
// allocations must go through libraries that keep no frame pointers.
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

// Where the ranks that do not print keep what they would print.
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

// A section, and so a case, is the least that can be waited for: the failing rank has left it.
class FailureListener final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void sectionEnded(const Catch::SectionStats& stats) override {
    if (stats.assertions.failed > 0) EndAllRanks();
  }
};
CATCH_REGISTER_LISTENER(FailureListener)

// Looks for leaks while MPI runs, and ends this rank if there are any. MPI_Finalize unloads Open
// MPI's components and with them the only pointers to what they hold, which would be reported as
// leaks of nobody's; so nobody looks after it.
void CheckLeaks() {
#if defined(__SANITIZE_ADDRESS__)
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
  // What a test asks for that has threads which call MPI; all others do with less.
  const bool is_multiple = std::getenv("LMDBIO_TEST_MPI_MULTIPLE") != nullptr;
  const int asked = is_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, asked, &provided);
  if (provided < asked) {
    std::fprintf(stderr, "MPI gives no such level of thread support\n");
    EndAllRanks();
  }
  const int result = RunTests(argc, argv);
  if (result != 0) EndAllRanks();
  CheckLeaks();
  MPI_Finalize();
  return 0;
}
