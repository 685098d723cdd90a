// check_records PATH: reads every record of a database through lmdbio and through liblmdb, compares
// them byte for byte, and prints the speed of both. On a busy machine, compare the processor times.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "examples/lmdb_reader.h"
#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/file/source/read_ahead_source.h"

namespace {

constexpr int kRounds = 7;

using examples::LmdbReader;
using examples::Pass;
using examples::Timed;
using lmdbio::Bytes;
using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;

Result<Pass> ReadWithLmdb(const std::string& data_path) {
  Pass pass;
  LmdbReader reader(data_path);
  for (;;) {
    LMDBIO_TRY(const bool found, reader.Next());
    if (!found) return pass;
    pass.Add(reader.value());
  }
}

template <typename Source>
Result<Pass> ReadWithLmdbio(const std::string& data_path) {
  LMDBIO_TRY(const auto source, Source::Open(data_path));
  source->Advise(lmdbio::AccessPattern::kSequential);
  LMDBIO_TRY(const auto environment, lmdbio::file::Environment::Open(*source));
  lmdbio::file::Cursor cursor(environment.Main());
  Pass pass;
  LMDBIO_TRY(bool found, cursor.First());
  while (found) {
    LMDBIO_TRY(const Bytes value, cursor.Value());
    pass.Add(value);
    LMDBIO_TRY(found, cursor.Next());
  }
  return pass;
}

bool Equal(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

Status CompareEveryRecord(const std::string& data_path) {
  LMDBIO_TRY(const auto source, lmdbio::file::ReadAheadSource::Open(data_path));
  LMDBIO_TRY(const auto environment, lmdbio::file::Environment::Open(*source));
  lmdbio::file::Cursor cursor(environment.Main());
  LmdbReader reader(data_path);
  LMDBIO_TRY(bool ours, cursor.First());
  LMDBIO_TRY(bool theirs, reader.Next());
  for (uint64_t record = 0; ours || theirs; ++record) {
    const auto differs = [&] {
      return Fail(ErrorCode::kInternal,
                  fmt::format("record {} differs between lmdbio and liblmdb", record));
    };
    if (ours != theirs) return differs();
    LMDBIO_TRY(const Bytes value, cursor.Value());
    if (!Equal(cursor.key(), reader.key()) || !Equal(value, reader.value())) return differs();
    LMDBIO_TRY(ours, cursor.Next());
    LMDBIO_TRY(theirs, reader.Next());
  }
  return {};
}

void Print(const char* reader, std::vector<Pass> passes) {
  std::ranges::sort(passes, {}, &Pass::cpu_seconds);
  const double cpu_seconds = passes[passes.size() / 2].cpu_seconds;
  std::ranges::sort(passes, {}, &Pass::seconds);
  const Pass& pass = passes[passes.size() / 2];
  fmt::print("  {:<28} {:>12.0f} records/s {:>9.0f} MB/s {:>9.1f} ms processor time\n", reader,
             static_cast<double>(pass.record_count) / pass.seconds,
             static_cast<double>(pass.value_bytes) / 1e6 / pass.seconds, cpu_seconds * 1e3);
}

Status Run(const std::string& path) {
  LMDBIO_TRY(const std::string data_path, lmdbio::file::FindDataFile(path));
  LMDBIO_TRY_VOID(CompareEveryRecord(data_path));
  // The comparison has brought the file into the page cache, so all passes are warm. The readers
  // take turns, so that other load on the machine affects all of them.
  std::vector<Pass> lmdb, map, read_ahead;
  for (int round = 0; round < kRounds; ++round) {
    LMDBIO_TRY(lmdb.emplace_back(), Timed([&] { return ReadWithLmdb(data_path); }));
    LMDBIO_TRY(map.emplace_back(),
               Timed([&] { return ReadWithLmdbio<lmdbio::file::MapSource>(data_path); }));
    LMDBIO_TRY(read_ahead.emplace_back(),
               Timed([&] { return ReadWithLmdbio<lmdbio::file::ReadAheadSource>(data_path); }));
    for (const Pass& pass : {map.back(), read_ahead.back()}) {
      if (pass.record_count != lmdb[0].record_count || pass.word_sum != lmdb[0].word_sum) {
        return Fail(ErrorCode::kInternal, "the passes found different records");
      }
    }
  }
  fmt::print("{} records, {} bytes: every key and value equals liblmdb's\n", lmdb[0].record_count,
             lmdb[0].value_bytes);
  fmt::print("warm passes over all of them, median of {}:\n", kRounds);
  Print("liblmdb", lmdb);
  Print("lmdbio, map", map);
  Print("lmdbio, explicit reads", read_ahead);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: check_records PATH\n");
    return 2;
  }
  const Status status = Run(argv[1]);
  if (status) return 0;
  std::fprintf(stderr, "check_records: %s\n", status.error().message().c_str());
  return 1;
}
