// bench/device/probe_row.h - one row of the report of the device probe.
#ifndef LMDBIO_BENCH_DEVICE_PROBE_ROW_H_
#define LMDBIO_BENCH_DEVICE_PROBE_ROW_H_

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lmdbio/base/status.h"

namespace lmdbio::probe {

enum class RowState {
  kYes,          // it works; there may be a figure
  kUnsupported,  // the driver, the device or the system refuses; the note has the error
  kFailed,       // an error or a wrong result; the note has it
  kNotDrained,   // a stream was not done in time
  kLeftOut,      // not tried; the note says why
};

// "yes", "unsupported", "failed", "did not drain", "left out".
const char* StateName(RowState state);

struct ProbeRow {
  std::string question = {};  // "Q5"
  std::string name = {};      // unique in the question
  RowState state = RowState::kLeftOut;
  std::string unit = {};  // "GB/s"; empty: there is no figure
  std::vector<double> samples = {};
  std::string note = {};
};

// A row that says why `name` does not work: kUnsupported for that code, else kFailed.
ProbeRow RowOfError(std::string name, const Error& error);

// One line, for the pipe from a process of the probe, and its inverse. Only the report has the
// question.
std::string ToLine(const ProbeRow& row);
std::optional<ProbeRow> RowOfJson(const nlohmann::ordered_json& object);

// For the report: median, minimum and maximum in place of the samples.
nlohmann::ordered_json ToJson(const ProbeRow& row);

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_PROBE_ROW_H_
