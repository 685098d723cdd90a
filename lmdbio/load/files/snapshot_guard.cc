#include "lmdbio/load/files/snapshot_guard.h"

#include <sys/stat.h>

#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::load {
namespace {

// The tries to pin the newest transaction. Each failed try needs a commit at that very moment.
constexpr int kPinTriesMax = 100;

}  // namespace

Result<SnapshotGuard::Identity> SnapshotGuard::Identify(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) {
    return Fail(ErrnoError(errno, path, "cannot be examined"));
  }
  return Identity{found.st_dev, found.st_ino, static_cast<uint64_t>(found.st_size), found.st_mtim};
}

Result<SnapshotGuard> SnapshotGuard::Open(const ByteSource& source, SnapshotMode mode) {
  if (mode != SnapshotMode::kPinned) {
    // The identity comes before the snapshot. So a file that is replaced in between differs at the
    // first check.
    LMDBIO_TRY(const Identity identity, Identify(source.name()));
    LMDBIO_TRY(const file::Environment environment, file::Environment::Open(source));
    SnapshotGuard guard(environment, mode);
    guard.identity_ = identity;
    return guard;
  }
  // The pin comes first: a snapshot of the pinned transaction is safe from then on. If a commit
  // came in between, the newest transaction is pinned instead.
  LMDBIO_TRY(auto pin, SnapshotPin::Open(source.name()));
  for (int i = 0; i < kPinTriesMax; ++i) {
    LMDBIO_TRY(const file::Environment environment, file::Environment::Open(source));
    if (environment.snapshot().meta.transaction_id == pin->transaction_id()) {
      SnapshotGuard guard(environment, mode);
      guard.pin_ = std::move(pin);
      return guard;
    }
    LMDBIO_TRY_VOID(pin->Renew());
  }
  return Fail(ErrorCode::kStale, fmt::format("{}: a writer commits faster than its state can be "
                                             "pinned ({} tries)",
                                             source.name(), kPinTriesMax));
}

Status SnapshotGuard::AfterSlot() const {
  return checks_slots() ? environment_.CheckHolds() : Status();
}

Status SnapshotGuard::AfterEpoch() const { return checks_epochs() ? CheckUnchanged() : Status(); }

Status SnapshotGuard::CheckUnchanged() const {
  const ByteSource& source = environment_.pages().source();
  const auto stale = [&](std::string what) {
    return Fail(ErrorCode::kStale,
                fmt::format("{}: the file was changed while it was read: {}", source.name(), what));
  };
  LMDBIO_TRY(const Identity now, Identify(source.name()));
  if (now.device != identity_.device || now.inode != identity_.inode) {
    return stale("another file has replaced it");
  }
  if (now.size_bytes != identity_.size_bytes) {
    return stale(
        fmt::format("its size changed from {} to {} bytes", identity_.size_bytes, now.size_bytes));
  }
  LMDBIO_TRY(const file::Snapshot snapshot, file::TakeSnapshot(source));
  const uint64_t then = environment_.snapshot().meta.transaction_id;
  if (snapshot.meta.transaction_id != then) {
    return stale(fmt::format("its transaction id changed from {} to {}", then,
                             snapshot.meta.transaction_id));
  }
  // The time comes last, because it says least about the change.
  if (now.modified.tv_sec != identity_.modified.tv_sec ||
      now.modified.tv_nsec != identity_.modified.tv_nsec) {
    return stale("its modification time has changed");
  }
  return {};
}

Error SnapshotGuard::Explain(Error error) const {
  // Only damage and failed reads can be effects of a writer.
  if (error.code() != ErrorCode::kCorruption && error.code() != ErrorCode::kIo) return error;
  Status status = mode_ == SnapshotMode::kImmutable ? CheckUnchanged() : environment_.CheckHolds();
  if (status || status.error().code() != ErrorCode::kStale) return error;
  return std::move(status).error();
}

// All files of a list have one mode, so the first one tells whether the loops are needed.
Status SnapshotGuards::AfterSlot() const {
  if (!guards_.front().checks_slots()) return {};
  for (const SnapshotGuard& guard : guards_) LMDBIO_TRY_VOID(guard.AfterSlot());
  return {};
}

Status SnapshotGuards::AfterEpoch() const {
  if (!guards_.front().checks_epochs()) return {};
  for (const SnapshotGuard& guard : guards_) LMDBIO_TRY_VOID(guard.AfterEpoch());
  return {};
}

// The error belongs to one file, but only its message tells to which.
Error SnapshotGuards::Explain(Error error) const {
  for (const SnapshotGuard& guard : guards_) {
    Error explained = guard.Explain(error.Copy());
    if (explained.code() == ErrorCode::kStale) return explained;
  }
  return error;
}

}  // namespace lmdbio::load
