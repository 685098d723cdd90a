// Goal: a damaged file gives an error that names the file, or the same records as before. It never
// causes a crash or endless reading, and other records only if no check can detect the damage.
// Method: small files of every kind are damaged thousands of times, in one place each time, and
// read through every interface ("door"). A map of the sound file (byte_map.h) gives the role of
// each byte, and so the allowed effect of its damage. LMDBIO_TEST_SEED and LMDBIO_TEST_MUTATIONS
// choose another run.
#include <array>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "lmdbio/file/format/load.h"
#include "lmdbio/file/format/node_table.h"
#include "tests/file/layout/damaged_file.h"
#include "tests/file/layout/whole_reading.h"
#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

// 20,000 mutations take about ten seconds in a Release build; a sanitizer build uses fewer.
constexpr uint64_t kMutationCount = 8000;

uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The effect of damage, from harmless to forbidden.
enum class DamageOutcome : uint8_t {
  kUnaffected,    // the same records through every door
  kError,         // the library reported an error
  kPayload,       // a byte of a key or a value changed, and nothing else
  kUndetectable,  // other records, for one of the reasons below
  kWrong,         // other records, although a check could detect the damage
};
constexpr size_t kOutcomeCount = 5;

// The reasons for which one pass over one database cannot detect damage to structure.
enum class Reason : uint8_t {
  kOlderSnapshot,  // the other meta page, sound and complete, became the newer one
  kNodePadding,    // a size changed by one byte, within the padding of the node
  kRunSlack,       // the length of a value changed within the pages of its run
  kNodeKind,       // the flags turned the node into a valid node of another kind
  kStalePage,      // a page number changed to a free page, which is sound in an older snapshot
  kOtherTree,      // a page number changed to a sound page of another database
  kTwoByteItems,   // a few packed items fewer in a sub-page, of the same size as its slots
  kLooseCount,     // records lost or repeated in a database with an inexact entry count
};
constexpr std::array<std::string_view, 8> kReasonNames = {
    "the other snapshot taken",  "within a node's padding",  "within the slack of a run",
    "node of another kind",      "a page that is free",      "a page of another database",
    "a few two-byte items less", "lost where LMDB miscounts"};

struct DamageTally {
  std::map<DamageKind, std::array<uint64_t, kOutcomeCount>> outcomes;
  std::map<Reason, uint64_t> reasons;
  uint64_t cursor_only = 0;  // wrong for a single cursor, found by the whole passes
  double requests_max = 0;   // of a door, as a multiple of the requests for the sound file

  std::string Table() const {
    std::string table = fmt::format("\n{:30}{:>10}{:>7}{:>8}{:>13}{:>6}\n", "damage", "unaffected",
                                    "error", "payload", "undetectable", "wrong");
    for (const auto& [kind, counts] : outcomes) {
      table += fmt::format("{:30}{:>10}{:>7}{:>8}{:>13}{:>6}\n", DamageKindName(kind), counts[0],
                           counts[1], counts[2], counts[3], counts[4]);
    }
    for (const auto& [reason, count] : reasons) {
      table += fmt::format("undetectable: {:28}{:>7}\n", kReasonNames[static_cast<size_t>(reason)],
                           count);
    }
    table += fmt::format("found by whole passes, not by a cursor alone: {}\n", cursor_only);
    table += fmt::format("most reads: {:.1f} times those of the sound file\n", requests_max);
    return table;
  }
};

file::NodeHeader NodeAt(Bytes file, uint64_t offset) {
  return file::NodeTable::HeaderAt(file, offset);
}

// The reason for undetected damage to the sizes in a leaf node: the node still ends at the start of
// the next one, or the value still fits its run. Nothing if a check must detect the damage.
std::optional<Reason> ReasonOfSizes(const DamagedFile& file, Bytes damaged, uint64_t at) {
  const NodePlace& place = file.map().NodeAt(at);
  const file::NodeHeader before = NodeAt(file.sound(), place.offset);
  const file::NodeHeader after = NodeAt(damaged, place.offset);
  const file::PageFormat format = file.page_format();
  if (before.flags == file::kOverflowNode) {
    if (format.OverflowPageCount(after.data_bytes()) > place.run_page_count) return std::nullopt;
    return before.key_bytes == after.key_bytes ? Reason::kRunSlack : Reason::kNodePadding;
  }
  if (format.LeafNodeBytes(before.key_bytes, before.data_bytes()) !=
      format.LeafNodeBytes(after.key_bytes, after.data_bytes())) {
    return std::nullopt;
  }
  return Reason::kNodePadding;
}

std::optional<Reason> ReasonOfSubPage(const DamagedFile& file, Bytes damaged, uint64_t at) {
  const file::PageFormat format = file.page_format();
  const NodePlace& place = file.map().NodeAt(at);
  const uint64_t sub_page =
      place.offset + format.data_offset(NodeAt(file.sound(), place.offset).key_bytes);
  const uint64_t fields = sub_page + format.header_bytes() - 8;
  const auto item_bytes = file::Load<uint16_t>(file.sound(), fields);
  const auto flags = file::Load<uint16_t>(file.sound(), fields + 2);
  const auto lower = file::Load<uint16_t>(file.sound(), fields + 4);
  const auto lower_now = file::Load<uint16_t>(damaged, fields + 4);
  const bool is_packed = (flags & 0x20) != 0;
  const int items_lost = (lower - lower_now) / 2;
  constexpr int kUnseenItemsMax = 8;  // docs/format.md section 8: more free items are refused
  const bool is_unseen = items_lost > 0 && items_lost <= kUnseenItemsMax;
  if (is_packed && item_bytes == 2 && is_unseen) return Reason::kTwoByteItems;
  return std::nullopt;
}

std::optional<Reason> ReasonOfPageField(const DamagedFile& file, Bytes damaged, uint64_t at) {
  for (const PageField& field : file.map().page_fields()) {
    if (at < field.offset || at >= field.offset + field.size_bytes()) continue;
    const uint64_t mask = ~uint64_t{0} >> (64 - 8 * field.size_bytes());
    const PageNo target{file::Load<uint64_t>(damaged, field.offset) & mask};
    if (!file.map().IsLive(target)) return Reason::kStalePage;
    if (!file.map().IsOf(field.owner, target)) return Reason::kOtherTree;
    if (file.map().CountIsLoose(field.owner)) return Reason::kLooseCount;
  }
  return std::nullopt;
}

// The reason for which no check can detect the damage at `at`, or nothing if one can.
std::optional<Reason> FindReason(const DamagedFile& file, Bytes damaged, uint64_t at) {
  if (const auto reason = ReasonOfPageField(file, damaged, at)) return reason;
  const ByteRole role = file.map().role(at);
  if (role == ByteRole::kSubPageHeader) return ReasonOfSubPage(file, damaged, at);
  if (role == ByteRole::kNodeSizes) return ReasonOfSizes(file, damaged, at);
  if (role == ByteRole::kNodeFlags) return Reason::kNodeKind;
  return std::nullopt;
}

// One file and its readings before any damage.
class Patient {
 public:
  explicit Patient(const SmallFile& file) : file_(file) {
    const MemorySource older(file_.WithOlderSnapshot(), file.name);
    for (const Door door : kDoors) {
      const uint64_t before = file_.source().counters().request_count;
      const Result<WholeReading> reading = ReadWhole(file_.source(), door);
      REQUIRE(reading.has_value());
      sound_.push_back(*reading);
      requests_.push_back(file_.source().counters().request_count - before);
      older_.push_back(ReadWhole(older, door));
    }
  }

  void Damage(DamageKind kind, Random& random, DamageTally& tally) {
    if (!file_.Damage(kind, random)) return;
    said_ = fmt::format("sound: {} records\n", sound_[0].record_count);
    const DamageOutcome outcome = Read(tally);
    INFO(DamageKindName(kind) << ", " << file_.changed().size() << " bytes from "
                              << (file_.changed().empty() ? 0 : file_.changed()[0]) << " on ("
                              << RoleOfChange() << ")");
    INFO(said_);
    CHECK(outcome != DamageOutcome::kWrong);
    ++tally.outcomes[kind][static_cast<size_t>(outcome)];
    file_.Restore();
  }

 private:
  // The most structural role among the changed bytes.
  ByteRole WorstRole() const {
    ByteRole worst = ByteRole::kUnused;
    for (const uint64_t at : file_.changed()) worst = std::max(worst, file_.map().role(at));
    return worst;
  }
  std::string_view RoleOfChange() const { return ByteRoleName(WorstRole()); }

  DamageOutcome Read(DamageTally& tally) {
    std::array<DamageOutcome, 3> outcomes{};
    for (size_t i = 0; i < std::size(kDoors); ++i) {
      const uint64_t before = file_.source().counters().request_count;
      outcomes[i] = Judge(i, ReadWhole(file_.source(), kDoors[i]));
      const uint64_t requests = file_.source().counters().request_count - before;
      tally.requests_max = std::max(
          tally.requests_max, static_cast<double>(requests) / static_cast<double>(requests_[i]));
    }
    return Combine(outcomes, tally);
  }

  // Damage that a whole pass finds counts as found, because a single cursor neither counts records
  // nor detects a shared page. The two whole passes must agree.
  DamageOutcome Combine(const std::array<DamageOutcome, 3>& outcomes, DamageTally& tally) {
    const auto [scan, walk, cursor] = outcomes;
    if (scan == DamageOutcome::kError || walk == DamageOutcome::kError) {
      if (cursor > DamageOutcome::kError) ++tally.cursor_only;
      return std::max(scan, walk) > DamageOutcome::kError ? DamageOutcome::kWrong
                                                          : DamageOutcome::kError;
    }
    const DamageOutcome worst = std::max({scan, walk, cursor});
    if (worst == DamageOutcome::kUndetectable) ++tally.reasons[*reason_];
    return worst;
  }

  DamageOutcome Judge(size_t door, const Result<WholeReading>& found) {
    const ByteRole role = WorstRole();
    said_ +=
        found ? fmt::format("{} records\n", found->record_count) : found.error().message() + "\n";
    if (!found) {
      const std::string& message = found.error().message();
      CHECK(message.find('\n') == std::string::npos);
      CHECK(message.starts_with(file_.name()));
      return MayFail(role, found.error()) ? DamageOutcome::kError : DamageOutcome::kWrong;
    }
    if (*found == sound_[door]) return DamageOutcome::kUnaffected;
    if (file_.is_truncated()) return DamageOutcome::kWrong;
    if (role == ByteRole::kPayload) {
      return found->shape == sound_[door].shape ? DamageOutcome::kPayload : DamageOutcome::kWrong;
    }
    reason_.reset();
    if (older_[door] && *found == *older_[door]) reason_ = Reason::kOlderSnapshot;
    if (!reason_ && IsStructure(role)) {
      reason_ = FindReason(file_, file_.damaged(), file_.changed()[0]);
    }
    return reason_ ? DamageOutcome::kUndetectable : DamageOutcome::kWrong;
  }

  // Damage to an unused byte must not give an error. A changed database name may give kNotFound,
  // because the name is then out of order.
  bool MayFail(ByteRole role, const Error& error) {
    if (file_.is_truncated()) return role != ByteRole::kUnused || file_.ends_in_live_page();
    if (role == ByteRole::kPayload) return error.code() == ErrorCode::kNotFound;
    return IsStructure(role);
  }

  DamagedFile file_;
  std::vector<WholeReading> sound_;          // [door]
  std::vector<Result<WholeReading>> older_;  // [door] of the snapshot before
  std::vector<uint64_t> requests_;           // [door] for the sound file
  std::string said_;                         // through each door, for messages
  std::optional<Reason> reason_;             // of the last kUndetectable
};

TEST_CASE("All detectable damage is detected", "[layout][damage]") {
  const uint64_t seed = NumberFromEnvironment("LMDBIO_TEST_SEED", 1);
  const uint64_t mutation_count = NumberFromEnvironment("LMDBIO_TEST_MUTATIONS", kMutationCount);
  INFO("LMDBIO_TEST_SEED=" << seed);
  Random random(seed);
  DamageTally tally;
  const std::vector<SmallFile> files = SmallFiles();
  for (const SmallFile& file : files) {
    INFO("file " << file.name);
    Patient patient(file);
    for (uint64_t n = 0; n < mutation_count / files.size(); ++n) {
      patient.Damage(static_cast<DamageKind>(n % kDamageKindCount), random, tally);
    }
  }
  // Damage must not multiply the number of reads.
  CHECK(tally.requests_max < 20);
  WARN("seed " << seed << tally.Table());
}

}  // namespace
}  // namespace lmdbio::test
