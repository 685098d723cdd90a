// lmdbio/load/plan/strategy.h - the strategies, as rows of one table of independent answers.
//
//   locating records              LocateMethod
//   fetching their bytes          an engine (file/blocks/block_engine.h)
//   joining reads into requests   Coalescing
//   the size of requests          ReadSizing
//   turns of the readers          Staggering
//
// Source: dissertation 3.1 (lmdb), 3.2 (lmm), 4.2 (lmm-dm), 5.2.1 (lmm-dio), 5.2.2 (-prov), 5.2.3
// (-coal), 5.2.4 (-stag); docs/loader.md "Strategies".
#ifndef LMDBIO_LOAD_PLAN_STRATEGY_H_
#define LMDBIO_LOAD_PLAN_STRATEGY_H_

#include <array>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::load {

enum class Strategy {
  kAuto,                // "auto": provenance if it fits, else a scan; the engine by a probe
  kLmdb,                // "lmdb": every rank steps liblmdb's cursor over all records
  kLmm,                 // "lmm": readers step a cursor over a map and copy into the window
  kLmmDm,               // "lmm-dm": the cursor goes from host to host
  kLmmDio,              // "lmm-dio": one host's cursor locates for all, explicit reads fetch
  kLmmDioProv,          // "lmm-dio-prov": provenance locates
  kLmmDioProvCoal,      // "lmm-dio-prov-coal": and neighbours are read together
  kLmmDioProvCoalStag,  // "lmm-dio-prov-coal-stag": and readers take turns
  kScan,                // "scan": a page walk locates, many direct reads at once fetch
};

// The size of slots, and of reads without gaps.
enum class ReadSizing {
  kFixed,       // slots of 8 MiB, reads of block_bytes
  kFromBudget,  // both follow from the memory budget and the storage (chunk_size.h)
};

// The readers that may read at a time.
enum class Staggering {
  kNone,       // all readers
  kTokens,     // readers with a token
  kIfWorthIt,  // readers with a token, if a trial in a long stream shows that it is faster
};

enum class LocateMethod {
  kNone,          // liblmdb locates records
  kCursor,        // a cursor over a map of the file, from record to record
  kHandedCursor,  // such a cursor, which travels from host to host
  kOneWalker,     // such a cursor on one host, for all hosts
  kProvenance,    // computed from the provenance file
  kScan,          // a page walk, ahead of the reads
  kBest,          // kProvenance if it fits, else kScan
};

struct StrategyTraits {
  Strategy strategy = Strategy::kAuto;
  std::string_view name;
  LocateMethod locating = LocateMethod::kBest;
  Coalescing coalescing = Coalescing::kNeighbours;
  // The engine of the strategy. kProbe: rank 0 chooses one when the loader opens.
  enum class EngineChoice { kMmap, kPread, kUringDirect, kProbe } engine = EngineChoice::kProbe;
  Staggering staggering = Staggering::kNone;
  ReadSizing read_sizing = ReadSizing::kFixed;
};

inline constexpr std::array<StrategyTraits, 9> kStrategies = {{
    {Strategy::kLmdb, "lmdb", LocateMethod::kNone, Coalescing::kNone,
     StrategyTraits::EngineChoice::kMmap},
    {Strategy::kLmm, "lmm", LocateMethod::kCursor, Coalescing::kNone,
     StrategyTraits::EngineChoice::kMmap},
    {Strategy::kLmmDm, "lmm-dm", LocateMethod::kHandedCursor, Coalescing::kNone,
     StrategyTraits::EngineChoice::kMmap},
    {Strategy::kLmmDio, "lmm-dio", LocateMethod::kOneWalker, Coalescing::kNone,
     StrategyTraits::EngineChoice::kPread},
    {Strategy::kLmmDioProv, "lmm-dio-prov", LocateMethod::kProvenance, Coalescing::kNone,
     StrategyTraits::EngineChoice::kPread},
    {Strategy::kLmmDioProvCoal, "lmm-dio-prov-coal", LocateMethod::kProvenance,
     Coalescing::kNeighbours, StrategyTraits::EngineChoice::kPread, Staggering::kNone,
     ReadSizing::kFromBudget},
    {Strategy::kLmmDioProvCoalStag, "lmm-dio-prov-coal-stag", LocateMethod::kProvenance,
     Coalescing::kNeighbours, StrategyTraits::EngineChoice::kPread, Staggering::kTokens,
     ReadSizing::kFromBudget},
    {Strategy::kScan, "scan", LocateMethod::kScan, Coalescing::kNeighbours,
     StrategyTraits::EngineChoice::kUringDirect},
    {Strategy::kAuto, "auto", LocateMethod::kBest, Coalescing::kNeighbours,
     StrategyTraits::EngineChoice::kProbe, Staggering::kIfWorthIt},
}};

// Requires: a strategy of the enum
const StrategyTraits& CompositionOf(Strategy strategy);

// Errors: kInvalidArgument  no strategy has that name; the message lists the names
Result<Strategy> ParseStrategy(std::string_view name);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_STRATEGY_H_
