#include "lmdbio/load/turns/token_cycles.h"

#include <algorithm>

namespace lmdbio::load {

// With n tokens, the readers of one cycle are n apart. The first reader of each cycle begins with
// the token.
TokenCycles::TokenCycles(int reader, int reader_count, std::span<const uint32_t> token_counts) {
  for (const uint32_t token_count : token_counts) {
    const int apart =
        static_cast<int>(std::min<uint64_t>(token_count, static_cast<uint64_t>(reader_count)));
    // Reader r belongs to cycle r mod `apart`. A cycle of one reader keeps its token for ever.
    const int first = reader % apart;
    const int last = first + (reader_count - 1 - first) / apart * apart;
    TokenCycle cycle;
    cycle.behind = reader == last ? first : reader + apart;
    cycle.before = reader == first ? last : reader - apart;
    cycle.is_here = reader == first;
    cycles_.push_back(cycle);
  }
}

std::vector<int> TokenCycles::Peers(int reader) const {
  std::vector<int> peers;
  for (const TokenCycle& cycle : cycles_) {
    for (const int peer : {cycle.behind, cycle.before}) {
      if (peer == reader) continue;
      if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
    }
  }
  return peers;
}

void TokenCycles::Hold(size_t set) {
  wanted_.reset();
  held_ = set;
}

// A reader wants one token at a time. Wanting another set drops the earlier wish; a token that
// still arrives for it is passed on when another reader asks.
bool TokenCycles::Want(size_t set) {
  if (wanted_ == set) return false;
  wanted_ = set;
  return true;
}

// A waiting reader comes before the next turn of this reader, so the token leaves even if this
// reader wants it again at once.
bool TokenCycles::Release() {
  if (!held_) return false;
  TokenCycle& cycle = cycles_[*held_];
  held_.reset();
  if (!cycle.is_wanted_behind) return false;
  cycle.is_leaving = cycle.is_here;
  return true;
}

void TokenCycles::OnRequest(size_t set) {
  if (set < cycles_.size()) cycles_[set].is_wanted_behind = true;
}

void TokenCycles::OnToken(size_t set) {
  if (set >= cycles_.size()) return;
  cycles_[set].is_here = true;
  cycles_[set].is_asked_for = false;
}

// The token is passed on if it is idle and the reader behind wants it, unless this reader wants it
// too and it is not leaving. A request is sent on if the token is not here and this reader, or one
// behind it, wants it; one request at a time. After the token was passed on, a request of this
// reader therefore follows it round the cycle.
TokenMoves TokenCycles::Moves(size_t set) {
  TokenMoves moves;
  TokenCycle& cycle = cycles_[set];
  const bool is_wanted_here = wanted_ == set;
  const bool is_idle = cycle.is_here && held_ != set;
  if (is_idle && (cycle.is_leaving || (cycle.is_wanted_behind && !is_wanted_here))) {
    moves.token_to = cycle.behind;
    cycle.is_here = cycle.is_leaving = cycle.is_wanted_behind = false;
  }
  if (!cycle.is_here && !cycle.is_asked_for && (is_wanted_here || cycle.is_wanted_behind)) {
    moves.request_to = cycle.before;
    cycle.is_asked_for = true;
  }
  return moves;
}

}  // namespace lmdbio::load
