// lmdbio/load/turns/stagger.h - staggering: decides when a reader may read its part of a slot.
//
// Source: dissertation 5.2.4; docs/many_hosts.md "Tokens".
#ifndef LMDBIO_LOAD_TURNS_STAGGER_H_
#define LMDBIO_LOAD_TURNS_STAGGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lmdbio/load/turns/read_tokens.h"
#include "lmdbio/load/turns/stagger_trial.h"

namespace lmdbio::load {

// The staggering of a job; the same on all its readers.
struct StaggerOptions {
  // The numbers of tokens. Empty: readers never take turns. One number with is_tried false: they
  // always do. With is_tried: each number is tried, and reading without tokens too.
  std::vector<uint32_t> token_counts;
  bool is_tried = false;
};

// Threads: one at a time; Stop and token_count from any thread.
class Stagger {
 public:
  // readers   all readers of the job; at least two
  // known_as  the rank of this process in the whole job, for messages
  // Errors:     kIo  the readers cannot reach each other
  // Collective: over `readers`
  static Result<std::unique_ptr<Stagger>> Create(ranks::Group& readers, StaggerOptions options,
                                                 int known_as);

  // Whether the reads of slot `slot` may begin. If not, the token was requested, or earlier reads
  // are still in flight. A token is for one slot.
  // read_bytes  bytes that this reader has to read for the slot
  // under_way   reads of this reader in flight
  bool MayBegin(uint64_t slot, uint64_t read_bytes, uint64_t under_way);

  // Sleeps until MayBegin would return true for a reader that reads nothing, or Stop was called.
  // Errors: kPeerFailed  another reader has failed or is gone; names it
  Status Await(uint64_t slot);

  // To be called when this reader has read its part of a slot.
  void SlotDone(uint64_t slot, uint64_t read_bytes);

  // To be called after the reader slept because its trainers held all memory.
  void Waited(double seconds) { trial_.Waited(seconds); }

  void Abandon(const Error& why) { tokens_->Abandon(why); }
  void Stop() { tokens_->Stop(); }

  // The number of readers that may read at a time. 0: all, or not decided yet.
  uint32_t token_count() const;

 private:
  Stagger(std::unique_ptr<ReadTokens> tokens, StaggerOptions options);
  size_t WayOf(uint64_t slot) const;

  std::unique_ptr<ReadTokens> tokens_;
  StaggerOptions options_;
  StaggerTrial trial_;
  std::optional<uint64_t> slot_with_token_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_TURNS_STAGGER_H_
