// lmdbio/sync/over_device/result_state.h - whether results of work that was enqueued are right.
#ifndef LMDBIO_SYNC_OVER_DEVICE_RESULT_STATE_H_
#define LMDBIO_SYNC_OVER_DEVICE_RESULT_STATE_H_

namespace lmdbio::sync {

class ResultState {
 public:
  virtual ~ResultState() = default;
  // Whether work that has waited for other ranks may have gone on without them, because a rank has
  // failed. Ask it when that work is done: then its results are right if this is false.
  // Threads: any
  virtual bool is_void() const = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_RESULT_STATE_H_
