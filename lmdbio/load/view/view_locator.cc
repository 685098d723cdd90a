#include "lmdbio/load/view/view_locator.h"

#include <utility>

namespace lmdbio::load {
namespace {

class ViewLocator final : public Locator {
 public:
  ViewLocator(std::shared_ptr<const View> view, std::unique_ptr<Locator> records)
      : view_(std::move(view)), records_(std::move(records)) {}

  Result<uint64_t> RecordCount() override { return view_->sample_count(); }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    uint64_t run = 0;  // its first record
    uint64_t run_count = 0;
    for (uint64_t sample = first.value; sample < first.value + count; ++sample) {
      for (size_t field = 0; field < view_->field_count(); ++field) {
        const uint64_t record = view_->RecordOf(sample, field);
        if (run_count > 0 && record == run + run_count) {
          ++run_count;
          continue;
        }
        LMDBIO_TRY_VOID(LocateRun(run, run_count, sink));
        run = record;
        run_count = 1;
      }
    }
    return LocateRun(run, run_count, sink);
  }

  // The locator need not be told of the next records: it knows all locations, or walks.
  bool IsReady() override { return records_->IsReady(); }
  Result<bool> BeginGroup(const BatchGroup& group) override { return records_->BeginGroup(group); }
  Status EndGroup() override { return records_->EndGroup(); }
  Status Drain() override { return records_->Drain(); }
  void Abandon(const Error& why) override { records_->Abandon(why); }
  void Stop() override { records_->Stop(); }
  LocatorCounters counters() const override { return records_->counters(); }

 private:
  Status LocateRun(uint64_t record, uint64_t count, file::RecordRunSink& sink) {
    return count == 0 ? Status() : records_->Locate(RecordIndex{record}, count, sink);
  }

  const std::shared_ptr<const View> view_;
  const std::unique_ptr<Locator> records_;
};

}  // namespace

std::unique_ptr<Locator> MakeViewLocator(std::shared_ptr<const View> view,
                                         std::unique_ptr<Locator> records) {
  return std::make_unique<ViewLocator>(std::move(view), std::move(records));
}

}  // namespace lmdbio::load
