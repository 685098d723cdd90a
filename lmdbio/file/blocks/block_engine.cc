#include "lmdbio/file/blocks/block_engine.h"

#include <fmt/format.h>

#include "lmdbio/file/blocks/block_files.h"
#include "lmdbio/file/blocks/mmap_engine.h"
#include "lmdbio/file/blocks/pread_engine.h"
#include "lmdbio/file/blocks/uring_engine.h"
#include "lmdbio/file/io/data_path.h"

namespace lmdbio::file {

const char* EngineKindName(EngineKind kind) {
  switch (kind) {
    case EngineKind::kMmap:
      return "mmap";
    case EngineKind::kPread:
      return "pread";
    case EngineKind::kUring:
      return "uring";
  }
  return "unknown";
}

const char* CachePolicyName(CachePolicy policy) {
  switch (policy) {
    case CachePolicy::kBuffered:
      return "buffered";
    case CachePolicy::kDirect:
      return "direct";
    case CachePolicy::kMixed:
      return "mixed";
  }
  return "unknown";
}

Result<std::unique_ptr<BlockEngine>> OpenBlockEngine(const std::string& path,
                                                     const EngineOptions& options) {
  LMDBIO_TRY(const std::string data_path, FindDataFile(path));
  if (options.queue_depth == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: queue depth 0 is out of range; give at least 1", data_path));
  }
  if (options.kind == EngineKind::kMmap) return MmapEngine::Open(data_path, options);
  if (options.kind == EngineKind::kPread) return PreadEngine::Open(data_path, options);
  // Only a refused io_uring leads to pread. Other failures would fail there, too.
  Result<std::unique_ptr<BlockEngine>> engine = UringEngine::Open(data_path, options);
  if (engine || engine.error().code() != ErrorCode::kUnsupported) return engine;
  LMDBIO_TRY(std::unique_ptr<PreadEngine> instead, PreadEngine::Open(data_path, options));
  instead->AddNote(fmt::format("{}: {}: reading with pread", data_path, engine.error().message()));
  return instead;
}

Result<std::unique_ptr<BlockEngine>> OpenBlockEngine(const JoinedFiles& files,
                                                     const EngineOptions& options) {
  EngineOptions limited = options;
  LMDBIO_TRY(std::unique_ptr<BlockFiles> opened, BlockFiles::Open(files, limited));
  if (options.queue_depth == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: queue depth 0 is out of range; give at least 1", opened->name()));
  }
  if (options.kind == EngineKind::kMmap) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: engine mmap maps one file; use uring or pread", opened->name()));
  }
  if (options.kind == EngineKind::kPread) return PreadEngine::Open(std::move(opened), limited);
  const std::string name = opened->name();
  Result<std::unique_ptr<BlockEngine>> engine = UringEngine::Open(std::move(opened), limited);
  if (engine || engine.error().code() != ErrorCode::kUnsupported) return engine;
  LMDBIO_TRY(opened, BlockFiles::Open(files, limited));
  std::unique_ptr<PreadEngine> instead = PreadEngine::Open(std::move(opened), limited);
  instead->AddNote(fmt::format("{}: {}: reading with pread", name, engine.error().message()));
  return instead;
}

}  // namespace lmdbio::file
