// Goal: a rank to which the system refuses a thread or a call returns an error, and so do all ranks
// of its host.
// Method: a filter refuses system calls to one of the threads that play ranks, in a child process.
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>

#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using test::Good;
using test::Verdict;

void ExpectInChild(Verdict verdict) {
  if (verdict == Verdict::kCannotTell) WARN("skipped: nothing can be refused here");
  CHECK(verdict != Verdict::kWrong);
}

// Two ranks, of which rank 0 reads and may start no thread.
Verdict BothHear(const std::string& path, const LoaderOptions& options, const std::string& words) {
  std::array<std::string, 2> heard;
  bool can_refuse = true;
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    if (group.rank() == 0) can_refuse = test::RefuseThreads();
    std::string& mine = heard[static_cast<size_t>(group.rank())];
    const auto loader = Loader::Open(group, path, options);
    if (!loader) return void(mine = loader.error().message());
    const auto found = (*loader)->Next();
    mine = found ? "a batch" : found.error().message();
  });
  if (!can_refuse) return Verdict::kCannotTell;
  const bool is_right = heard[0] == words && heard[1].ends_with("rank 0: " + words);
  if (!is_right) std::fprintf(stderr, "%s; %s\n", heard[0].c_str(), heard[1].c_str());
  return is_right ? Verdict::kRight : Verdict::kWrong;
}

TEST_CASE("A reader without a thread is an error of its host", "[loader][faults]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.layout_cache = "off";
  options.allow_map = false;
  options.strategy = GENERATE(Strategy::kAuto, Strategy::kLmm, Strategy::kLmmDio, Strategy::kScan);
  ExpectInChild(test::InChild([&] {
    return BothHear(db.data_file().string(), options,
                    "cannot start the reading thread: Resource temporarily unavailable; raise "
                    "ulimit -u");
  }));
}

// Drops what it gets.
class NoRuns final : public file::RecordRunSink {
 public:
  Status Add(const file::RecordRun& /*run*/) override { return {}; }
};

TEST_CASE("A page walk without a thread is an error", "[loader][faults]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  db.Commit();
  const auto source = Good(file::FileSource::Open(db.data_file().string()));
  const auto environment = Good(file::Environment::Open(*source));
  ExpectInChild(test::InChild([&] {
    if (!test::RefuseThreads()) return Verdict::kCannotTell;
    const auto locator = MakeScanLocator(environment.Main(), nullptr, nullptr, {});
    NoRuns sink;
    const Status located = locator->Locate({0}, 1, sink);
    return !located && located.error().code() == ErrorCode::kResourceExhausted &&
                   located.error().message() ==
                       "cannot start the thread of the page walk: Resource temporarily "
                       "unavailable; raise ulimit -u"
               ? Verdict::kRight
               : Verdict::kWrong;
  }));
}

// As NFS answers for a file that was replaced on the server.
TEST_CASE("What storage answers to liblmdb is an error of the storage", "[loader][faults]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.strategy = Strategy::kLmdb;
  ExpectInChild(test::InChild([&] {
    if (!test::RefuseSystemCall({SYS_pread64, ESTALE})) return Verdict::kCannotTell;
    const auto solo = ranks::SoloGroup();
    const auto loader = Loader::Open(*solo, db.data_file().string(), options);
    if (!loader) std::fprintf(stderr, "%s\n", loader.error().message().c_str());
    return !loader && loader.error().code() == ErrorCode::kIo &&
                   loader.error().error_number() == ESTALE
               ? Verdict::kRight
               : Verdict::kWrong;
  }));
}

}  // namespace
}  // namespace lmdbio::load
