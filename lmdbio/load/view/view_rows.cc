#include "lmdbio/load/view/view_rows.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/format/key_order.h"
#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/load/view/key_stream.h"
#include "lmdbio/load/view/key_template.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kNoSample = ~uint64_t{0};

using ExcludedKeys = std::set<std::string, std::less<>>;

std::string NameOf(const file::Database& database) {
  const std::string& path = database.pages().source().name();
  if (database.name().empty()) return path;
  return fmt::format("{}, database {}", path, KeyWords(database.name()));
}

tl::unexpected<Error> FailIn(const file::Database& database, ErrorCode code, std::string why) {
  return Fail(code, fmt::format("{}: {}", NameOf(database), why));
}

// The keys of a database that are not excluded.
class SampleKeys {
 public:
  SampleKeys(const ViewDatabase& source, const ExcludedKeys& excluded, bool checks_order)
      : stream_(source.database),
        excluded_(excluded),
        checks_order_(checks_order),
        first_record_(source.first_record) {}

  Result<bool> Next() {
    do {
      if (has_key_ && checks_order_) last_.assign(key().begin(), key().end());
      const bool has_last = has_key_;
      LMDBIO_TRY(has_key_, stream_.Next());
      if (!has_key_) return false;
      if (has_last && checks_order_) LMDBIO_TRY_VOID(CheckOrder());
    } while (!excluded_.empty() && excluded_.contains(TextOf(key())));
    return true;
  }

  // Moves to `wanted`, or behind its place. False if the key is not there.
  // Requires: no earlier call had a greater key
  Result<bool> MoveTo(Bytes wanted) {
    if (!has_begun_) {
      has_begun_ = true;
      LMDBIO_TRY_VOID(Next());
    }
    const file::KeyOrder order = database().key_order();
    while (has_key_ && file::CompareKeys(order, key(), wanted) < 0) LMDBIO_TRY_VOID(PassOver());
    is_used_ = has_key_ && file::CompareKeys(order, key(), wanted) == 0;
    return is_used_;
  }

  // Counts the keys that are left, after the last MoveTo.
  Status Drain() {
    if (!has_begun_) {
      has_begun_ = true;
      LMDBIO_TRY_VOID(Next());
    }
    while (has_key_) LMDBIO_TRY_VOID(PassOver());
    return {};
  }

  Bytes key() const { return stream_.key(); }
  uint64_t record() const { return first_record_ + stream_.number(); }
  const file::Database& database() const { return stream_.database(); }
  uint64_t unused_count() const { return unused_count_; }
  const std::string& first_unused() const { return first_unused_; }

 private:
  Result<bool> PassOver() {
    if (!is_used_ && unused_count_++ == 0) first_unused_ = KeyWords(key());
    is_used_ = false;
    return Next();
  }
  Status CheckOrder() const {
    if (file::CompareKeys(database().key_order(), last_, key()) < 0) return {};
    return FailIn(database(), ErrorCode::kCorruption,
                  fmt::format("the key {} comes after {}: the keys are in an order that the file "
                              "does not record, so they cannot be joined",
                              KeyWords(key()), KeyWords(Bytes(last_))));
  }

  KeyStream stream_;
  const ExcludedKeys& excluded_;
  const bool checks_order_;
  const uint64_t first_record_;
  bool has_begun_ = false;
  bool has_key_ = false;
  bool is_used_ = false;  // the key was the wanted one
  std::vector<std::byte> last_;
  uint64_t unused_count_ = 0;
  std::string first_unused_;
};

// The number at the start of the count record.
Result<uint64_t> ReadCount(const file::Database& database, const std::string& key) {
  const Bytes wanted = std::as_bytes(std::span(key));
  file::Cursor cursor(database);
  LMDBIO_TRY(const bool found, cursor.SeekKey(wanted));
  if (!found || !std::ranges::equal(cursor.key(), wanted)) {
    return FailIn(database, ErrorCode::kNotFound,
                  fmt::format("there is no count record {}", KeyWords(key)));
  }
  LMDBIO_TRY(const Bytes value, cursor.Value());
  const std::string_view text = TextOf(value);
  const size_t end = text.find_first_of(std::string_view(" \t\r\n\0", 5));
  const std::optional<uint64_t> count = DecimalOf(text.substr(0, end));
  if (count) return *count;
  return FailIn(database, ErrorCode::kInvalidArgument,
                fmt::format("the count record {} is {}, which does not begin with a decimal number",
                            KeyWords(key), KeyWords(value)));
}

}  // namespace

ViewRows::ViewRows(const ViewSpec& spec)
    : spec_(spec),
      excluded_(spec.exclude.begin(), spec.exclude.end()),
      columns_(spec.field_count()) {
  if (!spec.subset_keys) return;
  for (const std::string& key : *spec.subset_keys) sample_of_.emplace(key, kNoSample);
}

Status ViewRows::Add(std::span<const ViewDatabase> sources, std::vector<std::string>& notes) {
  ++part_count_;
  if (!spec_.fields.empty()) LMDBIO_TRY_VOID(CheckJoinable(sources));
  return spec_.has_templates() ? AddNumbered(sources) : AddJoined(sources, notes);
}

Status ViewRows::CheckJoinable(std::span<const ViewDatabase> sources) const {
  const file::Database& first = sources[SourceOf(0)].database;
  for (size_t field = 0; field < spec_.fields.size(); ++field) {
    const file::Database& one = sources[SourceOf(field)].database;
    if (one.record().has_duplicates()) {
      return FailIn(one, ErrorCode::kUnsupported,
                    fmt::format("field \"{}\": keys may have several values (MDB_DUPSORT), but a "
                                "field is one record",
                                spec_.fields[field].name));
    }
    if (one.key_order() == first.key_order() || spec_.has_templates()) continue;
    return FailIn(one, ErrorCode::kUnsupported,
                  fmt::format("field \"{}\": its keys have another order than those of {}, so they "
                              "cannot be joined",
                              spec_.fields[field].name, NameOf(first)));
  }
  return {};
}

// Merges the key streams: each moves on to the key of the first field's database.
Status ViewRows::AddJoined(std::span<const ViewDatabase> sources, std::vector<std::string>& notes) {
  std::vector<std::unique_ptr<SampleKeys>> keys(sources.size());
  const size_t first = SourceOf(0);
  bool is_join = false;
  for (size_t field = 0; field < columns_.size(); ++field) is_join |= SourceOf(field) != first;
  for (size_t field = 0; field < columns_.size(); ++field) {
    std::unique_ptr<SampleKeys>& one = keys[SourceOf(field)];
    if (one == nullptr) {
      one = std::make_unique<SampleKeys>(sources[SourceOf(field)], excluded_, is_join);
    }
  }
  SampleKeys& own = *keys[first];
  const uint64_t first_row = sample_count();
  while (true) {
    LMDBIO_TRY(const bool found, own.Next());
    if (!found) break;
    for (size_t field = 1; field < columns_.size(); ++field) {
      if (SourceOf(field) == first) continue;
      SampleKeys& other = *keys[SourceOf(field)];
      LMDBIO_TRY(const bool has, other.MoveTo(own.key()));
      if (has) continue;
      return FailIn(
          other.database(), ErrorCode::kNotFound,
          fmt::format("field \"{}\" lacks the key {}, which {} has", spec_.fields[field].name,
                      KeyWords(own.key()), NameOf(own.database())));
    }
    if (spec_.order == ViewOrder::kNumeric) {
      const std::optional<uint64_t> number = DecimalOf(TextOf(own.key()));
      if (!number) {
        return FailIn(own.database(), ErrorCode::kInvalidArgument,
                      fmt::format("the key {} is no decimal number, as order numeric needs; put it "
                                  "into exclude if it is no sample",
                                  KeyWords(own.key())));
      }
      numbers_.push_back(*number);
    } else if (!sample_of_.empty()) {
      const auto wanted = sample_of_.find(std::string(TextOf(own.key())));
      if (wanted != sample_of_.end()) wanted->second = sample_count();
    }
    for (size_t field = 0; field < columns_.size(); ++field) {
      columns_[field].push_back(keys[SourceOf(field)]->record());
    }
  }
  for (size_t source = 0; source < keys.size(); ++source) {
    if (source == first || keys[source] == nullptr) continue;
    LMDBIO_TRY_VOID(keys[source]->Drain());
    if (keys[source]->unused_count() == 0) continue;
    notes.push_back(fmt::format(
        "{}: {} records belong to no sample, because {} does not have their keys; the first is {}",
        NameOf(keys[source]->database()), keys[source]->unused_count(), NameOf(own.database()),
        keys[source]->first_unused()));
  }
  return SortByNumber(first_row);
}

// The samples of a file are sorted among themselves.
Status ViewRows::SortByNumber(uint64_t first_row) {
  const auto begin = static_cast<std::ptrdiff_t>(first_row);
  if (numbers_.empty() || std::is_sorted(numbers_.begin() + begin, numbers_.end())) return {};
  std::vector<uint64_t> by_number(numbers_.size() - first_row);
  std::iota(by_number.begin(), by_number.end(), first_row);
  std::ranges::stable_sort(by_number, {}, [&](uint64_t row) { return numbers_[row]; });
  const auto reorder = [&](std::vector<uint64_t>& values) {
    std::vector<uint64_t> sorted;
    sorted.reserve(by_number.size());
    for (const uint64_t row : by_number) sorted.push_back(values[row]);
    std::ranges::copy(sorted, values.begin() + begin);
  };
  for (std::vector<uint64_t>& column : columns_) reorder(column);
  reorder(numbers_);
  return {};
}

Result<std::vector<ViewRows::NumberedRecords>> ViewRows::FindNumbers(
    std::span<const ViewDatabase> sources) const {
  std::vector<KeyTemplate> templates;
  for (const ViewField& field : spec_.fields) {
    LMDBIO_TRY(KeyTemplate parsed, KeyTemplate::Parse(field.key_template));
    templates.push_back(std::move(parsed));
  }
  std::vector<NumberedRecords> found(columns_.size());
  for (size_t source = 0; source < sources.size(); ++source) {
    std::vector<size_t> fields;
    for (size_t field = 0; field < columns_.size(); ++field) {
      if (SourceOf(field) == source) fields.push_back(field);
    }
    if (fields.empty()) continue;
    SampleKeys keys(sources[source], excluded_, false);
    while (true) {
      LMDBIO_TRY(const bool has, keys.Next());
      if (!has) break;
      for (const size_t field : fields) {
        const std::optional<uint64_t> number = templates[field].NumberOf(TextOf(keys.key()));
        if (number && *number >= spec_.start) found[field].push_back({*number, keys.record()});
      }
    }
  }
  for (NumberedRecords& one : found) {
    if (!std::ranges::is_sorted(one, {}, &Numbered::number)) {
      std::ranges::sort(one, {}, &Numbered::number);
    }
  }
  return found;
}

Status ViewRows::AddNumbered(std::span<const ViewDatabase> sources) {
  std::optional<uint64_t> count = spec_.count;
  if (!spec_.count_key.empty()) {
    LMDBIO_TRY(count, ReadCount(sources.front().database, spec_.count_key));
  }
  LMDBIO_TRY(const std::vector<NumberedRecords> found, FindNumbers(sources));
  return AddLinedUp(sources, found, count ? &*count : nullptr);
}

// All fields have the same numbers: `*count` of them from the start on, or all that any field has.
Status ViewRows::AddLinedUp(std::span<const ViewDatabase> sources,
                            const std::vector<NumberedRecords>& found, const uint64_t* count) {
  std::vector<size_t> next(found.size());
  for (uint64_t i = 0; count == nullptr || i < *count; ++i) {
    std::optional<uint64_t> least;
    for (size_t field = 0; field < found.size(); ++field) {
      if (next[field] == found[field].size()) continue;
      const uint64_t number = found[field][next[field]].number;
      least = std::min(least.value_or(number), number);
    }
    if (count == nullptr && !least) return {};
    const uint64_t number = count != nullptr ? spec_.start + i : *least;
    for (size_t field = 0; field < found.size(); ++field) {
      const NumberedRecords& of_field = found[field];
      if (next[field] < of_field.size() && of_field[next[field]].number == number) continue;
      LMDBIO_TRY(const KeyTemplate key, KeyTemplate::Parse(spec_.fields[field].key_template));
      return FailIn(
          sources[SourceOf(field)].database, ErrorCode::kNotFound,
          fmt::format("field \"{}\" lacks the key {} of sample {}", spec_.fields[field].name,
                      KeyWords(key.KeyOf(number)), sample_count()));
    }
    for (size_t field = 0; field < found.size(); ++field) {
      columns_[field].push_back(found[field][next[field]++].record);
    }
    numbers_.push_back(number);
  }
  return {};
}

Result<uint64_t> ViewRows::SampleOfKey(const std::string& key) const {
  if (spec_.has_templates() || spec_.order == ViewOrder::kNumeric) {
    const std::optional<uint64_t> number = DecimalOf(key);
    const auto found = std::ranges::lower_bound(numbers_, number.value_or(0));
    if (!number || found == numbers_.end() || *found != *number) return kNoSample;
    return static_cast<uint64_t>(found - numbers_.begin());
  }
  return sample_of_.at(key);
}

Status ViewRows::ChooseSubset() {
  if (!spec_.subset && !spec_.subset_keys) return {};
  if (spec_.subset_keys && part_count_ > 1) {
    return Fail(ErrorCode::kUnsupported,
                "view: a subset by keys needs one file, because several files may have a key; use "
                "the numbers of the samples");
  }
  std::vector<uint64_t> chosen;
  if (spec_.subset) {
    chosen = *spec_.subset;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] < sample_count()) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("view: subset[{}] is {}, but there are {} samples", i, chosen[i],
                              sample_count()));
    }
  } else {
    for (size_t i = 0; i < spec_.subset_keys->size(); ++i) {
      const std::string& key = (*spec_.subset_keys)[i];
      LMDBIO_TRY(const uint64_t sample, SampleOfKey(key));
      if (sample == kNoSample) {
        return Fail(ErrorCode::kNotFound,
                    fmt::format("view: subset[{}]: no sample has the key {}", i, KeyWords(key)));
      }
      chosen.push_back(sample);
    }
  }
  for (std::vector<uint64_t>& column : columns_) {
    std::vector<uint64_t> kept;
    kept.reserve(chosen.size());
    for (const uint64_t sample : chosen) kept.push_back(column[sample]);
    column = std::move(kept);
  }
  return {};
}

}  // namespace lmdbio::load
