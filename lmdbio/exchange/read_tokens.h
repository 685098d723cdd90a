// lmdbio/exchange/read_tokens.h - who of many readers may read now.
//
// Readers that stand n places apart form a ring, in which one token goes round: so n readers read
// at a time, and those n are mostly neighbours, whose shares lie together in the file.
//
//   reader   0 1 2 3 | 4 5 6 7 | 8 9        n = 4: rings {0 4 8} {1 5 9} {2 6} {3 7}
//
// The dissertation hands a token on when a read has ended, to whoever is next; a next one that has
// nothing to read, because its trainers still hold all memory, would keep it, and those trainers
// may wait for a host that waits for the token. So here a token is asked for: the wish goes round
// against the token's way, up to where the token lies, and the token comes back with it. A thread
// of its own answers, whatever the reader waits for. Whoever has a token waits for storage alone.
//
// Tokens are a convenience: if a reader leaves, the others read without from then on. One that
// fails, or dies, is an error for all.
//
// Source: dissertation 5.2.4; docs/many_hosts.md "Tokens".
#ifndef LMDBIO_EXCHANGE_READ_TOKENS_H_
#define LMDBIO_EXCHANGE_READ_TOKENS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "lmdbio/comm/group.h"
#include "lmdbio/comm/peer_links.h"
#include "lmdbio/exchange/stagger_plan.h"

namespace lmdbio::exchange {

// Threads: one at a time, but Stop from any.
class ReadTokens {
 public:
  // Collective over `readers`: all that shall take turns, in the order of their shares.
  // token_counts  [at most kStaggerWaysMax - 1; the same on every rank] one set of rings for each
  //               number of tokens, all independent of each other
  // known_as      this process in messages: its rank in the whole job
  // Errors: kIo  the readers cannot reach each other
  static Result<std::unique_ptr<ReadTokens>> Create(comm::Group& readers,
                                                    std::span<const uint32_t> token_counts,
                                                    int known_as);

  // Tells the others that this reader leaves.
  ~ReadTokens();
  ReadTokens(const ReadTokens&) = delete;
  ReadTokens& operator=(const ReadTokens&) = delete;

  // Takes the token of set `set` if it is here, or if nobody needs one any more; otherwise asks for
  // it and returns false, also after a failure.
  // Requires: no token is held
  bool Take(size_t set);

  // Sleeps until Take would return true, or Stop was called.
  // Errors: kPeerFailed  another reader has failed or is gone; names it
  Status Await(size_t set);

  // Gives the token back that Take has taken; nothing if there is none.
  void Release();

  // What this reader has measured: everybody's is added up.
  void Report(const StaggerRates& mine);
  // The way that all have chosen, once it is known. Any thread.
  std::optional<size_t> choice() const;

  // Tells the others, with the token, that this reader cannot go on.
  void Abandon(const Error& why);

  // Ends Await.
  void Stop();

 private:
  struct Message;
  struct Ring {
    int before = 0;
    int behind = 0;  // where the token goes
    bool is_here = false;
    bool is_leaving = false;  // here, and another's turn
    bool is_asked_for = false;
    bool is_wanted_behind = false;
  };

  ReadTokens(std::unique_ptr<comm::PeerLinks> links, const comm::Group& readers,
             std::vector<Ring> rings, std::vector<int> peers);
  void Serve();
  void HearFrom(int peer);
  void Heed(int peer, const Message& message);
  void Act();
  void ActOnRing(size_t set);
  void ActOnRates();
  void LeaveAll();
  void FailAll(const Error& why);
  void Post(int peer, const Message& message);
  bool MayTake(size_t set) const;

  std::unique_ptr<comm::PeerLinks> links_;  // the serving thread's
  comm::TreeNeighbours tree_;
  std::vector<int> peers_;  // whom to listen to, still; the serving thread's
  size_t reader_count_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::vector<Ring> rings_;
  std::optional<size_t> wanted_;  // the set whose token the reader asks for
  std::optional<size_t> held_;
  bool is_free_ = false;  // somebody has left: nobody needs a token
  bool is_stopped_ = false;
  bool is_closing_ = false;
  std::optional<Error> own_failure_;
  std::optional<Error> failure_;  // of any
  std::optional<StaggerRates> own_rates_;
  StaggerRates rates_;  // of those below in the tree
  size_t rates_heard_ = 0;
  bool has_reported_ = false;
  std::optional<size_t> choice_;

  std::thread server_;
};

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_READ_TOKENS_H_
