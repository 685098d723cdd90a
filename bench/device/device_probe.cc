#include "bench/device/device_probe.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/device/machine_state.h"
#include "bench/device/probe_report.h"
#include "bench/device/probe_trials.h"
#include "bench/device/supervise.h"
#include "bench/machine/machine_facts.h"
#include "tools/cli/sizes.h"

namespace lmdbio::probe {
namespace {

using nlohmann::ordered_json;
using tools::Invocation;
using tools::Misuse;
using tools::Whole;
namespace po = tools::po;

constexpr const char* kPinningQuestion = "Q7";
constexpr const char* kRivalQuestion = "Q9";
constexpr uint64_t kWindowBytesMax = 64 << 20;  // windows of MPI lie in /dev/shm
constexpr double kRivalSecondsMax = 75;
constexpr double kTrialSecondsMin = 1;
// For the end of a process that has closed its pipe.
constexpr double kEndSecondsMax = 2;

struct ProbeOptions {
  TrialOptions trial;
  double seconds_max = 0;
  std::set<std::string> questions;
  std::string rivals;  // the path of rivals.py; empty: beside the program
  std::string python;
  std::string json;
};

double Seconds(const Invocation& invocation, const char* name) {
  const double value = invocation.option<double>(name);
  // The negated condition also rejects a value that is not a number.
  if (!(value > 0 && value <= 3600)) throw Misuse(fmt::format("--{} takes 0 to 3600", name));
  return value;
}

std::set<std::string> QuestionsOf(const Invocation& invocation) {
  std::set<std::string> chosen;
  std::istringstream in(invocation.option<std::string>("only"));
  for (std::string word; std::getline(in, word, ',');) {
    const auto& all = AllQuestions();
    const bool is_known = std::any_of(all.begin(), all.end(), [&](const QuestionTitle& one) {
      return word == one.question || word == "all";
    });
    if (!is_known) {
      throw Misuse(fmt::format("--only takes Q1 to {}, not '{}'", kRivalQuestion, word));
    }
    for (const QuestionTitle& one : all) {
      if (word == "all" || word == one.question) chosen.insert(one.question);
    }
  }
  if (chosen.empty()) throw Misuse("--only needs at least one question");
  return chosen;
}

ProbeOptions OptionsOf(const Invocation& invocation) {
  ProbeOptions options;
  const uint64_t ordinal = invocation.whole("device");
  const uint64_t sample_count = invocation.whole("repeat");
  if (ordinal > 1024) throw Misuse("--device is at most 1024");
  if (sample_count == 0 || sample_count > 10000) throw Misuse("--repeat takes 1 to 10000");
  options.trial.ordinal = static_cast<int>(ordinal);
  options.trial.sample_count = static_cast<int>(sample_count);
  options.trial.size_bytes_max =
      tools::ParseSize(invocation.option<std::string>("size-max"), "size-max");
  if (options.trial.size_bytes_max < 4096) throw Misuse("--size-max is at least 4096");
  options.trial.drain_seconds = Seconds(invocation, "drain-seconds");
  options.seconds_max = Seconds(invocation, "seconds");
  options.questions = QuestionsOf(invocation);
  options.python = invocation.option<std::string>("python");
  if (invocation.has("rivals")) options.rivals = invocation.option<std::string>("rivals");
  if (invocation.has("json")) options.json = invocation.option<std::string>("json");
  return options;
}

// The lines that the processes of a trial have written.
struct TrialOutcome {
  std::vector<ProbeRow> rows;
  ordered_json facts;
  std::optional<Error> reason;  // that a process gave for its end
};

void ReadLines(const std::string& text, TrialOutcome& outcome) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const ordered_json object = ordered_json::parse(line, nullptr, false);
    if (object.is_discarded() || !object.is_object()) continue;  // cut off by a kill
    if (object.contains("facts")) outcome.facts = object["facts"];
    if (auto row = RowOfJson(object)) outcome.rows.push_back(std::move(*row));
    if (!object.contains("error")) continue;
    const auto code = static_cast<ErrorCode>(object["code"].get<int>());
    // The other process ends because this one does.
    if (outcome.reason && code == ErrorCode::kPeerFailed) continue;
    if (!outcome.reason || outcome.reason->code() == ErrorCode::kPeerFailed) {
      outcome.reason.emplace(code, object["error"].get<std::string>());
    }
  }
}

// The board of a trial, in memory without a name.
struct BoardFile {
  UniqueFd file;
  std::unique_ptr<ranks::SharedMapping> mapping;
  ProbeBoard& board() const { return *reinterpret_cast<ProbeBoard*>(mapping->bytes().data()); }

  static Result<BoardFile> Make(const TrialOptions& options) {
    BoardFile made;
    LMDBIO_TRY(made.file, ranks::CreateMemoryFile(sizeof(ProbeBoard)));
    LMDBIO_TRY(made.mapping, ranks::SharedMapping::Map(made.file, sizeof(ProbeBoard)));
    (new (made.mapping->bytes().data()) ProbeBoard())->options = options;
    return made;
  }
};

class ProbeRun {
 public:
  ProbeRun(ProbeOptions options, const ProbeSetting& setting)
      : options_(std::move(options)), setting_(setting), begin_(SecondsNow()) {}

  Status Run() {
    outcome_.machine = tools::DescribeMachine();
    outcome_.machine.update(DescribeDeviceState());
    outcome_.machine["command_line"] = setting_.command_line;
    outcome_.machine["samples"] = options_.trial.sample_count;
    LMDBIO_TRY_VOID(RunFacts());
    const std::vector<Trial>& trials = AllTrials();
    for (size_t i = 0; i < trials.size(); ++i) {
      if (!IsChosen(trials[i].question)) continue;
      LMDBIO_TRY_VOID(RunTrial(i));
    }
    if (IsChosen(kRivalQuestion)) LMDBIO_TRY_VOID(RunRivals());
    if (IsChosen(kPinningQuestion)) RunWindow();
    holder_.clear();
    outcome_.seconds = SecondsNow() - begin_;
    LMDBIO_TRY_VOID(tools::WriteOutput(TableOf(outcome_)));
    return options_.json.empty() ? Status() : WriteReportFile(options_.json, JsonOf(outcome_));
  }

 private:
  bool IsChosen(const std::string& question) const { return options_.questions.contains(question); }
  double SecondsLeft() const { return options_.seconds_max - (SecondsNow() - begin_); }

  Result<std::vector<ChildProcess>> StartRoles(size_t trial_number, const BoardFile& board) const {
    std::vector<ChildProcess> processes;
    for (int role = 0; role < AllTrials()[trial_number].process_count; ++role) {
      LMDBIO_TRY(ChildProcess process,
                 ChildProcess::Start({"/proc/self/exe", kPartWord, std::to_string(trial_number),
                                      std::to_string(role), std::to_string(::getpid())},
                                     {board.file.get()}, 4));
      processes.push_back(std::move(process));
    }
    return processes;
  }

  // The first trial tells whether there is a device at all. Its process stays.
  Status RunFacts() {
    const Trial& trial = AllTrials().front();
    LMDBIO_TRY(holder_board_, BoardFile::Make(options_.trial));
    LMDBIO_TRY(holder_, StartRoles(0, holder_board_));
    const SupervisedEnd end =
        Supervise(holder_, nullptr, std::min(trial.seconds_max, options_.seconds_max),
                  SuperviseUntil::kSilence);
    TrialOutcome told;
    ReadLines(holder_.front().text(), told);
    outcome_.device = told.facts;
    if (end == SupervisedEnd::kInterrupted) return Interrupted();
    if (told.reason) return Fail(std::move(*told.reason));
    if (!told.facts.is_null()) return {};
    // A process that is killed closes its pipe a moment before it can be waited for.
    if (end == SupervisedEnd::kEnded) Supervise(holder_, nullptr, kEndSecondsMax);
    const char* const what = end == SupervisedEnd::kLate ? "does not answer in time" : "fails";
    return Fail(ErrorCode::kInternal,
                fmt::format("GPU {}: the driver {} (its process: {})", options_.trial.ordinal, what,
                            EndWords(holder_.front().wait_status())));
  }

  Status RunTrial(size_t trial_number) {
    const Trial& trial = AllTrials()[trial_number];
    double limit = trial.seconds_max;
    if (trial.state_if_ended == RowState::kNotDrained) limit += 3 * options_.trial.drain_seconds;
    limit = std::min(limit, SecondsLeft());
    if (limit < kTrialSecondsMin) {
      AddRows(trial.question, trial.rows, {}, {.note = kNoTime});
      return {};
    }
    LMDBIO_TRY(const BoardFile board, BoardFile::Make(options_.trial));
    LMDBIO_TRY(std::vector<ChildProcess> processes, StartRoles(trial_number, board));
    const SupervisedEnd end = Supervise(processes, &board.board(), limit);
    if (end == SupervisedEnd::kInterrupted) return Interrupted();
    TrialOutcome told;
    for (const ChildProcess& process : processes) ReadLines(process.text(), told);
    AddRows(trial.question, trial.rows, told.rows,
            WhyMissing(trial, board.board(), processes, end, limit, told.reason));
    return {};
  }

  // A row without a name: what is said of each row that no process has sent.
  static ProbeRow WhyMissing(const Trial& trial, const ProbeBoard& board,
                             const std::vector<ChildProcess>& processes, SupervisedEnd end,
                             double limit, const std::optional<Error>& reason) {
    if (end == SupervisedEnd::kLate) {
      return {.state = trial.state_if_ended,
              .note = fmt::format("its process was not done in {:.0f} s and was killed", limit)};
    }
    // A process that was killed on request is no reason.
    for (size_t i = 0; i < processes.size(); ++i) {
      const std::optional<int> status = processes[i].wait_status();
      if (board.wants_kill[i].load() != 0 || (status && WIFEXITED(*status))) continue;
      return {.state = trial.state_if_ended, .note = "its process: " + EndWords(status)};
    }
    if (reason) return RowOfError("", *reason);
    return {.state = RowState::kFailed, .note = "its process has said nothing"};
  }

  // Adds all `names` in their order: as `said`, or as `missing`.
  void AddRows(const std::string& question, const std::vector<std::string>& names,
               const std::vector<ProbeRow>& said, const ProbeRow& missing) {
    for (const std::string& name : names) {
      const auto found = std::find_if(said.begin(), said.end(),
                                      [&](const ProbeRow& row) { return row.name == name; });
      ProbeRow row = found != said.end() ? *found : missing;
      row.question = question;
      row.name = name;
      outcome_.rows.push_back(std::move(row));
    }
  }

  // Q9, by a program of Python.
  Status RunRivals() {
    const auto leave_out = [&](std::string why) {
      AddRows(kRivalQuestion, RivalRows(), {}, {.note = std::move(why)});
      return Status();
    };
    const std::string script = options_.rivals.empty() ? BesideProgram() : options_.rivals;
    if (::access(script.c_str(), R_OK) != 0) {
      return leave_out(fmt::format("{} is not there: name it with --rivals", script));
    }
    const double limit = std::min(kRivalSecondsMax, SecondsLeft());
    if (limit < kTrialSecondsMin) return leave_out(kNoTime);
    Result<ChildProcess> python = ChildProcess::Start(
        {options_.python, "-B", script, "--device", std::to_string(options_.trial.ordinal),
         "--repeat", std::to_string(options_.trial.sample_count), "--size-max",
         std::to_string(options_.trial.size_bytes_max), "--seconds", fmt::format("{:.1f}", limit)},
        {}, STDOUT_FILENO);
    if (!python) return leave_out(python.error().message());
    const SupervisedEnd end = Supervise(std::span(&*python, 1), nullptr, limit + 5);
    if (end == SupervisedEnd::kInterrupted) return Interrupted();
    TrialOutcome told;
    ReadLines(python->text(), told);
    AddRows(kRivalQuestion, RivalRows(), told.rows,
            {.state = RowState::kFailed,
             .note = fmt::format("{} {}: {}", options_.python, script,
                                 end == SupervisedEnd::kLate ? "not done in time"
                                                             : EndWords(python->wait_status()))});
    return {};
  }

  // The row of Q7 that only this process can tell. It is the last, because a hang of the driver
  // would be one of the probe.
  void RunWindow() {
    ProbeRow row = {
        .question = kPinningQuestion, .name = kWindowRow, .note = setting_.why_no_window};
    if (setting_.window != nullptr) {
      Result<std::vector<double>> rates = WindowRates();
      row = rates ? ProbeRow{.state = RowState::kYes, .unit = "GB/s", .samples = std::move(*rates)}
                  : RowOfError(kWindowRow, rates.error());
      row.question = kPinningQuestion;
      row.name = kWindowRow;
    }
    const auto last = std::find_if(outcome_.rows.rbegin(), outcome_.rows.rend(),
                                   [](const ProbeRow& one) { return one.question == "Q7"; });
    outcome_.rows.insert(last.base(), std::move(row));
  }

  Result<std::vector<double>> WindowRates() const {
    LMDBIO_TRY(const MutableBytes memory,
               setting_.window(std::min(kWindowBytesMax, options_.trial.size_bytes_max)));
    LMDBIO_TRY(const ProbePart part, ProbePart::Open(options_.trial, nullptr, 0, -1));
    return PinningRates(part, memory);
  }

  static std::string BesideProgram() {
    std::array<char, PATH_MAX> path = {};
    const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
    std::string folder(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
    folder.resize(folder.rfind('/') + 1);
    return folder + "rivals.py";
  }

  static Status Interrupted() { return Fail(ErrorCode::kInternal, "interrupted"); }

  static constexpr const char* kNoTime = "the time of --seconds was over";

  ProbeOptions options_;
  const ProbeSetting& setting_;
  double begin_;
  BoardFile holder_board_;
  std::vector<ChildProcess> holder_;  // keeps the driver loaded
  ProbeOutcome outcome_;
};

}  // namespace

const char* const kProbeDetails =
    "Q1 memory and events of another process, Q2 marks, Q3 a killed process, Q4 turns between\n"
    "processes, Q5 copies, Q6 scattered records, Q7 registration of memory, Q8 single calls, Q9\n"
    "rivals in Python. Each trial runs in processes of its own, with a limit of time, so a driver\n"
    "that hangs ends one trial. A row has the median of all samples, their least and largest.";

void DescribeProbe(po::options_description_easy_init options) {
  options("device", po::value<Whole>()->default_value({0})->value_name("N"),
          "the GPU, among those that this process sees")  //
      ("only", po::value<std::string>()->default_value("all")->value_name("LIST"),
       "questions, as Q1,Q5; or all")                                                             //
      ("repeat,i", po::value<Whole>()->default_value({20})->value_name("N"), "samples of a row")  //
      ("size-max", po::value<std::string>()->default_value("256M")->value_name("BYTES"),
       "the largest copy and registration")  //
      ("drain-seconds", po::value<double>()->default_value(5)->value_name("SECONDS"),
       "Q3: the time after which a stream counts as stuck")  //
      ("seconds", po::value<double>()->default_value(170)->value_name("SECONDS"),
       "the time for all; later trials are left out")  //
      ("rivals", po::value<std::string>()->value_name("SCRIPT"),
       "Q9: rivals.py; by default the one beside the program")  //
      ("python", po::value<std::string>()->default_value("python3")->value_name("PROGRAM"),
       "Q9: the Python that has PyTorch")  //
      ("json", po::value<std::string>()->value_name("FILE"), "write the report to FILE");
}

void CheckProbeOptions(const Invocation& invocation) { OptionsOf(invocation); }

Status RunProbe(const Invocation& invocation, const ProbeSetting& setting) {
  ProbeOptions options = OptionsOf(invocation);
  tools::CatchStopSignals();
  return ProbeRun(std::move(options), setting).Run();
}

}  // namespace lmdbio::probe
