#include "lmdbio/load/exchange/exchange_links.h"

#include <utility>

#include "lmdbio/ranks/net/peer_rendezvous.h"

namespace lmdbio::load {

// One connection serves both directions, so each reader connects to those behind it.
Result<ExchangeLinks> OpenExchangeLinks(ranks::Group& readers) {
  ranks::LinkSpec plan;
  for (int other = 0; other < readers.size(); ++other) {
    if (other > readers.rank()) plan.sends_to.push_back(other);
    if (other < readers.rank()) plan.receives_from.push_back(other);
  }
  LMDBIO_TRY(ranks::RendezvousResult met, ranks::MeetPeers(readers, plan));
  ExchangeLinks links;
  links.rank = readers.rank();
  links.sockets.resize(static_cast<size_t>(readers.size()));
  for (auto* direction : {&met.outgoing, &met.incoming}) {
    for (auto& [other, socket] : *direction) {
      links.sockets[static_cast<size_t>(other)] = std::move(socket);
    }
  }
  return links;
}

}  // namespace lmdbio::load
