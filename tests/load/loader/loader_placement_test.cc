// Goal: reading threads run only on the cores of the placement; other threads keep their cores.

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/base/placement.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

std::set<std::string> Threads() {
  std::set<std::string> threads;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    threads.insert(entry.path().filename());
  }
  return threads;
}

// "0-3,5"; "" if the thread has ended.
std::string CoresOf(const std::string& thread) {
  std::ifstream in(fmt::format("/proc/self/task/{}/status", thread));
  constexpr std::string_view kField = "Cpus_allowed_list:\t";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kField)) return line.substr(kField.size());
  }
  return "";
}

TEST_CASE("Threads that read run on the cores for input", "[loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  const CoreList allowed = Good(ProcessCores()).allowed;
  const std::string all = CoresText(allowed);
  const std::string last = std::to_string(allowed.back());
  for (const load::Strategy strategy : {load::Strategy::kScan, load::Strategy::kLmm}) {
    const std::set<std::string> before = Threads();
    const auto group = ranks::SoloGroup();
    load::LoaderOptions options;
    options.strategy = strategy;
    options.allow_map = false;
    options.engine = file::EngineKind::kPread;
    options.placement = "compute=" + std::to_string(allowed.front()) + ",input=" + last;
    const auto loader = Good(load::Loader::Open(*group, dir.path(), options));
    CHECK(Good(loader->Next()));
    size_t new_count = 0;
    for (const std::string& thread : Threads()) {
      const std::string cores = CoresOf(thread);
      if (before.contains(thread)) {
        CHECK(cores == all);
      } else if (!cores.empty()) {
        ++new_count;
        CHECK(cores == last);
      }
    }
    CHECK(new_count >= 1);
    CHECK(loader->placement().compute == CoreList{allowed.front()});
    CHECK(loader->Describe().find("input on cores " + last) != std::string::npos);
    REQUIRE(loader->SetEpoch(1).has_value());
    CHECK(Good(loader->Next()));
    for (const std::string& thread : Threads()) {
      if (!before.contains(thread)) CHECK((CoresOf(thread) == last || CoresOf(thread).empty()));
    }
  }
}

TEST_CASE("A loader says what its placement came to, once", "[loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInline(db);
  db.Commit();
  const auto group = ranks::SoloGroup();
  load::LoaderOptions options;
  options.placement = "scp";
  const auto loader = Good(load::Loader::Open(*group, dir.path(), options));
  const bool fits = Good(ProcessCores()).allowed.size() >= 3;
  CHECK(loader->placement().input.size() == (fits ? 1 : 0));
  size_t note_count = 0;
  for (const std::string& note : loader->TakeNotes()) note_count += note.starts_with("placement: ");
  CHECK(note_count == (fits ? 0 : 1));
  REQUIRE(loader->SetEpoch(1).has_value());
  for (const std::string& note : loader->TakeNotes()) CHECK_FALSE(note.starts_with("placement: "));

  options.placement = "input=1000000";
  const auto refused = load::Loader::Open(*group, dir.path(), options);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == ErrorCode::kInvalidArgument);
  CHECK(refused.error().message().find("core 1000000 does not exist") != std::string::npos);
}

TEST_CASE("Ranks with a placement each, or one that is wrong", "[loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInline(db);
  db.Commit();
  const std::string core = std::to_string(Good(ProcessCores()).allowed.back());
  for (const std::string& second : {"sync=" + core, std::string("sync=1000000")}) {
    std::array<std::string, 2> messages;
    std::array<CoreList, 2> sync;
    ranks::RunAsThreads({2, 2}, [&](ranks::Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      load::LoaderOptions options;
      options.placement = rank == 0 ? "scp" : second;
      const auto loader = load::Loader::Open(group, dir.path(), options);
      if (!loader) messages[rank] = loader.error().message();
      if (loader) sync[rank] = (*loader)->placement().sync;
    });
    if (second == "sync=" + core) {
      CHECK(messages == std::array<std::string, 2>{});
      CHECK(CoresText(sync[1]) == core);
    } else {
      CHECK(messages[0].starts_with("rank 1: placement"));
      CHECK(messages[1].find("core 1000000 does not exist") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lmdbio::test
