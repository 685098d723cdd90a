// tests/fuzz/timeline_fuzz.cc - any bytes as the timeline of a rank.
//
// Input: a file of lmdbio/trace/timeline.h.
// Oracle: the sanitizers; a file is refused with one line, or its events have what the report
// reads, and the report is text. Memory and time grow with the size of the file.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"
#include "tests/fuzz/decode_check.h"
#include "tools/timeline/timeline_file.h"
#include "tools/timeline/timeline_report.h"

namespace lmdbio::test {
namespace {

// The path of a file in memory with this content, which is replaced by the next one.
std::string PathOf(Bytes content) {
  static const UniqueFd file(::memfd_create("timeline", MFD_CLOEXEC));
  LMDBIO_CHECK(::ftruncate(file.get(), 0) == 0);
  LMDBIO_CHECK(::pwrite(file.get(), content.data(), content.size(), 0) ==
               static_cast<ssize_t>(content.size()));
  return fmt::format("/proc/self/fd/{}", file.get());
}

void ReadTimes(const std::string& path) {
  const auto clocks = tools::ReadClocks(path);
  if (!clocks) return CheckMessage(clocks.error());
  for (const tools::TimelineClock& clock : *clocks) {
    LMDBIO_CHECK(clock.rank >= 0 && clock.size >= 0 && clock.steady_ns >= 0);
  }
  for (const double shift_us : tools::AlignClocks(*clocks).us) {
    LMDBIO_CHECK(std::isfinite(shift_us) && shift_us >= 0);
  }
}

void Report(const std::string& path) {
  auto file = tools::TimelineFile::Open(path);
  if (!file) return CheckMessage(file.error());
  tools::TimelineReport report;
  uint64_t event_bytes = 0;
  CheckMessageOf(file->ReadAll([&](nlohmann::json& event) -> Status {
    LMDBIO_CHECK(event["pid"].get<int64_t>() >= 0);
    event_bytes += event.dump().size();
    report.Take(event);
    return {};
  }));
  LMDBIO_CHECK(event_bytes == 0 || !report.Outcome(3).dump().empty());
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  const std::string path = test::PathOf(std::as_bytes(std::span(data, size)));
  test::ReadTimes(path);
  test::Report(path);
  return 0;
}
