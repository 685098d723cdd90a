// lmdbio/load/turns/read_tokens.h - tokens that limit the number of readers that read at a time.
//
// With n tokens, readers r, r + n, r + 2n, ... form a token cycle, in which one token moves. So n
// readers read at a time. They are mostly neighbours, and neighbours have adjacent shares in the
// file.
//
//   reader   0 1 2 3 | 4 5 6 7 | 8 9        n = 4: cycles {0 4 8} {1 5 9} {2 6} {3 7}
//
// TokenCycles has the rules of a cycle, StaggerVote those of the common choice of n. This class
// adds the messages, the thread that serves them, and failures.
//
// In the dissertation a reader passes the token to the next reader after each read. This can
// deadlock: a reader with nothing to read, because its trainers still hold all memory, keeps the
// token, and those trainers may wait for a host that waits for the token. So here a reader requests
// the token. The request travels against the direction of the token, up to the reader that has it,
// and the token comes back along the same readers. A separate thread answers requests, also while
// the reader sleeps. A reader with a token waits for storage only, so it always releases the token.
//
// Tokens are an optimisation. If a reader leaves, the others read without tokens from then on. If a
// reader fails or dies, all readers get an error.
//
// Source: dissertation 5.2.4; docs/many_hosts.md "Tokens".
#ifndef LMDBIO_LOAD_TURNS_READ_TOKENS_H_
#define LMDBIO_LOAD_TURNS_READ_TOKENS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "lmdbio/load/turns/stagger_trial.h"
#include "lmdbio/load/turns/stagger_vote.h"
#include "lmdbio/load/turns/token_cycles.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::load {

// Threads: one at a time; Stop and choice from any thread.
class ReadTokens {
 public:
  // readers       the readers that take turns, in the order of their shares
  // token_counts  [at most kStaggerWaysMax - 1; the same on every rank] one independent set of
  //               token cycles for each number of tokens
  // known_as      the rank of this process in the whole job, for messages
  // Errors:     kIo                 the readers cannot reach each other
  //             kResourceExhausted  no thread
  //             kPeerFailed         another reader has one of these errors
  // Collective: over `readers`
  static Result<std::unique_ptr<ReadTokens>> Create(ranks::Group& readers,
                                                    std::span<const uint32_t> token_counts,
                                                    int known_as);

  // Tells the others that this reader leaves.
  ~ReadTokens();
  ReadTokens(const ReadTokens&) = delete;
  ReadTokens& operator=(const ReadTokens&) = delete;

  // Takes the token of set `set` if it is here, or if tokens are no longer used. Otherwise requests
  // it and returns false, also after a failure.
  // Requires: this reader holds no token
  bool Take(size_t set);

  // Sleeps until Take would return true, or Stop was called.
  // Errors: kPeerFailed  another reader has failed or is gone; names it
  Status Await(size_t set);

  // Releases the token of the last Take; does nothing if none is held.
  void Release();

  // The measured rates of this reader. The rates of all readers are added up.
  void Report(const StaggerRates& mine);
  // The way that all readers chose (stagger_trial.h), once it is known.
  std::optional<size_t> choice() const;

  // Sends the failure of this reader to the others.
  void Abandon(const Error& why);

  // Ends Await.
  void Stop();

 private:
  struct Message;

  ReadTokens(std::unique_ptr<ranks::PeerLinks> links, const ranks::Group& readers,
             TokenCycles cycles, std::vector<int> peers);
  // Starts the thread, which uses all other members.
  Status Start();
  void Serve();
  void HearFrom(int peer);
  void Heed(int peer, const Message& message);
  void Act();
  void ActOnCycle(size_t set);
  void ActOnRates();
  void LeaveAll();
  void FailAll(const Error& why);
  void Post(int peer, const Message& message);
  bool MayTake(size_t set) const;

  std::unique_ptr<ranks::PeerLinks> links_;  // used by the serving thread, except Wake
  ranks::TreeNeighbours tree_;
  std::vector<int> peers_;  // the connected peers; used by the serving thread only

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  TokenCycles cycles_;
  StaggerVote vote_;
  bool is_free_ = false;  // a reader has left: tokens are no longer used
  bool is_stopped_ = false;
  bool is_closing_ = false;
  std::optional<Error> own_failure_;
  std::optional<Error> failure_;  // of any reader

  std::thread server_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_TURNS_READ_TOKENS_H_
