// lmdbio/ranks/net/peer_links.h - messages between the ranks of a job, with sleeping receivers.
//
// MPI waits by spinning and wants one calling thread. Readers wait in threads of their own, often
// for a long time: for a cursor, a token, a list of extents. So they use TCP and sleep in poll. A
// link has one direction, is named in advance, and stands as long as the object. A rank that dies
// or gives up is an error at every rank that waits for it.
//
// A process without the key of the job cannot join, and cannot keep the ranks apart (see
// ranks/net/peer_door.h).
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

// The links of one rank. No rank occurs twice in a list, and this rank in none. If rank a sends to
// rank b, then b receives from a.
struct LinkSpec {
  std::vector<int> sends_to;
  std::vector<int> receives_from;
  int known_as = -1;  // the number of this rank in error messages; -1: its rank in the group
};

struct RendezvousResult;

// Threads: one sends and one receives, at most; Stop and Wake from any.
class PeerLinks {
 public:
  // Collective. Returns when the links of every rank stand.
  // Errors: kIo                 some rank could not be reached within 30 s, or can listen nowhere;
  //                             names the ranks, the addresses tried and the reason
  //         kResourceExhausted  no descriptors for the links; names the limit
  //         kPeerFailed         one of these on another rank
  //         kInternal           the group failed
  static Result<std::unique_ptr<PeerLinks>> Open(Group& group, const LinkSpec& plan);

  // Not collective: takes links that stand already (ranks/net/peer_rendezvous.h).
  // names  [ranks] of all ranks, in error messages
  // Errors: kResourceExhausted  no descriptor is left
  static Result<std::unique_ptr<PeerLinks>> Adopt(RendezvousResult met,
                                                  std::vector<std::string> names);

  // The name of a rank of the group in error messages: "rank 3 on node-7".
  const std::string& NameOf(int rank) const { return names_[static_cast<size_t>(rank)]; }

  // Sends a message. Sleeps while the connection has no room for it.
  // message  [at most 1 GiB]
  // Requires: `to` is in the plan
  // Errors: kPeerFailed  the rank is gone; names it
  Status Send(int to, Bytes message);

  // Sends a message without sleeping. Bytes for which the connection has no room stay in this
  // object until Flush or Drain sends them, or the next message to this rank.
  // Errors: as Send
  Status Post(int to, Bytes message);
  // Sends the bytes that have stayed, as far as there is room. Returns false if some remain. The
  // next Send or Post reports a rank that is gone.
  bool Flush();
  // Sleeps until all bytes have been sent, or Stop was called. Errors: as Send
  Status Drain();

  // Sends an error in place of a message. The Receive of the other rank returns it.
  // Errors: as Send
  Status SendFailure(int to, const Error& error);
  // As SendFailure, without sleeping: bytes for which there is no room stay, as with Post.
  void PostFailure(int to, const Error& error);

  // Sleeps until there is a message from `from`, and returns it; nothing after Stop.
  // Requires: `from` is in the plan
  // Errors: kPeerFailed  the rank has sent an error, or no message of this version, or is gone;
  //                      names it
  Result<std::optional<std::vector<std::byte>>> Receive(int from);

  // As Receive. Meanwhile it sends the bytes that Post has left. Ranks that post to each other and
  // then receive make progress only so: a message larger than the buffers of a connection would
  // otherwise never leave a rank that waits.
  // Requires: the calling thread is also the one that sends. Errors: as Receive
  Result<std::optional<std::vector<std::byte>>> ReceiveAndFlush(int from);

  // Whether Receive would return at once, with a message or a failure.
  // Requires: `from` is in the plan
  bool HasMessage(int from);

  // Whether the connection from `from` has ended, and no message is left: the rank is gone.
  // Requires: `from` is in the plan
  bool IsGone(int from);

  // Sleeps until one of the ranks `from` has sent a message or failed. Returns the first such rank;
  // nothing after Wake or Stop, or when the time is over.
  // from   [all in the plan]
  // limit  negative: none
  std::optional<int> AwaitAny(std::span<const int> from,
                              std::chrono::milliseconds limit = std::chrono::milliseconds(-1));

  // Sends the bytes that Post has left, as far as there is room. Then it sleeps until there is a
  // message from `from`, or room for more bytes, but at most for `limit`.
  // from  nothing: only the bytes count
  // Returns: whether all bytes are sent, and the message, or a failure of `from`, is here
  // Requires: the calling thread is also the one that sends
  bool Progress(std::optional<int> from, std::chrono::milliseconds limit);

  // Ends the AwaitAny under way, or the next one. Any thread.
  void Wake();

  // Ends every Send and Receive, now and later. Any thread.
  void Stop();

 private:
  struct Outgoing {
    UniqueFd socket;
    std::vector<std::byte> bytes;  // not sent yet
    bool is_gone = false;
  };
  struct Incoming {
    UniqueFd socket;
    std::vector<std::byte> bytes;  // received, and not returned yet
  };
  // Why a wait has ended.
  enum class Waited { kReady, kStopped };

  PeerLinks() = default;
  Status MakeEvents();
  void TakeSockets(RendezvousResult met);
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
