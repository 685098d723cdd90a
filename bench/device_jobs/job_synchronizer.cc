#include "bench/device_jobs/job_synchronizer.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/base/align.h"

namespace lmdbio::figures {
namespace {

constexpr uint64_t kBufferBytesMin = uint64_t{1} << 20;

}  // namespace

// A placed tensor that is larger than the buffer would be reduced in pieces.
Result<std::unique_ptr<JobSynchronizer>> JobSynchronizer::Create(JobRank& rank,
                                                                 uint64_t gradient_bytes) {
  const JobSpec& spec = rank.spec();
  sync::SyncOptions options;
  options.device = static_cast<uint32_t>(spec.ordinal) + 1;
  options.device_collective = spec.variant == "staged" ? "staged" : "auto";
  options.device_order = spec.order;
  options.device_gradient_bytes = AlignUp(gradient_bytes, kCacheLineBytes);
  options.device_buffer_bytes = spec.buffer_bytes > 0
                                    ? spec.buffer_bytes
                                    : std::max(options.device_gradient_bytes, kBufferBytesMin);
  std::unique_ptr<JobSynchronizer> made(new JobSynchronizer(rank));
  sync::SyncParts parts;
  parts.log = [notes = made->notes_](const std::string& line) {
    const std::scoped_lock lock(notes->mutex);
    notes->text += "; " + line;
  };
  LMDBIO_TRY(made->synchronizer_,
             sync::Synchronizer::Create(rank.group(), options, std::move(parts)));
  return made;
}

Result<sync::Handle> JobSynchronizer::Submit(const std::string& name, device::DeviceAddress values,
                                             uint64_t size_bytes) {
  sync::Submission submission =
      sync::AllReduceOf(name, nullptr, nullptr, static_cast<int64_t>(size_bytes / sizeof(float)));
  submission.on_device = {values, values, rank_.stream().native()};
  return synchronizer_->Submit(std::move(submission));
}

std::string JobSynchronizer::NotesText() const {
  const std::scoped_lock lock(notes_->mutex);
  return notes_->text;
}

Status JobSynchronizer::CheckWay() const {
  const JobSpec& spec = rank_.spec();
  const bool is_staged = synchronizer_->counters().device_reduced_count == 0;
  if (is_staged != (spec.variant == "staged")) {
    return Fail(ErrorCode::kUnsupported, "the ranks go another way" + NotesText());
  }
  if (is_staged || spec.order == "auto") return {};
  const std::string wanted = fmt::format("order '{}'", spec.order);
  for (const std::string& line : synchronizer_->Description()) {
    if (line.find(wanted) != std::string::npos) return {};
  }
  return Fail(ErrorCode::kUnsupported, fmt::format("not {}{}", wanted, NotesText()));
}

}  // namespace lmdbio::figures
