// lmdbio/load/turns/token_cycles.h - one reader's view of the token cycles, without messages.
//
// In a cycle the token moves "behind", a request moves "before":
//
//   readers of a cycle     0 -> 4 -> 8 -> 0          the token's way
//   request of reader 8    8 -> 4 -> 0               until it meets the token
//
// Each reader on the way remembers that the reader behind it wants the token. So the token finds
// its way back by itself: every reader passes it on to the reader behind it.
//
// Source: docs/many_hosts.md "Tokens".
#ifndef LMDBIO_LOAD_TURNS_TOKEN_CYCLES_H_
#define LMDBIO_LOAD_TURNS_TOKEN_CYCLES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lmdbio::load {

// The messages that a reader has to send now.
struct TokenMoves {
  std::optional<int> token_to;    // the reader that gets the token
  std::optional<int> request_to;  // the reader that gets a request
};

// One cycle for each number of tokens ("set"). Threads: one at a time.
class TokenCycles {
 public:
  // reader, reader_count  this reader, and the number of readers in all cycles
  // token_counts          [each > 0] the number of tokens of each set
  TokenCycles(int reader, int reader_count, std::span<const uint32_t> token_counts);

  size_t size() const { return cycles_.size(); }

  // The readers that this reader exchanges messages with, each once; without itself.
  std::vector<int> Peers(int reader) const;

  // True if this reader has the token of the set, and need not pass it on first.
  bool CanTake(size_t set) const { return cycles_[set].is_here && !cycles_[set].is_leaving; }

  // This reader reads with the token of the set. Ends its request.
  void Hold(size_t set);

  // This reader wants the token of the set. False if it was wanted already.
  bool Want(size_t set);

  // Ends Hold. True if the token has to move on, so that Moves has to be asked.
  bool Release();

  // Messages of other readers. A set that does not exist is ignored.
  void OnRequest(size_t set);
  void OnToken(size_t set);

  // The next messages of the set. The caller must send them.
  TokenMoves Moves(size_t set);

 private:
  struct TokenCycle {
    int before = 0;
    int behind = 0;                 // the token goes there
    bool is_here = false;           // this reader has the token
    bool is_leaving = false;        // it must be passed on, because another reader's turn has come
    bool is_asked_for = false;      // a request was sent to `before`
    bool is_wanted_behind = false;  // a request came from `behind`
  };

  std::vector<TokenCycle> cycles_;  // [sets]
  std::optional<size_t> wanted_;    // the set of the requested token
  std::optional<size_t> held_;      // the set of the held token
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_TURNS_TOKEN_CYCLES_H_
