// Each call of the driver fails once at each place of a small feed. The program gets an error that
// names the call, or the feed takes another way; nothing hangs, and nothing stays allocated.
#include <memory>
#include <set>
#include <string>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/feed/device_feed.h"
#include "tests/device/failing_calls.h"
#include "tests/feed/fed_stream.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::feed {
namespace {

using load::Loader;
using test::Good;
using test::TempDir;
using test::TinyDb;

class FaultDatabase {
 public:
  FaultDatabase() : db_(dir_.path()) {
    for (int i = 0; i < 24; ++i) {
      db_.Put(fmt::format("{:04}", i), std::string(static_cast<size_t>(i), 'v'));
    }
    db_.Commit();
  }
  std::string path() const { return db_.data_file().string(); }

 private:
  TempDir dir_;
  TinyDb db_;
};

// Takes all batches, and returns the first error. Counts the calls before the end.
Status RunFeed(const FaultDatabase& database, RowShape shape, test::CallCounts& told) {
  load::LoaderOptions options = test::WindowOptions();
  options.global_batch_size = 4;
  options.max_batches = 8;
  // The feed finds the driver as the first call of the process has left it.
  LMDBIO_TRY_VOID(device::LoadDriver(test::kDriver));
  const auto group = ranks::SoloGroup();
  LMDBIO_TRY(const auto loader, Loader::Open(*group, database.path(), options));
  LMDBIO_TRY(const auto feed, DeviceFeed::Open(*loader, 0, {.rows = {shape, 0}, .depth = 2},
                                               test::EmulatedKernelImage()));
  {
    FedBatch batch;
    while (true) {
      LMDBIO_TRY(const bool found, feed->Next(nullptr, batch));
      if (!found) break;
    }
  }
  told = test::CountCalls();
  return {};
}

TEST_CASE("Each call of a feed fails once at each place", "[feed_faults]") {
  const RowShape shape = GENERATE(RowShape::kRows, RowShape::kPacked);
  const FaultDatabase database;
  test::Control().Reset(1);
  test::CallCounts told;
  const Status clean = RunFeed(database, shape, told);
  INFO((clean ? std::string() : clean.error().message()));
  REQUIRE(clean);
  CHECK(test::Control().Objects().total() == 0);
  const test::CallCounts counts = test::CountCalls();
  std::set<std::string> met;
  for (const auto& [name, count] : counts) {
    for (uint64_t nth = 1; nth <= count; ++nth) {
      INFO(name << ", call " << nth);
      test::Control().Reset(nth);
      const size_t kept_before = KeptCount();
      test::Control().FailCall(name.c_str(), nth, test::kUnknownCode);
      test::CallCounts unused;
      const Status status = RunFeed(database, shape, unused);
      if (!status) {
        met.insert(name);
        CHECK_THAT(status.error().message(), ContainsSubstring(name));
      }
      const auto objects = test::Control().Objects();
      const bool is_kept = KeptCount() > kept_before;
      if (!is_kept && name != "cuDevicePrimaryCtxRelease") {
        CHECK(objects.total() == objects.left_behind);
      }
    }
  }
  for (const char* const name :
       {"cuLaunchKernel", "cuEventRecord", "cuEventQuery", "cuStreamWaitEvent",
        "cuStreamIsCapturing", "cuMemAlloc", "cuEventCreate", "cuStreamCreateWithPriority"}) {
    INFO(name);
    CHECK(met.contains(name));
  }
}

TEST_CASE("The context may end at each call of a feed", "[feed_faults]") {
  const FaultDatabase database;
  test::Control().Reset(1);
  test::CallCounts told;
  REQUIRE(RunFeed(database, RowShape::kRows, told));
  std::set<std::string> met;
  for (const auto& [name, count] : told) {
    for (uint64_t nth = 1; nth <= count; ++nth) {
      INFO(name << ", call " << nth);
      test::Control().Reset(nth);
      test::Control().FailCall(name.c_str(), nth, device::driver_code::kIllegalAddress);
      test::CallCounts unused;
      const Status status = RunFeed(database, RowShape::kRows, unused);
      if (status) continue;  // in a destructor, which can tell nobody
      CHECK_THAT(status.error().message(), ContainsSubstring(name));
      met.insert(name);
    }
  }
  for (const char* const name : {"cuLaunchKernel", "cuEventRecord", "cuEventQuery",
                                 "cuStreamWaitEvent", "cuStreamIsCapturing", "cuMemAlloc"}) {
    INFO(name);
    CHECK(met.contains(name));
  }
}

}  // namespace
}  // namespace lmdbio::feed
