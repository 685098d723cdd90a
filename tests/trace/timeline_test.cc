// Goal: the file is JSON with paired events, for any tensor names, with many threads, and after a
// killed process; and a full disk is reported once.

#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lmdbio/trace/timeline.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::trace {
namespace {

using test::Good;

using nlohmann::json;

std::string TextOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Repairs a file without its end, as Chrome does.
json WithEnd(std::string text) {
  const size_t end = text.find_last_not_of(",\n");
  return json::parse(text.substr(0, end + 1) + "]");
}

// The first unpaired event in the rows of one file; "" if all are paired.
std::string FlawOf(const json& events) {
  std::map<int, int> open;
  std::map<int, double> last;
  for (const json& event : events) {
    const std::string kind = event.at("ph");
    if (kind != "B" && kind != "E") continue;
    const int row = event.at("tid");
    int& depth = open[row];
    depth += kind == "B" ? 1 : -1;
    if (depth < 0 || depth > 1) return "row " + std::to_string(row) + ": " + event.dump();
    const double at = event.at("ts");
    if (last.contains(row) && at < last[row]) return "back in time: " + event.dump();
    last[row] = at;
  }
  return "";
}

std::vector<json> EventsOf(const json& events, const std::string& name) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event.value("name", "") == name) found.push_back(event);
  }
  return found;
}

TEST_CASE("Timeline begins with its rank and ends with the lost event count", "[trace]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "trace";
  const int64_t begin = Now();
  auto timeline = Good(Timeline::Open({.path = path, .rank = 3, .size = 8, .host = "n\"7"}));
  CHECK(timeline->path() == path + ".3");
  CHECK(timeline->Close().has_value());
  timeline->Mark("too late", begin);
  CHECK(timeline->Close().has_value());
  const json events = json::parse(TextOf(path + ".3"));
  CHECK(EventsOf(events, "process_name")[0]["args"]["name"] == "rank 3 on n\"7");
  const json clock = EventsOf(events, "lmdbio_clock")[0]["args"];
  CHECK(clock["rank"] == 3);
  CHECK(clock["size"] == 8);
  CHECK(clock["steady_ns"].get<int64_t>() >= begin);
  const std::chrono::nanoseconds day(clock["steady_ns"].get<int64_t>() +
                                     clock["day_minus_steady_ns"].get<int64_t>());
  const auto apart = std::chrono::system_clock::now().time_since_epoch() - day;
  CHECK(apart < std::chrono::hours(1));
  CHECK(apart > -std::chrono::hours(1));
  CHECK(EventsOf(events, "too late").empty());
  CHECK(events.back()["name"] == "lmdbio_end");
  CHECK(events.back()["args"]["lost_events"] == 0);
}

TEST_CASE("Timeline writes the phases of a tensor", "[trace]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "trace";
  auto timeline = Good(Timeline::Open({.path = path}));
  const int64_t begin = Now();
  TimelineTensor unknown;
  timeline->Agree(unknown, 7, begin);
  timeline->End(unknown, "allreduce", begin);
  TimelineTensor conv1 = timeline->Begin("conv1", 4096, begin);
  timeline->Round(5, begin, begin + 800);
  timeline->Agree(conv1, 2, begin + 1'000);
  timeline->CopyOut(4096, begin + 2'500, begin + 3'400);
  timeline->Transfer(4096, begin + 3'500, begin + 7'001);
  timeline->Bucket({.number = 2,
                    .bytes = 4096,
                    .tensor_count = 1,
                    .begin_ns = begin + 1'000,
                    .end_ns = begin + 9'000});
  timeline->End(conv1, "allreduce", begin + 9'999);
  timeline->End(conv1, "allreduce", begin + 10'000);    // no effect: it has ended
  timeline->Waited("conv1", begin + 500, begin + 501);  // the first wait is always written
  timeline->Waited("conv1", begin + 500, begin + 9'999);
  timeline->Waited("conv1", begin + 9'999, begin + 9'999 + Timeline::kLookNs - 1);
  timeline->Mark("plan adopted", begin + 10'000);
  conv1 = timeline->Begin("conv1", 4096, begin + 20'000);
  timeline->Agree(conv1, 3, begin + 21'000);
  timeline->Agree(conv1, 4, begin + 22'000);
  timeline->End(conv1, "allreduce", begin + 23'000);
  conv1 = timeline->Begin("conv1", 4096, begin + 23'500);
  timeline->End(conv1, "allreduce", begin + 24'000);  // failed before all ranks had submitted it
  CHECK(timeline->Close().has_value());

  const json events = json::parse(TextOf(path + ".0"));
  CHECK(FlawOf(events).empty());
  const double origin = EventsOf(events, "negotiate")[0]["ts"];
  const auto expect_span = [&](const std::string& name, double from_us, double us,
                               const json& arguments) {
    CAPTURE(name);
    const std::vector<json> found = EventsOf(events, name);
    REQUIRE(found.size() == 1);
    CHECK(found[0]["ts"].get<double>() - origin == Approx(from_us).margin(1e-4));
    CHECK(found[0]["dur"].get<double>() == Approx(us).margin(1e-4));
    CHECK(found[0]["args"] == arguments);
  };
  expect_span("round", 0, 0.8, {{"number", 5}});
  expect_span("copy out", 2.5, 0.9, {{"bytes", 4096}});
  expect_span("transfer", 3.5, 3.501, {{"bytes", 4096}});
  expect_span("bucket", 1, 8, {{"number", 2}, {"bytes", 4096}, {"tensors", 1}});
  expect_span("declined", 21, 1, {{"bucket", 3}});
  const std::vector<json> operations = EventsOf(events, "allreduce");
  REQUIRE(operations.size() == 2);
  CHECK(operations[0]["ts"].get<double>() - origin == Approx(1).margin(1e-4));
  CHECK(operations[0]["dur"].get<double>() == Approx(8.999).margin(1e-4));
  CHECK(operations[0]["args"] == json{{"bucket", 2}});
  CHECK(operations[1]["args"] == json{{"bucket", 4}});
  const std::vector<json> negotiations = EventsOf(events, "negotiate");
  REQUIRE(negotiations.size() == 3);
  for (size_t i = 0; i < negotiations.size(); ++i) {
    CHECK(negotiations[i]["args"] == json{{"number", i + 1}, {"bytes", 4096}});
  }
  const std::vector<json> waits = EventsOf(events, "wait");
  REQUIRE(waits.size() == 2);
  CHECK(waits[0]["dur"] == Approx(0.001));
  CHECK(waits[1]["dur"] == Approx(9.499));
  CHECK(waits[1]["args"]["row"] == negotiations[0]["tid"]);
  CHECK(EventsOf(events, "plan adopted").size() == 1);
}

TEST_CASE("Timeline writes any name as valid JSON", "[trace]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "trace";
  const std::vector<std::string> names = {"a\"b\\c",
                                          std::string("nul\0nl\n\x1f", 8),
                                          "gr\xc3\xbc\xc3\x9f",
                                          "\xff\xfe",
                                          "cut\xe2\x82",
                                          "\xed\xa0\x80",
                                          "\xf0\x9f\x98\x80",
                                          "\xc0\xaf",
                                          std::string(5000, '\x01'),
                                          ""};
  {
    auto timeline = Good(Timeline::Open({.path = path}));
    for (const std::string& name : names) {
      TimelineTensor row = timeline->Begin(name, 1, Now());
      timeline->Mark(name, Now());
      timeline->End(row, "allreduce", Now());
    }
  }
  const json events = json::parse(TextOf(path + ".0"));
  CHECK(FlawOf(events).empty());
  std::set<std::string> rows;
  for (const json& event : EventsOf(events, "thread_name")) rows.insert(event["args"]["name"]);
  CHECK(rows.contains("a\"b\\c"));
  CHECK(rows.contains(std::string("nul\0nl\n\x1f", 8)));
  CHECK(rows.contains("gr\xc3\xbc\xc3\x9f"));
  CHECK(rows.contains("\xef\xbf\xbd\xef\xbf\xbd"));
  CHECK(rows.contains("\xf0\x9f\x98\x80"));
}

TEST_CASE("Timeline of a process that was killed can be read", "[trace]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "trace";
  auto timeline = Good(Timeline::Open({.path = path, .rank = 1}));
  // The head of the file names the rank from the start.
  CHECK(EventsOf(WithEnd(TextOf(path + ".1")), "lmdbio_clock").size() == 1);
  const int64_t begin = Now();
  timeline->Begin("t", 1, begin);
  CHECK(timeline->FlushIfDue(begin).has_value());
  CHECK(EventsOf(WithEnd(TextOf(path + ".1")), "negotiate").empty());  // too few events to write
  CHECK(timeline->FlushIfDue(begin + 2'000'000'000).has_value());
  CHECK(EventsOf(WithEnd(TextOf(path + ".1")), "negotiate").size() == 1);
}

TEST_CASE("Timeline pairs all events with many threads and a small buffer", "[trace]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "trace";
  constexpr int kThreads = 4;
  constexpr int kRounds = 2'000;
  uint64_t lost = 0;
  {
    auto timeline = Good(Timeline::Open({.path = path, .buffer_bytes = 64 << 10}));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const std::string name = fmt::format("tensor {}", t);
        for (int i = 0; i < kRounds; ++i) {
          TimelineTensor row = timeline->Begin(name, 8, Now());
          timeline->Agree(row, 1, Now());
          timeline->End(row, "allreduce", Now());
          if (i % 100 == 0) CHECK(timeline->FlushIfDue(Now()).has_value());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(timeline->Flush().has_value());
  }
  const json events = json::parse(TextOf(path + ".0"));
  CHECK(FlawOf(events).empty());
  lost = events.back()["args"]["lost_events"];
  const size_t drawn = EventsOf(events, "negotiate").size();
  CHECK(drawn <= kThreads * kRounds);
  CHECK(drawn + lost >= kThreads * kRounds);
  CHECK(drawn > 0);
}

TEST_CASE("Timeline::Open refuses an impossible path and a small buffer", "[trace]") {
  const test::TempDir dir;
  const auto nowhere = Timeline::Open({.path = dir.path() / "none" / "trace"});
  REQUIRE_FALSE(nowhere.has_value());
  CHECK(nowhere.error().code() == ErrorCode::kIo);
  CHECK(nowhere.error().error_number() == ENOENT);
  CHECK(nowhere.error().message().find("trace.0: No such file") != std::string::npos);
  const auto small = Timeline::Open({.path = dir.path() / "trace", .buffer_bytes = 1000});
  REQUIRE_FALSE(small.has_value());
  CHECK(small.error().code() == ErrorCode::kInvalidArgument);
}

// A limit on the file size simulates the full disk.
TEST_CASE("Timeline on a full disk ends with one error and whole events", "[trace][fault]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "trace";
  auto timeline = Good(Timeline::Open({.path = path}));
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  rlimit small = limit;
  small.rlim_cur = 20'000;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto fill = [&](int count) {
    for (int i = 0; i < count; ++i) {
      TimelineTensor row = timeline->Begin("t", 8, Now());
      timeline->End(row, "allreduce", Now());
    }
  };
  fill(40);
  const Status good = timeline->Flush();
  fill(1'000);
  const Status full = timeline->Flush();
  fill(20'000);  // more than the buffer: the timeline has ended, so nothing is written
  const Status after = timeline->FlushIfDue(Now());
  const Status closed = timeline->Close();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  ::signal(SIGXFSZ, before);

  CHECK(good.has_value());
  REQUIRE_FALSE(full.has_value());
  CHECK(full.error().code() == ErrorCode::kIo);
  CHECK(full.error().error_number() == EFBIG);
  CHECK(full.error().message() == path + ".0: File too large");
  CHECK(after.has_value());
  CHECK(closed.has_value());
  const json events = WithEnd(TextOf(path + ".0"));
  CHECK(FlawOf(events).empty());
  CHECK(EventsOf(events, "negotiate").size() == 40);
}

}  // namespace
}  // namespace lmdbio::trace
