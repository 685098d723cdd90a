// tests/ranks/launcher/struck_ranks.h - a job in which one rank is killed or stopped in one of its
// collective calls.
//
// The calls of a script are counted, so a test strikes at each of them in turn, and no moment of
// opening or closing is left out.
#ifndef LMDBIO_TESTS_RANKS_LAUNCHER_STRUCK_RANKS_H_
#define LMDBIO_TESTS_RANKS_LAUNCHER_STRUCK_RANKS_H_

#include <functional>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::test {

struct Strike {
  int size = 3;  // ranks, processes of this host
  int victim = 0;
  int signal = 0;  // SIGKILL, SIGSTOP
  int call = 0;    // strikes before this collective call of the victim, from 0
};

struct StrikeResult {
  bool is_struck = false;           // the script had that many calls
  std::vector<std::string> faults;  // of ranks that have not named the victim, or not in time
};

// Runs `script` on each rank, in a process of its own. A rank other than the victim must return
// within 5 s from the strike: with success, or with an error that names the victim.
// Requires: no other thread runs
StrikeResult RunStruck(const Strike& strike,
                       const std::function<Status(ranks::Group& group)>& script);

// Strikes at every `step`th call, with each rank as the victim, until the script has no further
// call. Neighbours begin with different calls, so that each call is struck in some rank if `step`
// is at most `size`. Returns all faults; a line without any if no rank was struck.
std::vector<std::string> StrikeAll(int size, int signal, int step,
                                   const std::function<Status(ranks::Group& group)>& script);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_LAUNCHER_STRUCK_RANKS_H_
