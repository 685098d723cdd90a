// lmdbio/ranks/net/peer_links.h - messages between the ranks of a job that are slept for.
//
// MPI waits by spinning, and wants to be called by one thread at a time. Readers wait in threads of
// their own, and long: for a cursor, a token, a list of extents. So they talk over TCP, and sleep
// in poll. Links lead one way, are named beforehand, and stand for as long as the object: a rank
// that dies, or cannot go on, is an error at every rank that waits for it.
//
// A stranger cannot join: a rank that connects shows a key that only the job's ranks know, and
// strangers that say nothing do not keep the ranks apart (ranks/net/peer_door.h).
//
// Source: docs/many_hosts.md "Messages".
#ifndef LMDBIO_RANKS_NET_PEER_LINKS_H_
#define LMDBIO_RANKS_NET_PEER_LINKS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// The links of one rank. None twice, none to itself; what one rank sends to, the other receives
// from.
struct LinkSpec {
  std::vector<int> sends_to;
  std::vector<int> receives_from;
  int known_as = -1;  // this rank in messages, where it is another there; -1: its rank
};

// Threads: one at a time, but Stop and Wake from any.
class PeerLinks {
 public:
  // Collective. Returns when the links of every rank stand.
  // Errors: kIo                 some rank could not be reached within 30 s, or a rank can listen
  //                             nowhere; names the ranks, what was tried and the reason
  //         kResourceExhausted  no descriptors for the links; names the limit
  //         kPeerFailed         one of these on another rank
  //         kInternal           the group failed
  static Result<std::unique_ptr<PeerLinks>> Open(Group& group, const LinkSpec& plan);

  // What a rank of the group is called in messages: "rank 3 on node-7".
  const std::string& NameOf(int rank) const { return names_[static_cast<size_t>(rank)]; }

  // Sends a message. Sleeps while there is no room for it on the way.
  // message  [at most 1 GiB]
  // Requires: `to` is in the plan
  // Errors: kPeerFailed  the rank is gone; kIo
  Status Send(int to, Bytes message);

  // The same without sleeping: what there is no room for stays here until Flush or Drain, or goes
  // before the next message to this rank.
  // Errors: as Send
  Status Post(int to, Bytes message);
  // Sends what has stayed, as far as there is room for it; false if something remains. A rank that
  // is gone is for the next call that sends to find.
  bool Flush();
  // Sleeps until all has been sent, or Stop was called. Errors: as Send
  Status Drain();

  // Sends bad news in place of a message: the other's Receive returns it.
  // Errors: as Send
  Status SendFailure(int to, const Error& error);

  // Sleeps until there is a message from `from`, and returns it; nothing after Stop.
  // Requires: `from` is in the plan
  // Errors: kPeerFailed  the rank has sent bad news, or is gone; names it
  Result<std::optional<std::vector<std::byte>>> Receive(int from);

  // Whether Receive would return at once, be it with a failure.
  // Requires: `from` is in the plan
  bool HasMessage(int from);

  // Sleeps until there is a message, or a failure, from one of `from`, and says from whom; none
  // after Wake or Stop, or when the time has passed.
  // from   [all in the plan] the first of those with something
  // limit  negative: none
  std::optional<int> AwaitAny(std::span<const int> from,
                              std::chrono::milliseconds limit = std::chrono::milliseconds(-1));

  // Ends the AwaitAny under way, or the next one. Any thread.
  void Wake();

  // Ends every Send and Receive, now and later. Any thread.
  void Stop();

 private:
  struct Outgoing {
    UniqueFd socket;
    std::vector<std::byte> bytes;  // that have not been sent yet
    bool is_gone = false;
  };
  struct Incoming {
    UniqueFd socket;
    std::vector<std::byte> bytes;  // of a message that is not whole yet
  };
  // What poll found: readiness, or that Stop was called.
  enum class Waited { kReady, kStopped };

  PeerLinks() = default;
  Waited Wait(int socket, short events) const;
  enum class Read { kSome, kNothingYet, kEnd };
  static bool IsWhole(const Incoming& link);
  static Read ReadMore(Incoming& link);
  static void SendSome(Outgoing& link);
  static void Append(Outgoing& link, uint32_t kind, Bytes message, int error_number = 0);
  Status DrainOne(int to, Outgoing& link);
  tl::unexpected<Error> Gone(int rank) const;

  std::vector<std::string> names_;  // [group size] "rank 3 on node-7"
  std::map<int, Outgoing> outgoing_;
  std::map<int, Incoming> incoming_;
  UniqueFd stop_event_;
  UniqueFd wake_event_;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_PEER_LINKS_H_
