#include "lmdbio/load/order/stream_state.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lmdbio::load {
namespace {

using nlohmann::json;

constexpr uint64_t kVersion = 1;
// More records than any database has. Below this limit no product in this file overflows.
constexpr uint64_t kCountMax = uint64_t{1} << 48;
constexpr uint64_t kPositionMax = uint64_t{1} << 62;
constexpr size_t kNameBytesMax = 256;

constexpr std::array<std::string_view, 3> kOrderNames = {"sequential", "chunked", "shuffle"};
constexpr std::array<std::string_view, 2> kShuffleNames = {"global", "block"};
constexpr std::array<std::string_view, 3> kTailNames = {"wrap", "short", "drop"};

template <typename Value, size_t kSize>
std::string NameOf(Value value, const std::array<std::string_view, kSize>& names) {
  return std::string(names[static_cast<size_t>(value)]);
}

tl::unexpected<Error> Bad(std::string why) {
  return Fail(ErrorCode::kInvalidArgument, "the saved state " + std::move(why));
}

// Reads fields of one JSON object. It records the first missing or invalid field in wrong(); the
// results are valid only if wrong() is empty.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  uint64_t Number(const char* name, uint64_t least, uint64_t most) {
    const json* value = Find(name);
    if (value == nullptr) return least;
    if (!value->is_number_unsigned() || value->get<uint64_t>() < least ||
        value->get<uint64_t>() > most) {
      Wrong(fmt::format("is invalid: {}{} must be a number from {} to {}", where_, name, least,
                        most));
      return least;
    }
    return value->get<uint64_t>();
  }

  std::string Text(const char* name) {
    const json* value = Find(name);
    if (value == nullptr) return "";
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kNameBytesMax) {
      Wrong(fmt::format("is invalid: {}{} must be a string of at most {} bytes", where_, name,
                        kNameBytesMax));
      return "";
    }
    return value->get<std::string>();
  }

  // 16 hexadecimal digits; nothing if the field is missing.
  std::optional<uint64_t> OptionalDigest(const char* name) {
    if (!object_.contains(name)) return std::nullopt;
    const std::string text = Text(name);
    uint64_t digest = 0;
    const char* const end = text.data() + text.size();
    const auto [behind, error] = std::from_chars(text.data(), end, digest, 16);
    if (error != std::errc() || behind != end || text.size() != 16) {
      Wrong(fmt::format("is invalid: {}{} must be 16 hexadecimal digits", where_, name));
    }
    return digest;
  }

  template <typename Value, size_t kSize>
  Value OneOf(const char* name, const std::array<std::string_view, kSize>& names) {
    const std::string text = Text(name);
    for (size_t i = 0; i < kSize; ++i) {
      if (names[i] == text) return static_cast<Value>(i);
    }
    Wrong(fmt::format("is invalid: {}{} '{}' is unknown", where_, name, text));
    return Value{};
  }

  // The files of a list; none if there is no such field.
  std::vector<FileIdentity> Files(const char* name) {
    std::vector<FileIdentity> files;
    const auto found = object_.find(name);
    if (found == object_.end()) return files;
    const bool is_list = found->is_array() && found->size() > 1;
    if (!is_list) Wrong(fmt::format("is invalid: {}{} must be an array of files", where_, name));
    for (size_t i = 0; is_list && i < found->size(); ++i) {
      const json& file = (*found)[i];
      if (!IsFile(file)) {
        Wrong(
            fmt::format("is invalid: {}{}[{}] must be [name, database, records, transaction, "
                        "root_page]",
                        where_, name, i));
        break;
      }
      files.push_back({file[0], file[1], file[2], file[3], file[4]});
    }
    return files;
  }

  Fields Object(const char* name) {
    const json* value = Find(name);
    static const json kNothing = json::object();
    if (value != nullptr && !value->is_object()) {
      Wrong(fmt::format("is invalid: {}{} must be an object", where_, name));
      value = nullptr;
    }
    return {value != nullptr ? *value : kNothing, where_ + name + "."};
  }

  const std::optional<std::string>& wrong() const { return wrong_; }

 private:
  const json* Find(const char* name) {
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    Wrong(fmt::format("is invalid: {}{} is missing", where_, name));
    return nullptr;
  }
  static bool IsFile(const json& file) {
    const auto is_text = [](const json& value) {
      return value.is_string() && value.get_ref<const std::string&>().size() <= kNameBytesMax;
    };
    return file.is_array() && file.size() == 5 && is_text(file[0]) && is_text(file[1]) &&
           file[2].is_number_unsigned() && file[3].is_number_unsigned() &&
           file[4].is_number_unsigned();
  }
  void Wrong(std::string why) {
    if (!wrong_) wrong_ = std::move(why);
  }

  const json& object_;
  std::string where_;
  std::optional<std::string> wrong_;
};

bool DealsOut(const ScheduleOptions& options) {
  return DealsOut(options.walk.order, options.walk.shuffle, options.reuse);
}

// Every field is valid by itself at this point; this function checks that they fit together.
// Schedule asserts its preconditions, and a user may edit a state, so they are checked first.
// `position` and `epoch` follow from the other fields. They serve human readers, and must agree.
Status CheckWhole(const StreamState& state, uint64_t position, uint64_t epoch) {
  const ScheduleOptions& schedule = state.schedule;
  if (schedule.tail == Tail::kDrop && schedule.batch_size > schedule.walk.record_count) {
    return Bad("is invalid: with order.tail drop, batch_size must not exceed dataset.records");
  }
  if (schedule.origin.batch > state.next_batch)
    return Bad("is invalid: origin.batch must not exceed batch");
  if (state.next_batch - schedule.origin.batch > kPositionMax / schedule.batch_size) {
    return Bad("is invalid: batch lies beyond the last possible position");
  }
  // Schedule groups batches in any order, but the loader only where records are dealt out.
  if (!DealsOut(schedule) && schedule.group_batches > 1) {
    return Bad("is invalid: with this order, order.group_batches must be 1");
  }
  if (DealsOut(schedule) &&
      schedule.origin.position % (schedule.walk.record_count * schedule.reuse) != 0) {
    return Bad("is invalid: origin.position is not the start of an epoch");
  }
  const BatchSpan next = Schedule(schedule).Batch(state.next_batch);
  if (next.first_position != position) {
    return Bad(fmt::format("is invalid: position is {}, but batch {} begins at {}", position,
                           state.next_batch, next.first_position));
  }
  if (next.epoch != epoch) {
    return Bad(fmt::format("is invalid: epoch is {}, but batch {} belongs to epoch {}", epoch,
                           state.next_batch, next.epoch));
  }
  return {};
}

// The digest of a view, as in a state.
std::string ViewText(const std::optional<uint64_t>& digest) {
  return digest ? fmt::format("{:016x}", *digest) : "none";
}

}  // namespace

std::string EncodeStreamState(const StreamState& state) {
  const ScheduleOptions& schedule = state.schedule;
  const WalkOptions& walk = schedule.walk;
  const BatchSpan next = Schedule(schedule).Batch(state.next_batch);
  nlohmann::ordered_json order = {{"order", NameOf(walk.order, kOrderNames)},
                                  {"shuffle", NameOf(walk.shuffle, kShuffleNames)},
                                  {"seed", walk.seed},
                                  {"block_records", walk.block_records},
                                  {"group_batches", schedule.group_batches},
                                  {"reuse", schedule.reuse},
                                  {"tail", NameOf(schedule.tail, kTailNames)}};
  nlohmann::ordered_json dataset = {{"database", state.dataset.database_name},
                                    {"records", walk.record_count},
                                    {"transaction", state.dataset.transaction_id},
                                    {"root_page", state.dataset.root_page},
                                    {"page_bytes", state.dataset.page_bytes}};
  // A number of 64 bits would lose bits in readers of JSON that have floating-point numbers only.
  if (state.dataset.view_digest) dataset["view"] = ViewText(state.dataset.view_digest);
  // Arrays in place of objects, because a list may have thousands of files.
  for (const FileIdentity& file : state.dataset.files) {
    dataset["files"].push_back(
        {file.name, file.database_name, file.record_count, file.transaction_id, file.root_page});
  }
  const nlohmann::ordered_json text = {
      {"lmdbio_state", kVersion},
      {"dataset", std::move(dataset)},
      {"order", std::move(order)},
      {"batch_size", schedule.batch_size},
      {"epoch", next.epoch},
      {"position", next.first_position},
      {"batch", state.next_batch},
      {"origin", {{"batch", schedule.origin.batch}, {"position", schedule.origin.position}}}};
  // A database name may hold any bytes. Bytes that are not UTF-8 are replaced, so such a state is
  // refused when it is loaded.
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<StreamState> DecodeStreamState(std::string_view text) {
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Bad("is not a JSON object");
  // The version comes first, because another version may have other fields.
  Fields all(parsed, "");
  const uint64_t version = all.Number("lmdbio_state", 0, ~uint64_t{0});
  if (!all.wrong() && version != kVersion) {
    return Bad(fmt::format("has version {} (lmdbio_state); this version of lmdbio reads version {}",
                           version, kVersion));
  }
  StreamState state;
  Fields dataset = all.Object("dataset");
  Fields order = all.Object("order");
  Fields origin = all.Object("origin");
  ScheduleOptions& schedule = state.schedule;
  state.dataset.database_name = dataset.Text("database");
  schedule.walk.record_count = dataset.Number("records", 1, kCountMax);
  state.dataset.transaction_id = dataset.Number("transaction", 0, ~uint64_t{0});
  state.dataset.root_page = dataset.Number("root_page", 0, ~uint64_t{0});
  state.dataset.page_bytes = dataset.Number("page_bytes", 0, ~uint64_t{0});
  state.dataset.view_digest = dataset.OptionalDigest("view");
  state.dataset.files = dataset.Files("files");
  schedule.walk.order = order.OneOf<Order>("order", kOrderNames);
  schedule.walk.shuffle = order.OneOf<Shuffle>("shuffle", kShuffleNames);
  schedule.walk.seed = order.Number("seed", 0, ~uint64_t{0});
  schedule.walk.block_records = order.Number("block_records", 1, kCountMax);
  schedule.group_batches = order.Number("group_batches", 1, kCountMax);
  schedule.reuse = order.Number("reuse", 1, Schedule::kReuseMax);
  schedule.tail = order.OneOf<Tail>("tail", kTailNames);
  schedule.batch_size = all.Number("batch_size", 1, kPositionMax);
  const uint64_t epoch = all.Number("epoch", 0, kPositionMax);
  const uint64_t position = all.Number("position", 0, kPositionMax);
  state.next_batch = all.Number("batch", 0, kPositionMax);
  schedule.origin.batch = origin.Number("batch", 0, kPositionMax);
  schedule.origin.position = origin.Number("position", 0, kPositionMax);
  // An invalid field leaves a harmless value, so the checks are collected and reported here.
  for (const Fields* fields : {&all, &dataset, &order, &origin}) {
    if (fields->wrong()) return Bad(*fields->wrong());
  }
  LMDBIO_TRY_VOID(CheckWhole(state, position, epoch));
  return state;
}

std::optional<std::string> ListDifference(const std::vector<FileIdentity>& here,
                                          std::string_view name_here,
                                          const std::vector<FileIdentity>& other,
                                          std::string_view name_other) {
  const size_t both = std::min(here.size(), other.size());
  const auto lacks = [&](std::string_view who, std::string_view whom,
                         const std::vector<FileIdentity>& list, size_t i) {
    return fmt::format("{} does not have {} as file {}, as {} has, with {} files", who,
                       list[i].name, i + 1, whom, list.size());
  };
  for (size_t i = 0; i < both; ++i) {
    const FileIdentity& a = here[i];
    const FileIdentity& b = other[i];
    if (a.name != b.name) return lacks(name_here, name_other, other, i);
    const auto differs = [&](std::string_view what, const auto& mine, const auto& theirs) {
      return fmt::format("{} has {} with {} {}, and {} with {}", name_here, a.name, what, mine,
                         name_other, theirs);
    };
    if (a.database_name != b.database_name) {
      return differs("the database name", fmt::format("'{}'", a.database_name),
                     fmt::format("'{}'", b.database_name));
    }
    if (a.record_count != b.record_count) {
      return differs("a record count of", a.record_count, b.record_count);
    }
    if (a.transaction_id != b.transaction_id) {
      return differs("transaction", a.transaction_id, b.transaction_id);
    }
    if (a.root_page != b.root_page) return differs("root page", a.root_page, b.root_page);
  }
  if (other.size() > both) return lacks(name_here, name_other, other, both);
  if (here.size() > both) return lacks(name_other, name_here, here, both);
  return std::nullopt;
}

namespace {

// Compares saved values with present ones and records the first difference.
class Comparison {
 public:
  template <typename Value>
  void Same(const char* field, const Value& saved, const Value& here) {
    if (!difference_ && saved != here) {
      difference_ = fmt::format("was saved with {} {}, but the loader has {}", field, saved, here);
    }
  }

  Status Result(ErrorCode code) const {
    if (difference_) return Fail(code, "the state " + *difference_);
    return {};
  }

 private:
  std::optional<std::string> difference_;
};

}  // namespace

Result<StreamState> ContinueStream(const StreamState& saved, const StreamState& wanted) {
  // Another data set is kStale, so it is compared before the options: with other records,
  // differences of the options mean nothing.
  if (auto difference = ListDifference(wanted.dataset.files, "the loader", saved.dataset.files,
                                       "the saved state")) {
    return Fail(ErrorCode::kStale, "the files have changed: " + std::move(*difference));
  }
  Comparison dataset;
  const WalkOptions& was = saved.schedule.walk;
  const WalkOptions& walk = wanted.schedule.walk;
  dataset.Same("database name", saved.dataset.database_name, wanted.dataset.database_name);
  dataset.Same("view", ViewText(saved.dataset.view_digest), ViewText(wanted.dataset.view_digest));
  dataset.Same("record count", was.record_count, walk.record_count);
  dataset.Same("page size", saved.dataset.page_bytes, wanted.dataset.page_bytes);
  dataset.Same("transaction", saved.dataset.transaction_id, wanted.dataset.transaction_id);
  dataset.Same("root page", saved.dataset.root_page, wanted.dataset.root_page);
  LMDBIO_TRY_VOID(dataset.Result(ErrorCode::kStale));

  Comparison order;
  order.Same("order", NameOf(was.order, kOrderNames), NameOf(walk.order, kOrderNames));
  if (walk.order == Order::kShuffle) {
    order.Same("shuffle", NameOf(was.shuffle, kShuffleNames), NameOf(walk.shuffle, kShuffleNames));
  }
  // Only values that shape the sequence are compared. A value of 0 leaves the choice to the
  // library, which then takes the saved one.
  const bool uses_seed = walk.order == Order::kShuffle || wanted.schedule.reuse > 1;
  if (uses_seed) order.Same("seed", was.seed, walk.seed);
  order.Same("tail", NameOf(saved.schedule.tail, kTailNames),
             NameOf(wanted.schedule.tail, kTailNames));
  order.Same("reuse", saved.schedule.reuse, wanted.schedule.reuse);
  const bool deals = DealsOut(saved.schedule);
  if (ShufflesBlocks(walk.order, walk.shuffle) && walk.block_records > 0) {
    order.Same("block_records", was.block_records, walk.block_records);
  }
  if (deals && wanted.schedule.group_batches > 0) {
    order.Same("group_batches", saved.schedule.group_batches, wanted.schedule.group_batches);
  }
  if (deals) {
    order.Same("batch_size", saved.schedule.batch_size, wanted.schedule.batch_size);
  }
  LMDBIO_TRY_VOID(order.Result(ErrorCode::kInvalidArgument));

  StreamState next = saved;
  if (saved.schedule.batch_size != wanted.schedule.batch_size) {
    // Batches of the new size are cut from the saved position on.
    next.schedule.origin = {saved.next_batch,
                            Schedule(saved.schedule).Batch(saved.next_batch).first_position};
    next.schedule.batch_size = wanted.schedule.batch_size;
  }
  return next;
}

}  // namespace lmdbio::load
