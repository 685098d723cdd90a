// lmdbio/load/exchange/exchange_links.h - a link from each reader to every other one.
//
// Source: docs/exchange.md "Messages".
#ifndef LMDBIO_LOAD_EXCHANGE_EXCHANGE_LINKS_H_
#define LMDBIO_LOAD_EXCHANGE_EXCHANGE_LINKS_H_

#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

struct ExchangeLinks {
  int rank = 0;                   // of this reader
  std::vector<UniqueFd> sockets;  // [readers] connected, do not block; the one of `rank` is empty
};

// readers  one reader of each host; at least two
// Errors:     as ranks::PeerLinks::Open
// Collective: over `readers`
Result<ExchangeLinks> OpenExchangeLinks(ranks::Group& readers);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_EXCHANGE_LINKS_H_
