// bench/device/probe_trials.h - the list of all trials of the device probe.
#ifndef LMDBIO_BENCH_DEVICE_PROBE_TRIALS_H_
#define LMDBIO_BENCH_DEVICE_PROBE_TRIALS_H_

#include <string>
#include <vector>

#include "bench/device/probe_part.h"

namespace lmdbio::probe {

// A part of a question that runs in processes of its own.
struct Trial {
  std::string question;
  std::vector<std::string> rows;  // all of them, whatever happens
  int process_count = 1;
  double seconds_max = 20;  // without the waits of --drain-seconds
  // The state of rows that no process has sent when the time is over, or when a process is killed.
  RowState state_if_ended = RowState::kFailed;
  // Runs in each process. An error is the reason for the rows that are still missing.
  Status (*play)(const ProbePart& part) = nullptr;
  // Its process gives the device back and stays to the end, so that the driver stays loaded.
  bool stays = false;
};

struct QuestionTitle {
  const char* question;
  const char* title;
};

// In the order of the report; Q0 is about the device itself, and has no rows.
const std::vector<Trial>& AllTrials();
const std::vector<QuestionTitle>& AllQuestions();

// Rows of Q9, which rivals.py sends.
std::vector<std::string> RivalRows();
// The row of Q7 about a window of MPI, which only a process of an MPI job has.
inline constexpr const char* kWindowRow = "a window of MPI";

// Each adds the trials of its question.
void AddFacts(std::vector<Trial>& trials);
void AddSharing(std::vector<Trial>& trials);
void AddMarks(std::vector<Trial>& trials);
void AddKilled(std::vector<Trial>& trials);
void AddTurns(std::vector<Trial>& trials);
void AddCopies(std::vector<Trial>& trials);
void AddGather(std::vector<Trial>& trials);
void AddPinning(std::vector<Trial>& trials);
void AddCalls(std::vector<Trial>& trials);

// The rate at which `memory`, whose pages are there already, is registered, with a copy out of it
// that is checked.
// Errors: as Device::Pin; kInternal  the device sees other bytes
Result<std::vector<double>> PinningRates(const ProbePart& part, MutableBytes memory);

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_PROBE_TRIALS_H_
