// Goal: a provenance file gives the exact layout of the database for which it was made, and an
// error for any other. Oracle: the page walk over the file itself.
#include "lmdbio/file/provenance/provenance.h"

#include <random>

#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/source/file_source.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::Database;
using file::Environment;
using file::Fingerprint;
using file::Layout;
using file::LayoutBuilder;
using file::Provenance;
using file::RecordRun;

// All fields of a run, for the comparison of two producers.
struct RunText final : file::RecordRunSink {
  Status Add(const RecordRun& run) override {
    runs.push_back(std::to_string(run.first_record.value) + "@" + std::to_string(run.leaf.value) +
                   "." + std::to_string(run.first_node) + "/" +
                   std::to_string(static_cast<int>(run.kind)) + "/" +
                   std::to_string(run.home.value));
    for (const Extent& value : run.values) {
      runs.back() += " " + std::to_string(value.offset) + "+" + std::to_string(value.length_bytes);
    }
    return {};
  }
  std::vector<std::string> runs;
};

struct WalkedDatabase {
  RunText text;
  Layout layout;
  Fingerprint fingerprint;
};

WalkedDatabase Walk(const Database& database) {
  WalkedDatabase walked;
  LayoutBuilder builder;
  const std::vector<PageNo> leaves = Value(file::WalkDatabase(database, builder));
  walked.layout = builder.Finish();
  Succeed(walked.layout.Expand(walked.text));
  walked.fingerprint = Value(file::TakeFingerprint(database, leaves));
  return walked;
}

std::vector<std::byte> ExactFile(const Database& database, const WalkedDatabase& walked) {
  file::ExactEncoder encoder(database.pages().page_format());
  Succeed(walked.layout.Expand(encoder));
  return file::EncodeExactLayout(walked.fingerprint, walked.layout.record_count(),
                                 encoder.Finish());
}

void CheckRoundTrip(const Database& database) {
  const WalkedDatabase walked = Walk(database);
  const std::vector<std::byte> file = ExactFile(database, walked);
  const Provenance decoded = Value(Provenance::Decode(file));
  Succeed(file::CheckFingerprint(decoded.fingerprint(), database));
  RunText expanded;
  Succeed(decoded.Expand(expanded));
  REQUIRE(expanded.runs == walked.text.runs);
}

void CheckAllDatabases(const ByteSource& source) {
  const Environment environment = Value(Environment::Open(source));
  CheckRoundTrip(environment.Main());
  for (const std::string& name : Value(environment.Names())) {
    INFO("database " << name);
    CheckRoundTrip(Value(environment.Named(name)));
  }
}

// A small ordered database and its exact provenance.
struct Small {
  Small() {
    TinyDb db(dir.path());
    for (int i = 0; i < 300; ++i) {
      db.Put("key" + std::to_string(1000 + i), std::string(static_cast<size_t>(i) * 20, 'v'));
    }
    db.Commit();
    data_file = db.data_file();
    const auto source = Value(file::FileSource::Open(data_file));
    const Database database = OpenDatabase(*source);
    file = ExactFile(database, Walk(database));
  }
  TempDir dir;
  std::string data_file;
  std::vector<std::byte> file;
};

TEST_CASE("An exact layout survives encoding, for every fixture", "[provenance]") {
  for (const FixtureSpec& spec : FixtureCatalogue(FixtureScale::kSmall)) {
    INFO("fixture " << spec.name);
    const TempDir dir;
    const Fixture fixture = WriteFixture(spec, dir.path());
    const auto source = Value(file::FileSource::Open(fixture.data_file));
    CheckAllDatabases(*source);
  }
}

TEST_CASE("An exact layout survives encoding, for every fixture of version 3", "[provenance]") {
  for (const std::string& name : V3FixtureNames()) {
    INFO("fixture " << name);
    CheckAllDatabases(MemorySource(V3FixtureBytes(name), name));
  }
}

TEST_CASE("Layouts longer than one chunk survive encoding", "[provenance]") {
  const file::PageFormat format(file::DataVersion::k1, 4096);
  LayoutBuilder builder;
  file::ExactEncoder encoder(format);
  std::mt19937_64 random(7);
  uint64_t record = 0;
  for (uint64_t leaf = 0; leaf < 20'000; ++leaf) {
    std::vector<Extent> values;
    for (int i = 0; i < 50; ++i) {
      const uint64_t page = 2 + random() % 1'000'000;
      values.push_back({page * 4096 + 16, 1 + random() % 4000});
    }
    const RecordRun run{{record},
                        PageNo{2'000'000 + leaf},
                        0,
                        file::RunKind::kNodes,
                        PageNo{2'000'000 + leaf},
                        values,
                        {}};
    Succeed(builder.Add(run));
    Succeed(encoder.Add(run));
    record += values.size();
  }
  LayoutBuilder decoded;
  Succeed(file::DecodeExact(encoder.Finish(), format, record, PageNo{2'100'000}, decoded));
  RunText before;
  RunText after;
  Succeed(builder.Finish().Expand(before));
  Succeed(decoded.Finish().Expand(after));
  CHECK((before.runs == after.runs));
}

TEST_CASE("A provenance file with any byte changed is refused", "[provenance][damage]") {
  const Small small;
  for (size_t at = 0; at < small.file.size(); ++at) {
    INFO("byte " << at);
    std::vector<std::byte> damaged = small.file;
    damaged[at] ^= std::byte{0x10};
    REQUIRE_FALSE(Provenance::Decode(damaged).has_value());
  }
}

TEST_CASE("A provenance file cut off anywhere is refused", "[provenance][damage]") {
  const Small small;
  for (size_t length = 0; length < small.file.size(); ++length) {
    INFO("length " << length);
    REQUIRE_FALSE(Provenance::Decode(Bytes(small.file).first(length)).has_value());
  }
}

TEST_CASE("A provenance file of a later version is refused by name", "[provenance]") {
  Small small;
  small.file[8] = std::byte{9};
  const Result<Provenance> decoded = Provenance::Decode(small.file);
  REQUIRE_FALSE(decoded.has_value());
  CHECK(decoded.error().code() == ErrorCode::kUnsupported);
  CHECK(decoded.error().message() == "provenance: format version 9 is not supported; expected 1");
}

// Changes the database with `change` and returns the message with which its provenance is refused.
std::string WhyNot(Small& small, const std::function<void(TinyDb&)>& change) {
  {
    TinyDb db(small.dir.path());
    change(db);
    db.Commit();
  }
  const auto source = Value(file::FileSource::Open(small.data_file));
  const Provenance decoded = Value(Provenance::Decode(small.file));
  const Status fits = file::CheckFingerprint(decoded.fingerprint(), OpenDatabase(*source));
  if (fits) return "fits";
  CHECK(fits.error().code() == ErrorCode::kStale);
  return fits.error().message();
}

TEST_CASE("A database changed by one put is refused by field", "[provenance]") {
  Small small;
  CHECK(WhyNot(small, [](TinyDb& db) { db.Put("key1000", ""); }) ==
        small.data_file + ": transaction id is 2, the provenance file was made for 1");
}

TEST_CASE("A database changed behind the counters is refused by a leaf's hash", "[provenance]") {
  Small small;
  std::vector<std::byte> content = ReadWholeFile(small.data_file);
  const Provenance decoded = Value(Provenance::Decode(small.file));
  REQUIRE_FALSE(decoded.fingerprint().samples.empty());
  const PageNo leaf = decoded.fingerprint().samples.front().page;
  content[leaf.value * 4096 + 4095] ^= std::byte{1};
  const MemorySource source(content, "changed");
  const Status fits = file::CheckFingerprint(decoded.fingerprint(), OpenDatabase(source));
  REQUIRE_FALSE(fits.has_value());
  CHECK(fits.error().message().starts_with("changed: hash of leaf page " +
                                           std::to_string(leaf.value)));
}

TEST_CASE("A provenance file of another database in the same file is refused", "[provenance]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Use("one").Put("a", "1").Use("two").Put("a", "1").Commit();
  const auto source = Value(file::FileSource::Open(db.data_file()));
  const Database one = OpenDatabase(*source, "one");
  const Provenance decoded = Value(Provenance::Decode(ExactFile(one, Walk(one))));
  CHECK(file::CheckFingerprint(decoded.fingerprint(), one).has_value());
  const Status fits = file::CheckFingerprint(decoded.fingerprint(), OpenDatabase(*source, "two"));
  REQUIRE_FALSE(fits.has_value());
  CHECK(fits.error().message() == db.data_file().string() +
                                      ": database name is 'two', the provenance file was made for "
                                      "'one'");
}

}  // namespace
}  // namespace lmdbio::test
