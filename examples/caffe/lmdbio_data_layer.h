// lmdbio_data_layer.h - Caffe's Data layer with lmdbio instead of LMDB's cursor.
//
// Serves `type: "LmdbioData"`. With LMDBIO_CAFFE_DATA=1 in the environment it also serves
// `type: "Data"` with backend LMDB. Its output equals that of the Data layer bit for bit.
#ifndef LMDBIO_EXAMPLES_CAFFE_LMDBIO_DATA_LAYER_H_
#define LMDBIO_EXAMPLES_CAFFE_LMDBIO_DATA_LAYER_H_

#include <vector>

#include <lmdbio.h>
#include <caffe/layers/base_data_layer.hpp>

namespace caffe {

// Opens the loader of a TRAIN layer for all solvers of a job together, as lmdbio_open_mpi does.
using OpenTogether = int (*)(const char* path, const lmdbio_options* options,
                             lmdbio_loader** out_loader);

// Sets the function that opens the loaders of TRAIN layers, in the order in which nets are built.
// With null each solver opens its own loader. TEST layers are never opened together, because they
// may exist on one rank only.
void SetLmdbioOpenTogether(OpenTogether open);

// Threads: as its base class. load_batch runs in the prefetching thread and waits for no other
// rank.
template <typename Dtype>
class LmdbioDataLayer : public BasePrefetchingDataLayer<Dtype> {
 public:
  explicit LmdbioDataLayer(const LayerParameter& param);
  ~LmdbioDataLayer() override;
  void DataLayerSetUp(const std::vector<Blob<Dtype>*>& bottom,
                      const std::vector<Blob<Dtype>*>& top) override;
  const char* type() const override { return this->layer_param_.type().c_str(); }
  int ExactNumBottomBlobs() const override { return 0; }
  int MinTopBlobs() const override { return 1; }
  int MaxTopBlobs() const override { return 2; }

 protected:
  void load_batch(Batch<Dtype>* batch) override;

 private:
  int batch_size() const { return static_cast<int>(this->layer_param_.data_param().batch_size()); }
  void OpenLoader();
  // Sleeps until the next batch is ready or this thread must stop.
  const lmdbio_batch& NextBatch();
  // Releases the current batch, because other ranks may wait for its memory.
  void ReleaseBatch();

  lmdbio_loader* loader_ = nullptr;
  const lmdbio_batch* ahead_ = nullptr;  // the batch that ReleaseBatch received; null: none
};

}  // namespace caffe

#endif  // LMDBIO_EXAMPLES_CAFFE_LMDBIO_DATA_LAYER_H_
