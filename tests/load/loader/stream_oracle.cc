#include "tests/load/loader/stream_oracle.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

std::string Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Key(uint64_t i) { return fmt::format("{:08}", i); }

// The number of the first position behind the last batch.
uint64_t EndOfBatches(const load::LoaderOptions& options, uint64_t n) {
  const uint64_t count = options.max_batches;
  if (options.tail == load::Tail::kWrap) return count * options.global_batch_size;
  const uint64_t whole = n / options.global_batch_size;
  const bool has_short = options.tail == load::Tail::kShort && n % options.global_batch_size != 0;
  const uint64_t an_epoch = whole + (has_short ? 1 : 0);
  return count / an_epoch * n + std::min(n, count % an_epoch * options.global_batch_size);
}

// Order::kChunked in its simplest form: the records of K consecutive whole batches are dealt out to
// these batches like cards, one record to each batch in turn.
void DealInTurn(const load::LoaderOptions& options, uint64_t n,
                std::map<uint64_t, KeyValue>& records) {
  const uint64_t size = options.global_batch_size;
  const uint64_t end = records.rbegin()->first + 1;
  for (uint64_t epoch = 0; epoch * n < end; ++epoch) {
    uint64_t first = epoch * n;
    if (options.tail == load::Tail::kWrap) first = (first + size - 1) / size * size;
    while (first + size <= (epoch + 1) * n) {
      uint64_t batches = 0;
      while (batches < options.group_batches && first + (batches + 1) * size <= (epoch + 1) * n) {
        ++batches;
      }
      if (first + batches * size > end) return;  // beyond the stream
      std::vector<std::vector<KeyValue>> piles(batches);
      for (uint64_t i = 0; i < batches * size; ++i) {
        piles[i % batches].push_back(records.at(first + i));
      }
      for (uint64_t k = 0; k < batches; ++k) {
        for (uint64_t i = 0; i < size; ++i) records[first + k * size + i] = piles[k][i];
      }
      first += batches * size;
    }
  }
}

// Requires: no 0 among the options that the library would choose
std::map<uint64_t, KeyValue> ScheduledOf(const std::vector<KeyValue>& records,
                                         const load::LoaderOptions& options) {
  load::ScheduleOptions schedule_options;
  schedule_options.walk = {records.size(), options.order, options.shuffle, options.seed,
                           std::max<uint64_t>(1, options.block_records)};
  schedule_options.batch_size = options.global_batch_size;
  schedule_options.tail = options.tail;
  schedule_options.group_batches = std::max<uint64_t>(1, options.group_batches);
  schedule_options.reuse = options.reuse;
  schedule_options.origin.position = options.epoch * records.size() * options.reuse;
  const load::Schedule schedule(schedule_options);
  std::map<uint64_t, KeyValue> expected;
  for (uint64_t number = 0; number < options.max_batches; ++number) {
    const load::BatchSpan batch = schedule.Batch(number);
    for (uint64_t slot = 0; slot < batch.record_count; ++slot) {
      expected[batch.first_position + slot] = records[schedule.RecordAt(number, slot).value];
    }
  }
  return expected;
}

void Take(const load::Batch& batch, const load::LoaderOptions& options, ranks::Group& group,
          Delivered& all) {
  const load::BatchSpan span{
      batch.number(), batch.first_position(), batch.global_record_count(), batch.epoch(),
      false,          batch.pass(),           options.global_batch_size};
  all.skipped_count += batch.skipped_count();
  for (size_t i = 0; i < batch.record_count(); ++i) {
    const uint64_t position = batch.position(i);
    const int rank = options.shard_id * group.size() + group.rank();
    const int owner =
        load::OwnerOf(span, position, options.share, options.num_shards * group.size());
    const bool is_lent = batch.pass() > 0 && options.reuse_among == load::ReuseAmong::kHost;
    if (owner != rank && !is_lent) ++all.foreign_count;
    const bool is_new =
        all.records.emplace(position, KeyValue{Text(batch.key(i)), Text(batch.value(i))}).second;
    if (!is_new) ++all.twice_count;
  }
}

}  // namespace

Delivered Deliver(ranks::ThreadRanks ranks, const std::filesystem::path& path,
                  const load::LoaderOptions& options, int taker_count) {
  Delivered all;
  all.errors.resize(static_cast<size_t>(ranks.rank_count));
  std::mutex mutex;
  ranks::RunAsThreads(ranks, [&](ranks::Group& group) {
    const auto fail = [&](Error error) {
      const std::lock_guard lock(mutex);
      all.errors[static_cast<size_t>(group.rank())] = std::move(error);
    };
    auto loader = load::Loader::Open(group, path.string(), options);
    if (!loader) return fail(std::move(loader).error());
    const auto take_all = [&](auto&& next, const auto& batch) {
      while (true) {
        const Result<load::BatchStep> step = next();
        if (!step) return fail(step.error().Copy());
        if (*step == load::BatchStep::kEnd) return;
        const std::lock_guard lock(mutex);
        Take(batch(), options, group, all);
      }
    };
    constexpr auto kNoLimit = load::Loader::kNoLimit;
    if (taker_count == 1) {
      take_all([&] { return (*loader)->NextWithin(kNoLimit); },
               [&]() -> const load::Batch& { return (*loader)->batch(); });
    } else {
      std::vector<std::jthread> takers;
      for (int i = 0; i < taker_count; ++i) {
        takers.emplace_back([&] {
          load::HeldBatch held;
          take_all([&] { return (*loader)->NextWithin(kNoLimit, held); },
                   [&]() -> const load::Batch& { return *held; });
        });
      }
    }
    const std::lock_guard lock(mutex);
    for (std::string& note : (*loader)->TakeNotes()) all.notes.push_back(std::move(note));
    if (group.rank() != 0) return;
    all.state = (*loader)->Save();
    all.counters = (*loader)->counters();
  });
  return all;
}

std::map<uint64_t, KeyValue> Expected(const std::filesystem::path& data_file,
                                      const load::LoaderOptions& options) {
  return ExpectedOf(LmdbRecords(data_file, options.database_name), options);
}

std::map<uint64_t, KeyValue> ExpectedOf(const std::vector<KeyValue>& records,
                                        const load::LoaderOptions& options) {
  if (options.order == load::Order::kShuffle || options.reuse > 1) {
    return ScheduledOf(records, options);
  }
  const uint64_t n = records.size();
  std::map<uint64_t, KeyValue> expected;
  // A batch group may continue behind the last batch.
  const bool is_chunked = options.order == load::Order::kChunked;
  const uint64_t batch_count = options.max_batches + (is_chunked ? 2 * options.group_batches : 0);
  for (uint64_t b = 0; b < batch_count; ++b) {
    for (uint64_t i = 0; i < options.global_batch_size; ++i) {
      uint64_t position = b * options.global_batch_size + i;
      if (options.tail != load::Tail::kWrap) {
        const uint64_t short_one = options.tail == load::Tail::kShort ? 1 : 0;
        const uint64_t whole = n / options.global_batch_size;
        const uint64_t an_epoch = whole + (n % options.global_batch_size == 0 ? 0 : short_one);
        const uint64_t into = b % an_epoch * options.global_batch_size + i;
        if (into >= n) continue;
        position = b / an_epoch * n + into;
      }
      expected[position] = records[position % n];
    }
  }
  if (!is_chunked) return expected;
  DealInTurn(options, n, expected);
  const uint64_t end = EndOfBatches(options, n);
  expected.erase(expected.lower_bound(end), expected.end());
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
