// C6: rows of shuffled batches on the GPU are the records of liblmdb's serial pass.
#include <cstdlib>

#include <fmt/format.h>

#include "lmdbio/feed/device_feed.h"
#include "lmdbio/ranks/group/group.h"
#include "tests/feed/fed_stream.h"
#include "tests/gpu/device_check.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using feed::DeviceFeed;
using feed::FedBatch;

struct FedRecords {
  const char* name;
  uint64_t value_bytes;
  uint64_t count;
  uint64_t quick_count;
  uint64_t batch_size;
};
constexpr FedRecords kSmall{"3 KB", 3080, 12'000, 300, 64};
constexpr FedRecords kLarge{"196 KB", 196'608, 200, 20, 8};

void Fill(TinyDb& db, const FedRecords& records, uint64_t count, Random& random) {
  for (uint64_t i = 0; i < count; ++i) {
    // Some values are shorter, so that rows end in zeros.
    const uint64_t size_bytes = records.value_bytes - (i % 7 == 0 ? random.Below(100) : 0);
    db.Put(fmt::format("{:08}", i), random.BytesOf(size_bytes));
  }
  db.Commit();
}

// Takes all batches. Work of the program reads the rows while the next batches are copied.
CheckOutcome CheckRows(const CheckScene& scene, const FedRecords& records, bool is_mapped) {
  const TempDir folder;
  TinyDb db(folder.path());
  Random random(scene.seed);
  const uint64_t count = scene.Of(records.count, records.quick_count);
  Fill(db, records, count, random);
  load::LoaderOptions options = WindowOptions();
  options.allow_map = is_mapped;
  options.global_batch_size = records.batch_size;
  options.order = load::Order::kShuffle;
  options.seed = scene.seed;
  options.max_batches = (count + records.batch_size - 1) / records.batch_size;
  const auto expected = Expected(db.data_file(), options);
  const std::unique_ptr<ranks::Group> group = ranks::SoloGroup();
  const auto loader = Good(load::Loader::Open(*group, db.data_file().string(), options));
  const std::shared_ptr<device::Device> gpu = scene.Open();
  device::DeviceStream stream = Good(gpu->MakeStream());
  FedReader reader(gpu, (count + records.batch_size) * (records.value_bytes + 64));
  const auto feed = Good(DeviceFeed::Open(*loader, scene.ordinal, {}));
  FedBatch batch;
  while (Good(feed->Next(stream.native(), batch))) reader.Add(batch, stream.native());
  Must(stream.Synchronize());
  const auto found = OneField(reader);
  if (found.size() != expected.size()) {
    return Failed(fmt::format("{} records, not {}", found.size(), expected.size()));
  }
  for (const auto& [position, record] : expected) {
    const auto at = found.find(position);
    if (at == found.end() || at->second != record) {
      return Failed(fmt::format("another row at position {}", position));
    }
  }
  return Passed(fmt::format("{} records; {}", found.size(), feed->Describe()));
}

}  // namespace

DeviceChecks FeedChecks() {
  DeviceChecks checks;
  for (const FedRecords& records : {kSmall, kLarge}) {
    for (const bool is_mapped : {false, true}) {
      checks.push_back({"C6",
                        fmt::format("rows of {}, {}", records.name,
                                    is_mapped ? "out of the map of the file" : "out of the window"),
                        60, [records, is_mapped](const CheckScene& scene) {
                          return CheckRows(scene, records, is_mapped);
                        }});
    }
  }
  return checks;
}

}  // namespace lmdbio::test
