// lmdbio/load/loader/reader_links.h - the connections between the readers of a job.
//
// Tokens connect all readers, also those of one host. To share the work of locating records, the
// first readers of all hosts are connected with each other, the second readers with each other, and
// so on. One strategy uses at most one of the three ways to share it.
//
// Source: docs/many_hosts.md.
#ifndef LMDBIO_LOAD_LOADER_READER_LINKS_H_
#define LMDBIO_LOAD_LOADER_READER_LINKS_H_

#include <memory>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/load/exchange/exchange_links.h"
#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/locate/cursor_handoff.h"
#include "lmdbio/load/locate/layout_all_gather.h"
#include "lmdbio/load/locate/location_broadcast.h"
#include "lmdbio/load/turns/stagger.h"

namespace lmdbio::load {

// Each is empty if this rank needs no such connection. The locator takes the first three, the
// reader takes the others.
struct ReaderLinks {
  std::unique_ptr<CursorHandoff> handoff;
  std::unique_ptr<LocationBroadcast> broadcast;
  std::unique_ptr<LayoutAllGather> gather;
  std::unique_ptr<Stagger> stagger;
  std::optional<ExchangeLinks> exchange;
};

// The most readers that exchange with each other; each of them has a link to every other one.
inline constexpr int kExchangeReadersMax = 64;

// The group in which a reader exchanges: neighbours, in groups of about equal size.
int ExchangeGroupOf(int reader, int reader_count);

// True if a cursor can travel from host to host: a cursor visits each record of a batch once, so
// the records of each host must lie together in the batch.
// Errors: kInternal  MPI failed
// Collective: over `group`; the same result on every rank
Result<bool> CanHandOn(ranks::Group& group, const LoaderOptions& options, const HostMember& member);

// Opens the connections that the strategy needs. A failed connection for a shared walk, for tokens
// or for an exchange is no error: each host then walks, and each reader reads, on its own, with a
// note.
// Errors: kIo          readers cannot reach each other
//         kPeerFailed  another rank failed; kInternal  MPI failed
// Collective: over `group`
Result<ReaderLinks> OpenReaderLinks(ranks::Group& group, const LoaderOptions& options,
                                    const HostMember& member, const OpenDecision& decision,
                                    Notes& notes);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_READER_LINKS_H_
