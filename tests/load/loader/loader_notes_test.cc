// Goal: a loader returns one note for each request of its engine that the kernel or the file system
// refuses. Method: a child process with a filter that refuses system calls.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/slots/notes.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/pid_namespaces.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using test::Good;
using test::RefusedCall;
using test::Verdict;
using Lines = std::vector<std::string>;

constexpr const char* kCannotArrange = "no descriptor can be made to refuse";

TEST_CASE("Notes are said once, and go over to a loader that goes on", "[loader][notes]") {
  Notes notes;
  notes.Add("a");
  notes.Add(Lines{"b", "a"});
  CHECK(notes.Take() == Lines{"a", "b"});
  notes.Add("b");
  notes.Add("c");
  Notes next;
  next.TakeOver(notes);
  next.Add("a");
  CHECK(next.Take() == Lines{"c"});
  CHECK(next.Take().empty());
}

struct RefusalCase {
  RefusedCall refused;
  LoaderOptions options;
  std::string note;    // the text behind the file's name
  std::string engine;  // the text in Loader::Describe
};

void CheckInChild(const std::function<std::string(const std::string& data_file)>& wrong_with,
                  const std::optional<RefusedCall>& refused) {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  db.Commit();
  const std::string data_file = db.data_file();
  const Verdict verdict = test::InChild([&] {
    if (refused && !test::RefuseSystemCall(*refused)) return Verdict::kCannotTell;
    const std::string wrong = wrong_with(data_file);
    if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
    if (wrong == kCannotArrange) return Verdict::kCannotTell;
    return wrong.empty() ? Verdict::kRight : Verdict::kWrong;
  });
  if (verdict == Verdict::kCannotTell) WARN("skipped: no such refusal can be arranged here");
  CHECK(verdict != Verdict::kWrong);
}

// Checks a loader in a process with a refused call. Returns the first difference, or "".
std::string WrongWith(const RefusalCase& expected, const std::string& data_file) {
  const auto solo = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*solo, data_file, expected.options));
  const Lines wanted{data_file + expected.note};
  const Lines said = loader->TakeNotes();
  if (said != wanted) return said.empty() ? "nothing was said" : said.front();
  if (!Good(loader->Next())) return "no batch";
  if (loader->Describe().find(expected.engine) == std::string::npos) return loader->Describe();
  if (!loader->SetEpoch(2) || !Good(loader->Next())) return "no batch of a later epoch";
  if (!loader->TakeNotes().empty()) return "it was said again";
  return "";
}

void CheckRefused(const RefusalCase& expected) {
  CheckInChild([&](const std::string& data_file) { return WrongWith(expected, data_file); },
               expected.refused);
}

TEST_CASE("A loader of several hosts names a stagger without effect", "[loader][notes]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.stagger = GENERATE(1, 2, 3);
  options.allow_map = false;
  options.max_batches = 2;
  CAPTURE(options.stagger);
  const auto delivered = test::Deliver({2, 1}, db.data_file(), options);
  const std::string note = fmt::format(
      "stagger {} has no effect: the job has 2 reader(s); see readers_per_host", options.stagger);
  const auto count = std::count(delivered.notes.begin(), delivered.notes.end(), note);
  CHECK(count == (options.stagger < 2 ? 0 : 1));
}

TEST_CASE("A loader names an option without effect", "[loader][notes]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.stagger = 2;
  options.allow_map = false;
  std::string note = "stagger 2 has no effect: the job has 1 reader(s); see readers_per_host";
  SECTION("with as many tokens as readers") {}
  SECTION("with a strategy without turns") {
    options.strategy = Strategy::kScan;
    note =
        "stagger has no effect with strategy scan: its readers take no turns; use auto or "
        "lmm-dio-prov-coal-stag";
  }
  SECTION("no option") {
    options.stagger = 0;
    note.clear();
  }
  const auto solo = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*solo, db.data_file().string(), options));
  CHECK(loader->TakeNotes() == (note.empty() ? Lines{} : Lines{note}));
}

TEST_CASE("A loader says that O_DIRECT is refused", "[loader][notes]") {
  RefusalCase expected{.refused = {SYS_openat, EINVAL, 2, O_DIRECT},
                       .options = {},
                       .note =
                           ": O_DIRECT is refused (Invalid argument): reading through the page "
                           "cache",
                       .engine = "pread, buffered, 32 deep"};
  expected.options.strategy = Strategy::kScan;
  expected.options.engine = file::EngineKind::kPread;
  SECTION("where it reads slot by slot") {}
  SECTION("where it keeps the file") {
    expected.options.strategy = Strategy::kAuto;
    expected.options.cache = file::CachePolicy::kDirect;
    expected.options.keep_bytes = 1 << 30;
  }
  CheckRefused(expected);
}

TEST_CASE("A loader says that io_uring is refused", "[loader][notes]") {
  RefusalCase expected{
      .refused = {SYS_io_uring_setup, EPERM},
      .options = {},
      .note = ": io_uring is refused (Operation not permitted): reading with pread",
      .engine = "pread, buffered, 32 deep"};
  expected.options.strategy = Strategy::kScan;
  expected.options.cache = file::CachePolicy::kBuffered;
  CheckRefused(expected);
}

// Makes reads of every direct descriptor fail, while opening succeeds.
bool SpoilDirectDescriptors() {
  const UniqueFd refusing(::open("/proc/self/clear_refs", O_RDONLY | O_CLOEXEC));
  char byte = 0;
  if (::pread(refusing.get(), &byte, 1, 0) != -1 || errno != EINVAL) return false;
  std::vector<int> direct;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    if ((::fcntl(fd, F_GETFL) & O_DIRECT) != 0) direct.push_back(fd);
  }
  for (const int fd : direct) ::dup2(refusing.get(), fd);
  return !direct.empty();
}

// The window is small, so most of the stream is read after the descriptor was replaced.
std::string WrongAfterLateRefusal(const std::string& data_file) {
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.engine = file::EngineKind::kPread;
  options.memory_budget_bytes = 4 << 20;
  const auto solo = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*solo, data_file, options));
  if (!Good(loader->Next())) return "no batch";
  if (!loader->TakeNotes().empty() || !SpoilDirectDescriptors()) return kCannotArrange;
  Lines said;
  for (int batch = 0; batch < 1000 && said.empty(); ++batch) {
    if (!Good(loader->Next())) return "no batch";
    said = loader->TakeNotes();
  }
  const Lines wanted{data_file +
                     ": O_DIRECT is refused (Invalid argument): reading through the page cache"};
  if (said != wanted) return said.empty() ? "nothing was said" : said.front();
  const std::string how = loader->Describe();
  return how.find("pread, buffered, 32 deep") == std::string::npos ? how : "";
}

TEST_CASE("A loader says that O_DIRECT is refused after it was granted", "[loader][notes]") {
  CheckInChild(WrongAfterLateRefusal, std::nullopt);
}

TEST_CASE("A loader says whose end it would not notice", "[loader][notes]") {
  if (!test::HasPidNamespaces()) {
    WARN("skipped: no pid namespaces can be made here");
    return;
  }
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillInline(db);
  db.Commit();
  const std::string data_file = db.data_file();
  test::ForkedJob job(2, 2);
  job.Start([&](ranks::Group& group, test::ForkedJob&) -> std::string {
    std::string said;
    LoaderOptions options;
    options.memory_budget_bytes = 4 << 20;
    const auto open = [&] {
      const auto loader = Good(Loader::Open(group, data_file, options));
      for (const std::string& note : loader->TakeNotes()) said += note;
      return Verdict::kRight;
    };
    const Verdict verdict = group.rank() == 0 ? open() : test::InNewPidNamespace(open);
    return verdict == Verdict::kRight ? said : "not opened";
  });
  CHECK(job.EndOf(0) ==
        "the end of rank 1 cannot be detected: its process is in another pid namespace, or "
        "pidfd_open and /proc are refused");
  CHECK(job.EndOf(1) == "");
}

}  // namespace
}  // namespace lmdbio::load
