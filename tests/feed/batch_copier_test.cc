// Goal: a batch of the loader is held while its copy may read it, and no longer.
#include "lmdbio/feed/batch_copier.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "lmdbio/load/loader/loader.h"
#include "tests/feed/fed_stream.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::feed {
namespace {

using load::HeldBatch;
using load::Loader;
using test::EmulatedGpu;
using test::Good;
using test::Must;
using test::TempDir;
using test::TinyDb;

class CopierOnDevice {
 public:
  explicit CopierOnDevice(uint64_t seed) : gpu(seed), db_(dir_.path()) {
    for (int i = 0; i < 40; ++i) db_.Put(fmt::format("{:04}", i), std::string(500, 'v'));
    db_.Commit();
    load::LoaderOptions options = test::WindowOptions();
    options.global_batch_size = 4;
    loader = Good(Loader::Open(*group_, db_.data_file().string(), options));
    opened = gpu.Open();
    copier = Good(BatchCopier::Make(
        opened, Good(kernels::DeviceKernels::Load(*opened, test::EmulatedKernelImage()))));
    buffers = std::make_shared<RowBuffers>(opened, 4);
  }

  // Whether the loader says that batches are held.
  bool IsHeld() {
    const Status gone = loader->Restore(loader->Save());
    return !gone;
  }
  void CopyNext() {
    HeldBatch batch;
    REQUIRE(Good(loader->NextWithin(Loader::kNoLimit, batch)) == load::BatchStep::kBatch);
    const RowLayout layout = LayoutOf(*batch, {});
    Must(copier->Copy(batch, layout, *Good(buffers->Take(layout.size_bytes))));
    CHECK_FALSE(batch.is_held());
  }

  EmulatedGpu gpu;
  std::unique_ptr<Loader> loader;
  std::shared_ptr<device::Device> opened;
  std::unique_ptr<BatchCopier> copier;
  std::shared_ptr<RowBuffers> buffers;

 private:
  TempDir dir_;
  TinyDb db_;
  std::unique_ptr<ranks::Group> group_ = ranks::SoloGroup();
};

TEST_CASE("A batch that is gathered is held until its copy is done", "[batch_copier]") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CopierOnDevice on(seed);
    Must(on.copier->UseWindow(on.loader->window()));
    on.CopyNext();
    REQUIRE(on.gpu->QueuedCount() > 0);
    CHECK(on.copier->HoldsBatches());
    CHECK(on.IsHeld());
    while (on.copier->HoldsBatches()) {
      const bool was_queued = on.gpu->QueuedCount() > 0;
      CHECK(Good(on.copier->Settle()));  // one of two slots is free
      if (on.copier->HoldsBatches()) CHECK(was_queued);
    }
    CHECK(on.gpu->QueuedCount() <= 1);  // the record behind that of the copy
    Must(on.copier->AwaitAll());
    on.copier->LeaveWindow();
    CHECK_FALSE(on.IsHeld());
  }
}

TEST_CASE("A batch that is staged is let go at once", "[batch_copier]") {
  CopierOnDevice on(1);
  on.CopyNext();
  CHECK(on.gpu->QueuedCount() > 0);
  CHECK_FALSE(on.copier->HoldsBatches());
  CHECK_FALSE(on.IsHeld());
  Must(on.copier->AwaitAll());
}

TEST_CASE("A batch outside the pinned part of the window is staged, with one note",
          "[batch_copier]") {
  CopierOnDevice on(1);
  Must(on.copier->UseWindow(on.loader->window().first(4096)));
  for (int i = 0; i < 3; ++i) {
    on.CopyNext();
    CHECK_FALSE(on.copier->HoldsBatches());
    while (!Good(on.copier->Settle())) {
    }
  }
  FeedCounters counters;
  on.copier->AddTo(counters);
  CHECK(counters.staged_count == 3);
  CHECK(counters.device_bytes == 6000);
  const std::vector<std::string> notes = on.copier->TakeNotes();
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring("outside the pinned window"));
  Must(on.copier->AwaitAll());
}

TEST_CASE("Two copies are under way at most", "[batch_copier]") {
  CopierOnDevice on(1);
  Must(on.copier->UseWindow(on.loader->window()));
  on.CopyNext();
  on.CopyNext();
  // A look may run work, so the first copy may be done.
  while (on.gpu->QueuedCount() > 0 && !Good(on.copier->Settle())) {
  }
  CHECK(Good(on.copier->Settle()));
  Must(on.copier->AwaitAll());
  CHECK_FALSE(on.copier->HoldsBatches());
}

}  // namespace
}  // namespace lmdbio::feed
