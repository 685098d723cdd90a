#include "lmdbio/load/turns/stagger.h"

#include <chrono>
#include <utility>

namespace lmdbio::load {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Stagger::Stagger(std::unique_ptr<ReadTokens> tokens, StaggerOptions options)
    : tokens_(std::move(tokens)),
      options_(std::move(options)),
      trial_(options_.token_counts.size() + 1) {}

Result<std::unique_ptr<Stagger>> Stagger::Create(ranks::Group& readers, StaggerOptions options,
                                                 int known_as) {
  LMDBIO_TRY(auto tokens, ReadTokens::Create(readers, options.token_counts, known_as));
  return std::unique_ptr<Stagger>(new Stagger(std::move(tokens), std::move(options)));
}

// 0: without tokens; w > 0: with token set w - 1.
size_t Stagger::WayOf(uint64_t slot) const {
  if (!options_.is_tried) return 1;
  if (slot < trial_.slot_count()) return trial_.WayOf(slot);
  // Until the choice arrives, this reader reads freely. Readers may receive it at different slots.
  // Then some reads meet at the storage, but no reader waits for ever, because every reader still
  // passes tokens on.
  return tokens_->choice().value_or(0);
}

// A slot without own reads needs no token. A token covers the reads of one slot, so the reads of
// earlier slots must be over before it is requested.
bool Stagger::MayBegin(uint64_t slot, uint64_t read_bytes, uint64_t under_way) {
  const size_t way = WayOf(slot);
  if (way == 0 || read_bytes == 0) return true;
  if (under_way > 0 || !tokens_->Take(way - 1)) return false;
  slot_with_token_ = slot;
  return true;
}

Status Stagger::Await(uint64_t slot) {
  const size_t way = WayOf(slot);
  return way == 0 ? Status() : tokens_->Await(way - 1);
}

void Stagger::SlotDone(uint64_t slot, uint64_t read_bytes) {
  if (slot_with_token_ == slot) {
    tokens_->Release();
    slot_with_token_.reset();
  }
  if (!options_.is_tried) return;
  trial_.SlotDone(read_bytes, Now());
  if (const auto rates = trial_.TakeRates()) tokens_->Report(*rates);
}

uint32_t Stagger::token_count() const {
  const size_t way = options_.is_tried ? tokens_->choice().value_or(0) : 1;
  return way == 0 ? 0 : options_.token_counts[way - 1];
}

}  // namespace lmdbio::load
