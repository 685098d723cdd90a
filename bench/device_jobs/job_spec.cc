#include "bench/device_jobs/job_spec.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lmdbio::figures {
namespace {

using nlohmann::json;

}  // namespace

std::string TextOf(const JobSpec& spec) {
  return json{{"kind", spec.kind},
              {"variant", spec.variant},
              {"order", spec.order},
              {"rank_count", spec.rank_count},
              {"are_threads", spec.are_threads},
              {"sizes", spec.sizes},
              {"buffer_bytes", spec.buffer_bytes},
              {"ordinal", spec.ordinal},
              {"sample_count", spec.sample_count},
              {"sample_seconds", spec.sample_seconds},
              {"row_seconds", spec.row_seconds}}
      .dump();
}

std::string TextOf(const JobMeeting& meeting) {
  return json{{"rank", meeting.rank}, {"port", meeting.port}, {"job", meeting.job}}.dump();
}

std::optional<JobSpec> JobSpecOf(const std::string& text) {
  try {
    const json object = json::parse(text);
    JobSpec spec;
    object.at("kind").get_to(spec.kind);
    object.at("variant").get_to(spec.variant);
    object.at("order").get_to(spec.order);
    object.at("rank_count").get_to(spec.rank_count);
    object.at("are_threads").get_to(spec.are_threads);
    object.at("sizes").get_to(spec.sizes);
    object.at("buffer_bytes").get_to(spec.buffer_bytes);
    object.at("ordinal").get_to(spec.ordinal);
    object.at("sample_count").get_to(spec.sample_count);
    object.at("sample_seconds").get_to(spec.sample_seconds);
    object.at("row_seconds").get_to(spec.row_seconds);
    return spec;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::optional<JobMeeting> JobMeetingOf(const std::string& text) {
  try {
    const json object = json::parse(text);
    JobMeeting meeting;
    object.at("rank").get_to(meeting.rank);
    object.at("port").get_to(meeting.port);
    object.at("job").get_to(meeting.job);
    return meeting;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string MeasureOf(const std::string& what, uint64_t size_bytes) {
  return fmt::format("{}, {} bytes", what, size_bytes);
}

std::string SizeWords(uint64_t size_bytes) {
  if (size_bytes >= 1 << 20) return fmt::format("{} MiB", size_bytes >> 20);
  if (size_bytes >= 1 << 10) return fmt::format("{} KiB", size_bytes >> 10);
  return fmt::format("{} B", size_bytes);
}

}  // namespace lmdbio::figures
