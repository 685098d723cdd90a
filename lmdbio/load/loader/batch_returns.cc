#include "lmdbio/load/loader/batch_returns.h"

namespace lmdbio::load {

void HeldBatch::Return() {
  const uint64_t number = batch_.number();
  batch_ = Batch();
  if (const std::shared_ptr<BatchReturns> returns = std::move(returns_)) returns->Return(number);
}

}  // namespace lmdbio::load
