// Goal: the recorder keeps the last events, unmixed, with several threads that write at one time.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/trace/flight_recorder.h"
#include "tests/support/catch.h"

namespace lmdbio::trace {
namespace {

// A line without the time of day at its front.
std::string Without(const std::string& line) {
  REQUIRE(line.size() > 21);
  CHECK(line.substr(15, 6) == " UTC  ");
  return line.substr(21);
}

TEST_CASE("FlightRecorder keeps the last events, oldest first", "[trace]") {
  FlightRecorder recorder(4);
  CHECK(recorder.Lines().empty());
  for (uint64_t i = 1; i <= 10; ++i) {
    recorder.Record(FlightKind::kSubmitted, fmt::format("t{}", i), {i, 100 * i, 0});
  }
  CHECK(recorder.recorded_count() == 10);
  const std::vector<std::string> lines = recorder.Lines();
  REQUIRE(lines.size() == 4);
  CHECK(Without(lines[0]) == "submitted    't7' number 7, 700 bytes");
  CHECK(Without(lines[3]) == "submitted    't10' number 10, 1000 bytes");
}

TEST_CASE("FlightRecorder prints the details that apply", "[trace]") {
  FlightRecorder recorder;
  recorder.Record(FlightKind::kDone, "conv1", {17, 4096, 3});
  recorder.Record(FlightKind::kPlanAdopted, {}, {.number = 5});
  recorder.Record(FlightKind::kPlanEnded);
  recorder.Record(FlightKind::kFailed, "a\nb\x7f");
  const std::vector<std::string> lines = recorder.Lines();
  REQUIRE(lines.size() == 4);
  CHECK(Without(lines[0]) == "done         'conv1' number 17, 4096 bytes, collective 3");
  CHECK(Without(lines[1]) == "plan adopted number 5");
  CHECK(Without(lines[2]) == "plan ended");
  CHECK(Without(lines[3]) == "failed       'a?b?'");
}

TEST_CASE("FlightRecorder keeps the ends of long names", "[trace]") {
  FlightRecorder recorder;
  const std::string exact(FlightRecorder::kNameBytesMax, 'n');
  recorder.Record(FlightKind::kDone, exact);
  recorder.Record(FlightKind::kDone, "head" + std::string(500, 'x') + "tail");
  const std::vector<std::string> lines = recorder.Lines();
  CHECK(lines[0].find("'" + exact + "'") != std::string::npos);
  const std::string name = lines[1].substr(lines[1].find('\''));
  CHECK(name.size() == FlightRecorder::kNameBytesMax + 2);
  CHECK(name.starts_with("'headxxx"));
  CHECK(name.find("x...x") != std::string::npos);
  CHECK(name.ends_with("xxxtail'"));
}

TEST_CASE("FlightRecorder converts steady time to time of day", "[trace]") {
  FlightRecorder recorder;
  recorder.RecordAt(1'000'000'000, FlightKind::kDone, {}, {});
  recorder.RecordAt(3'500'000'000, FlightKind::kDone, {}, {});
  const std::vector<std::string> lines = recorder.Lines();
  const auto second = [](const std::string& line) {
    return std::stod(line.substr(6, 9)) + 60 * std::stod(line.substr(3, 2));
  };
  const double apart = second(lines[1]) - second(lines[0]);
  CHECK((apart < 0 ? apart + 3600 : apart) == Approx(2.5).margin(1e-5));
}

// Name, number and bytes of every line must belong to one event.
TEST_CASE("FlightRecorder never mixes events of several threads", "[trace]") {
  constexpr int kThreads = 4;
  constexpr uint64_t kEvents = 20'000;
  FlightRecorder recorder(8);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 1; i <= kEvents; ++i) {
        const uint64_t number = i * kThreads + static_cast<uint64_t>(t);
        recorder.Record(FlightKind::kDone,
                        std::string(1 + number % 60, 'a') + std::to_string(number),
                        {number, number * 3, number * 7});
      }
      running.fetch_sub(1);
    });
  }
  uint64_t line_count = 0;
  const auto check = [&] {
    for (const std::string& line : recorder.Lines()) {
      ++line_count;
      const size_t at = line.find(" number ");
      REQUIRE(at != std::string::npos);
      const uint64_t number = std::stoull(line.substr(at + 8));
      REQUIRE(Without(line) == fmt::format("done         '{}{}' number {}, {} bytes, collective {}",
                                           std::string(1 + number % 60, 'a'), number, number,
                                           number * 3, number * 7));
    }
  };
  while (running.load() > 0) check();
  for (std::thread& thread : threads) thread.join();
  check();
  CHECK(line_count > 0);
  CHECK(recorder.recorded_count() == kThreads * kEvents);
}

}  // namespace
}  // namespace lmdbio::trace
