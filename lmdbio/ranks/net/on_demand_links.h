// lmdbio/ranks/net/on_demand_links.h - opens links between ranks when they are first used.
//
// For users that do not know their peers in advance: an algorithm of a collective needs connections
// to a few ranks out of many. Each rank keeps its door open in a thread of its own, so a rank can
// connect at any time, also to one that computes. The user of the links waits for `event` together
// with its sockets, and takes the links that have been opened.
//
// Source: docs/many_hosts.md "Number of connections".
#ifndef LMDBIO_RANKS_NET_ON_DEMAND_LINKS_H_
#define LMDBIO_RANKS_NET_ON_DEMAND_LINKS_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/job_addresses.h"
#include "lmdbio/ranks/net/peer_connector.h"

namespace lmdbio::ranks {

// Threads: any.
class OnDemandLinks {
 public:
  enum class LinkDirection { kOutgoing, kIncoming };

  // A link that stands, or an outgoing one that cannot be opened.
  struct OpenedLink {
    int rank = -1;
    LinkDirection direction = LinkDirection::kOutgoing;
    UniqueFd socket;      // does not block; empty after a failure
    std::string failure;  // "within 1 s (...), tried ...", as PeerConnector::ConnectResult
  };

  // Collective. Returns when every rank listens.
  // link_count  the number of links that this rank will probably hold; tests the limit of
  //             descriptors
  // Errors: as ExchangeAddresses
  //         kResourceExhausted  no thread
  static Result<std::unique_ptr<OnDemandLinks>> Create(Group& group, size_t link_count);

  // Closes the door. Links that were taken stay open.
  ~OnDemandLinks();

  // Begins to open the link to `to` and returns at once. TakeOpened reports the result within 30 s.
  // Requires: no earlier call named `to`
  void Open(int to);

  // Readable as long as TakeOpened has something to return.
  int event() const { return opened_event_.get(); }

  // The links that were opened since the last call, by Open or by another rank. An incoming link
  // that occurs again replaces the first one, which has carried no data.
  std::vector<OpenedLink> TakeOpened();

  // Closes the door now. Ranks that connect later get a failure; attempts under way end without a
  // result.
  void Close();

 private:
  OnDemandLinks(int rank, JobAddresses job);
  Status Start();
  void Serve();
  bool TakeRequests();
  void Wait();
  void TakeOutcomes();
  void Welcome(PeerDoor::Visitor visitor);
  void Report(OpenedLink link);

  const int rank_;
  JobAddresses job_;         // used by the thread, after Start
  PeerConnector connector_;  // used by the thread
  UniqueFd request_event_;
  UniqueFd opened_event_;
  std::mutex mutex_;  // of all below
  std::vector<int> requests_;
  std::vector<OpenedLink> opened_;
  bool is_closed_ = false;
  std::thread thread_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_ON_DEMAND_LINKS_H_
