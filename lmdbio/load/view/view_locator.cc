#include "lmdbio/load/view/view_locator.h"

#include <utility>

namespace lmdbio::load {
namespace {

class ViewLocator final : public Locator {
 public:
  ViewLocator(std::shared_ptr<const View> view, std::vector<ViewSourceLocator> sources)
      : view_(std::move(view)), sources_(std::move(sources)) {}

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

  // These locators need not be told of the next records: they know all locations, or walk.
  bool IsReady() override { return own().IsReady(); }
  Result<bool> BeginGroup(const BatchGroup& group) override { return own().BeginGroup(group); }
  Status EndGroup() override { return own().EndGroup(); }
  Status Drain() override { return own().Drain(); }
  void Abandon(const Error& why) override { own().Abandon(why); }
  void Stop() override {
    for (const ViewSourceLocator& source : sources_) source.records->Stop();
  }
  LocatorCounters counters() const override { return sources_.front().records->counters(); }

 private:
  Locator& own() { return *sources_.front().records; }

  // Consecutive numbers may go on in the next source.
  Status LocateRun(uint64_t record, uint64_t count, file::RecordRunSink& sink) {
    for (size_t i = sources_.size(); count > 0 && i-- > 0;) {
      const uint64_t begin = sources_[i].first_record;
      if (record + count <= begin) continue;
      if (record < begin) {
        LMDBIO_TRY_VOID(LocateRun(record, begin - record, sink));
        return LocateRun(begin, record + count - begin, sink);
      }
      return sources_[i].records->Locate(RecordIndex{record - begin}, count, sink);
    }
    return {};
  }

  const std::shared_ptr<const View> view_;
  const std::vector<ViewSourceLocator> sources_;
};

}  // namespace

std::unique_ptr<Locator> MakeViewLocator(std::shared_ptr<const View> view,
                                         std::vector<ViewSourceLocator> sources) {
  return std::make_unique<ViewLocator>(std::move(view), std::move(sources));
}

}  // namespace lmdbio::load
