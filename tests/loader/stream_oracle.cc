#include "tests/loader/stream_oracle.h"

#include <mutex>

#include <fmt/format.h>

#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

std::string Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Key(uint64_t i) { return fmt::format("{:08}", i); }

void Take(const loader::Batch& batch, const loader::LoaderOptions& options, comm::Group& group,
          Delivered& all) {
  const loader::BatchSpan span{batch.number(), batch.first_position(), batch.global_record_count(),
                               batch.epoch(), false};
  all.skipped_count += batch.skipped_count();
  for (size_t i = 0; i < batch.record_count(); ++i) {
    const uint64_t position = batch.position(i);
    if (loader::OwnerOf(span, position, options.share, group.size()) != group.rank()) {
      ++all.foreign_count;
    }
    const bool is_new =
        all.records.emplace(position, KeyValue{Text(batch.key(i)), Text(batch.value(i))}).second;
    if (!is_new) ++all.twice_count;
  }
}

}  // namespace

Delivered Deliver(comm::ThreadRanks ranks, const std::filesystem::path& path,
                  const loader::LoaderOptions& options) {
  Delivered all;
  all.errors.resize(static_cast<size_t>(ranks.rank_count));
  std::mutex mutex;
  comm::RunAsThreads(ranks, [&](comm::Group& group) {
    const auto fail = [&](Error error) {
      const std::lock_guard lock(mutex);
      all.errors[static_cast<size_t>(group.rank())] = std::move(error);
    };
    auto loader = loader::Loader::Open(group, path.string(), options);
    if (!loader) return fail(std::move(loader).error());
    while (true) {
      Result<bool> found = (*loader)->Next();
      if (!found) return fail(std::move(found).error());
      if (!*found) break;
      const std::lock_guard lock(mutex);
      Take((*loader)->batch(), options, group, all);
    }
    const std::lock_guard lock(mutex);
    for (std::string& note : (*loader)->TakeNotes()) all.notes.push_back(std::move(note));
  });
  return all;
}

std::map<uint64_t, KeyValue> Expected(const std::filesystem::path& data_file,
                                      const loader::LoaderOptions& options) {
  return ExpectedOf(LmdbRecords(data_file, options.database_name), options);
}

std::map<uint64_t, KeyValue> ExpectedOf(const std::vector<KeyValue>& records,
                                        const loader::LoaderOptions& options) {
  const uint64_t n = records.size();
  std::map<uint64_t, KeyValue> expected;
  for (uint64_t b = 0; b < options.batch_count_max; ++b) {
    for (uint64_t i = 0; i < options.batch_size; ++i) {
      uint64_t position = b * options.batch_size + i;
      if (options.tail != loader::Tail::kWrap) {
        const uint64_t short_one = options.tail == loader::Tail::kShort ? 1 : 0;
        const uint64_t whole = n / options.batch_size;
        const uint64_t an_epoch = whole + (n % options.batch_size == 0 ? 0 : short_one);
        const uint64_t into = b % an_epoch * options.batch_size + i;
        if (into >= n) continue;
        position = b / an_epoch * n + into;
      }
      expected[position] = records[position % n];
    }
  }
  return expected;
}

void FillInline(TinyDb& db) {
  Random random(1);
  for (uint64_t i = 0; i < 700; ++i) db.Put(Key(i), random.BytesOf(random.Between(1, 300)));
}

void FillOverflow(TinyDb& db) {
  Random random(2);
  for (uint64_t i = 0; i < 300; ++i) {
    db.Put(Key(i), random.BytesOf(i % 50 == 0 ? 70'000 : 3080));
    if (i % 100 == 99) db.Commit();
  }
}

void FillMixed(TinyDb& db) {
  Random random(3);
  for (uint64_t i = 0; i < 400; ++i) {
    const uint64_t size_bytes = i % 7 == 0 ? 0 : random.Below(i % 3 == 0 ? 9000 : 400);
    db.Put(Key(i * 7919 % 400), random.BytesOf(size_bytes));
    if (i % 90 == 89) db.Commit();
  }
}

void FillDuplicates(TinyDb& db) {
  Random random(4);
  db.Use("duplicates", MDB_DUPSORT);
  for (uint64_t i = 0; i < 60; ++i) {
    const uint64_t count = i % 20 == 0 ? 500 : random.Between(1, 5);
    for (uint64_t j = 0; j < count; ++j) db.Put(Key(i), random.BytesOf(random.Between(1, 40)));
  }
}

}  // namespace lmdbio::test
