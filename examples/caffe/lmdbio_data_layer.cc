#include "examples/caffe/lmdbio_data_layer.h"

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include <boost/thread.hpp>
#include <caffe/data_transformer.hpp>
#include <caffe/layer_factory.hpp>

#include "examples/caffe/caffe_order.h"

namespace caffe {
namespace {

// The longest sleep of the prefetching thread in lmdbio between two checks for a request to stop.
constexpr uint32_t kLookUpMs = 100;

OpenTogether open_together = nullptr;

// 0 if the environment variable is not set.
uint64_t MemoryBudgetBytes() {
  const char* text = std::getenv("LMDBIO_CAFFE_MEMORY_BUDGET");
  if (text == nullptr) return 0;
  char* end = nullptr;
  const uint64_t bytes = std::strtoull(text, &end, 10);
  CHECK(bytes > 0 && *end == '\0')
      << "LMDBIO_CAFFE_MEMORY_BUDGET=" << text << " is not a number of bytes";
  return bytes;
}

lmdbio_options CommonOptions() {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.memory_budget_bytes = MemoryBudgetBytes();
  options.log = [](void*, const char* message) { LOG(WARNING) << "lmdbio: " << message; };
  return options;
}

void Decode(const lmdbio_record& record, const std::string& path, Datum* datum) {
  const bool is_datum =
      record.value_size <= static_cast<uint32_t>(std::numeric_limits<int>::max()) &&
      datum->ParseFromArray(record.value, static_cast<int>(record.value_size));
  CHECK(is_datum) << path << ": the record at position " << record.position << " is not a Datum";
}

// The Data layer takes its first shape from record 0 on every rank. That record may be in no batch
// of this rank, so it is read separately.
Datum ReadFirstDatum(const std::string& path) {
  lmdbio_options options = CommonOptions();
  options.log = nullptr;  // the loader of the layer logs the same lines
  options.global_batch_size = 1;
  options.max_batches = 1;
  lmdbio_loader* loader = nullptr;
  CHECK_EQ(lmdbio_open(path.c_str(), &options, &loader), LMDBIO_OK) << lmdbio_message(loader);
  const lmdbio_batch* batch = nullptr;
  CHECK_EQ(lmdbio_next(loader, &batch), LMDBIO_OK) << lmdbio_message(loader);
  Datum datum;
  Decode(batch->records[0], path, &datum);
  lmdbio_close(loader);
  return datum;
}

}  // namespace

void SetLmdbioOpenTogether(OpenTogether open) { open_together = open; }

template <typename Dtype>
LmdbioDataLayer<Dtype>::LmdbioDataLayer(const LayerParameter& param)
    : BasePrefetchingDataLayer<Dtype>(param) {
  const DataParameter& data = param.data_param();
  CHECK(!data.has_backend() || data.backend() == DataParameter::LMDB)
      << "layer " << param.name() << ": " << param.type() << " reads LMDB only";
  CHECK_GT(data.batch_size(), 0u) << "layer " << param.name() << " has no batch_size";
}

template <typename Dtype>
LmdbioDataLayer<Dtype>::~LmdbioDataLayer() {
  // The thread calls the virtual load_batch, so it must end before this destructor returns.
  this->StopInternalThread();
  lmdbio_close(loader_);
}

template <typename Dtype>
void LmdbioDataLayer<Dtype>::OpenLoader() {
  const bool is_training = this->layer_param_.phase() == TRAIN;
  const int solver_count = is_training ? Caffe::solver_count() : 1;
  lmdbio_options options = CommonOptions();
  set_caffe_order(&options, static_cast<uint64_t>(batch_size()), solver_count);
  // Every rank builds the test nets, but only rank 0 runs them.
  if (!is_training && !Caffe::root_solver()) options.prefetch_batches = 1;

  const char* path = this->layer_param_.data_param().source().c_str();
  int status = LMDBIO_OK;
  if (is_training && open_together != nullptr) {
    status = open_together(path, &options, &loader_);
  } else {
    options.num_shards = solver_count;
    options.shard_id = is_training ? Caffe::solver_rank() : 0;
    status = lmdbio_open(path, &options, &loader_);
  }
  CHECK_EQ(status, LMDBIO_OK) << lmdbio_message(loader_);
  const char* text = "";
  lmdbio_describe(loader_, &text);
  LOG_IF(INFO, Caffe::root_solver()) << "lmdbio reads " << path << ": " << text;
}

template <typename Dtype>
void LmdbioDataLayer<Dtype>::DataLayerSetUp(const vector<Blob<Dtype>*>&,
                                            const vector<Blob<Dtype>*>& top) {
  const Datum datum = ReadFirstDatum(this->layer_param_.data_param().source());
  OpenLoader();
  vector<int> shape = this->data_transformer_->InferBlobShape(datum);
  this->transformed_data_.Reshape(shape);
  shape[0] = batch_size();
  top[0]->Reshape(shape);
  for (auto& batch : this->prefetch_) batch->data_.Reshape(shape);
  LOG_IF(INFO, Caffe::root_solver())
      << "output data size: " << top[0]->num() << "," << top[0]->channels() << ","
      << top[0]->height() << "," << top[0]->width();
  if (this->output_labels_) {
    const vector<int> label_shape(1, batch_size());
    top[1]->Reshape(label_shape);
    for (auto& batch : this->prefetch_) batch->label_.Reshape(label_shape);
  }
}

template <typename Dtype>
const lmdbio_batch& LmdbioDataLayer<Dtype>::NextBatch() {
  if (ahead_ != nullptr) return *std::exchange(ahead_, nullptr);
  const lmdbio_batch* batch = nullptr;
  for (;;) {
    const int status = lmdbio_next_within(loader_, kLookUpMs, &batch);
    if (status == LMDBIO_OK) return *batch;
    CHECK_EQ(status, LMDBIO_TIMEOUT) << lmdbio_message(loader_);
    // At the end of a job other ranks may have stopped, and then no further batch arrives. The base
    // class expects this exception.
    boost::this_thread::interruption_point();
  }
}

// Releases the batch early: a rank that has all its batches never calls again, while rank 0 runs
// the train net once more for its last line. A failure here is reported by the next NextBatch.
template <typename Dtype>
void LmdbioDataLayer<Dtype>::ReleaseBatch() {
  if (lmdbio_next_within(loader_, 0, &ahead_) != LMDBIO_OK) ahead_ = nullptr;
}

template <typename Dtype>
void LmdbioDataLayer<Dtype>::load_batch(Batch<Dtype>* batch) {
  const lmdbio_batch& records = NextBatch();
  CHECK_EQ(records.record_count, static_cast<size_t>(batch_size()));
  Datum datum;
  for (int item = 0; item < batch_size(); ++item) {
    Decode(records.records[item], this->layer_param_.data_param().source(), &datum);
    if (item == 0) {
      // With one image in a batch, each image may have another size.
      vector<int> shape = this->data_transformer_->InferBlobShape(datum);
      this->transformed_data_.Reshape(shape);
      shape[0] = batch_size();
      batch->data_.Reshape(shape);
    }
    // Once for each item and in order, because the transformer draws random numbers.
    Dtype* to = batch->data_.mutable_cpu_data() + batch->data_.offset(item);
    this->transformed_data_.set_cpu_data(to);
    this->data_transformer_->Transform(datum, &this->transformed_data_);
    if (this->output_labels_) {
      batch->label_.mutable_cpu_data()[item] = static_cast<Dtype>(datum.label());
    }
  }
  LOG_IF(INFO, records.ends_epoch && Caffe::root_solver())
      << "Restarting data prefetching from start.";
  ReleaseBatch();
}

INSTANTIATE_CLASS(LmdbioDataLayer);
REGISTER_LAYER_CLASS(LmdbioData);

namespace {

// Takes over "Data" for LMDB databases; the original layer serves others. The registry refuses a
// second creator, so this writes to its map. Caffe's own layers are registered already, because a
// library is initialised after its dependencies.
template <typename Dtype>
void TakeDataOver() {
  auto& creator = LayerRegistry<Dtype>::Registry()["Data"];
  CHECK(creator != nullptr) << "this Caffe has no Data layer";
  static const auto before = creator;
  creator = [](const LayerParameter& param) -> shared_ptr<Layer<Dtype>> {
    if (param.data_param().backend() != DataParameter::LMDB) return before(param);
    return shared_ptr<Layer<Dtype>>(new LmdbioDataLayer<Dtype>(param));
  };
}

const bool kDataIsTakenOver = [] {
  const char* text = std::getenv("LMDBIO_CAFFE_DATA");
  if (text == nullptr || std::string(text) != "1") return false;
  TakeDataOver<float>();
  TakeDataOver<double>();
  return true;
}();

}  // namespace
}  // namespace caffe
