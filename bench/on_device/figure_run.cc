#include "bench/on_device/figure_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::figures {
namespace {

constexpr const char* kNoTime = "the time of --seconds-max was over";

}  // namespace

void FigureRun::Measure(const std::string& name, const std::function<Result<Measured>()>& measure) {
  if (SecondsLeft() <= 0) return LeaveOut(name, kNoTime);
  Result<Measured> measured = measure();
  if (!measured)
    return Tell(name, FigureState::kFailed, {.samples = {}, .note = measured.error().message()});
  if (!measured->left_out.empty()) return LeaveOut(name, measured->left_out);
  if (measured->samples.empty())
    return Tell(name, FigureState::kFailed, {.samples = {}, .note = "no samples"});
  Tell(name, FigureState::kMeasured, std::move(*measured));
}

void FigureRun::LeaveOut(const std::string& name, const std::string& why) {
  Tell(name, FigureState::kLeftOut, {.samples = {}, .note = why});
}

void FigureRun::LeaveOutRest(const std::string& why) { TellRest(FigureState::kLeftOut, why); }

Status FigureRun::RunPart() {
  written_ = report_.WriteTitle(fmt::format("{}  {}", part_.id, part_.title));
  if (SecondsLeft() <= 0) {
    LeaveOutRest(kNoTime);
    return std::move(written_);
  }
  const Status status = part_.measure(*this);
  TellRest(FigureState::kFailed, status ? "nothing was measured" : status.error().message());
  return std::move(written_);
}

void FigureRun::Tell(const std::string& name, FigureState state, Measured measured) {
  const auto planned = std::find_if(part_.rows.begin(), part_.rows.end(),
                                    [&](const FigureRow& row) { return row.name == name; });
  LMDBIO_CHECK(planned != part_.rows.end() && told_.insert(name).second);
  FigureRow row = *planned;
  row.state = state;
  row.figure = tools::SpreadOf(std::move(measured.samples));
  row.note = std::move(measured.note);
  size_t name_width = 0;
  for (const FigureRow& one : part_.rows) name_width = std::max(name_width, one.name.size());
  if (Status status = report_.WriteRow(std::move(row), name_width); !status && written_) {
    written_ = std::move(status);
  }
}

void FigureRun::TellRest(FigureState state, const std::string& note) {
  for (const FigureRow& row : part_.rows) {
    if (!told_.contains(row.name)) Tell(row.name, state, {.samples = {}, .note = note});
  }
}

}  // namespace lmdbio::figures
