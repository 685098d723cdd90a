// lmdbio/loader/strategy.h - the strategies, as rows of one table of independent answers.
//
//   who finds a record, and how   Locating
//   how its bytes come            an engine (io/block_engine.h)
//   what one request asks for     layout::Coalescing
//   who may read when             Staggering
//
// Source: dissertation 3.1 (lmdb), 3.2 (lmm), 4.2 (lmm-dm), 5.2.1 (lmm-dio), 5.2.2 (-prov), 5.2.3
// (-coal), 5.2.4 (-stag); docs/loader.md "Strategies".
#ifndef LMDBIO_LOADER_STRATEGY_H_
#define LMDBIO_LOADER_STRATEGY_H_

#include <array>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/io/block_engine.h"
#include "lmdbio/layout/read_plan.h"

namespace lmdbio::loader {

enum class Strategy {
  kAuto,                // "auto": provenance if it fits, else a scan; the engine by a probe
  kLmdb,                // "lmdb": every rank steps liblmdb's cursor over all records
  kLmm,                 // "lmm": readers step a cursor over a map and copy into the window
  kLmmDm,               // "lmm-dm": the cursor goes from host to host
  kLmmDio,              // "lmm-dio": one host's cursor finds for all, explicit reads fetch
  kLmmDioProv,          // "lmm-dio-prov": provenance finds
  kLmmDioProvCoal,      // "lmm-dio-prov-coal": and neighbours are fetched together
  kLmmDioProvCoalStag,  // "lmm-dio-prov-coal-stag": and readers take turns
  kScan,                // "scan": a page walk finds, deep reads around the page cache fetch
};

// Who may read when.
enum class Staggering {
  kNone,       // every reader when it likes
  kTokens,     // readers with a token
  kIfWorthIt,  // the same, if a trial of a long stream shows that it helps
};

enum class Locating {
  kNone,          // liblmdb's business
  kCursor,        // a cursor over a map of the file, from record to record
  kHandedCursor,  // the same, of which hosts take turns with one
  kOneWalker,     // the same, by one host for all
  kProvenance,    // computed from the provenance file
  kScan,          // a page walk, running ahead of the reads
  kBest,          // kProvenance where it fits, else kScan
};

struct Composition {
  Strategy strategy = Strategy::kAuto;
  std::string_view name;
  Locating locating = Locating::kBest;
  layout::Coalescing coalescing = layout::Coalescing::kNeighbours;
  // The engine that makes the strategy what it is; kProbe leaves the choice open.
  enum class Engine { kMmap, kPread, kUringDirect, kProbe } engine = Engine::kProbe;
  Staggering staggering = Staggering::kNone;
};

inline constexpr std::array<Composition, 9> kStrategies = {{
    {Strategy::kLmdb, "lmdb", Locating::kNone, layout::Coalescing::kNone,
     Composition::Engine::kMmap},
    {Strategy::kLmm, "lmm", Locating::kCursor, layout::Coalescing::kNone,
     Composition::Engine::kMmap},
    {Strategy::kLmmDm, "lmm-dm", Locating::kHandedCursor, layout::Coalescing::kNone,
     Composition::Engine::kMmap},
    {Strategy::kLmmDio, "lmm-dio", Locating::kOneWalker, layout::Coalescing::kNone,
     Composition::Engine::kPread},
    {Strategy::kLmmDioProv, "lmm-dio-prov", Locating::kProvenance, layout::Coalescing::kNone,
     Composition::Engine::kPread},
    {Strategy::kLmmDioProvCoal, "lmm-dio-prov-coal", Locating::kProvenance,
     layout::Coalescing::kNeighbours, Composition::Engine::kPread},
    {Strategy::kLmmDioProvCoalStag, "lmm-dio-prov-coal-stag", Locating::kProvenance,
     layout::Coalescing::kNeighbours, Composition::Engine::kPread, Staggering::kTokens},
    {Strategy::kScan, "scan", Locating::kScan, layout::Coalescing::kNeighbours,
     Composition::Engine::kUringDirect},
    {Strategy::kAuto, "auto", Locating::kBest, layout::Coalescing::kNeighbours,
     Composition::Engine::kProbe, Staggering::kIfWorthIt},
}};

// Requires: a strategy of the enum
const Composition& CompositionOf(Strategy strategy);

// Errors: kInvalidArgument  no strategy of that name; the message lists them
Result<Strategy> ParseStrategy(std::string_view name);

}  // namespace lmdbio::loader
#endif  // LMDBIO_LOADER_STRATEGY_H_
