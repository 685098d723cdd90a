// lmdbio/exchange/stagger.h - when a reader may read its part of a slot, if readers take turns.
//
// Source: dissertation 5.2.4; docs/many_hosts.md "Tokens".
#ifndef LMDBIO_EXCHANGE_STAGGER_H_
#define LMDBIO_EXCHANGE_STAGGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lmdbio/exchange/read_tokens.h"
#include "lmdbio/exchange/stagger_plan.h"

namespace lmdbio::exchange {

// How the readers of a job take turns: the same on all of them.
struct StaggerOptions {
  // Numbers of tokens: none, and readers never take turns; one with is_tried unset, and they always
  // do; otherwise each is tried, beside reading freely.
  std::vector<uint32_t> token_counts;
  bool is_tried = false;
};

// Threads: one at a time, but Stop and token_count from any.
class Stagger {
 public:
  // Collective over `readers`: all of the job, at least two.
  // known_as  this process in messages: its rank in the whole job
  // Errors: kIo  the readers cannot reach each other
  static Result<std::unique_ptr<Stagger>> Create(comm::Group& readers, StaggerOptions options,
                                                 int known_as);

  // Whether the reads of slot `slot` may begin; if not, its token has been asked for. A token is
  // for one slot.
  // read_bytes  that this reader has to read for it
  // under_way   reads of this reader
  bool MayBegin(uint64_t slot, uint64_t read_bytes, uint64_t under_way);

  // Sleeps until MayBegin would return true for a reader that reads nothing, or Stop was called.
  // Errors: kPeerFailed  another reader has failed or is gone; names it
  Status Await(uint64_t slot);

  // This reader's part of a slot has been read.
  void SlotDone(uint64_t slot, uint64_t read_bytes);

  // The reader has slept so long because its trainers held all memory.
  void Waited(double seconds) { trial_.Waited(seconds); }

  void Abandon(const Error& why) { tokens_->Abandon(why); }
  void Stop() { tokens_->Stop(); }

  // How many readers may read at a time; 0: all, or not decided yet.
  uint32_t token_count() const;

 private:
  Stagger(std::unique_ptr<ReadTokens> tokens, StaggerOptions options);
  size_t WayOf(uint64_t slot) const;

  std::unique_ptr<ReadTokens> tokens_;
  StaggerOptions options_;
  StaggerTrial trial_;
  std::optional<uint64_t> slot_with_token_;
};

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_STAGGER_H_
