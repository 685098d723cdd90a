#include "lmdbio/api/c/c_options.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/api/c/c_struct.h"

namespace lmdbio::api {
namespace {

using load::ViewDatabaseName;
using load::ViewField;
using load::ViewOrder;
using load::ViewSpec;

constexpr ViewOrder kOrders[] = {ViewOrder::kKeys, ViewOrder::kNumeric};

std::string TextOf(const char* text) { return text != nullptr ? text : ""; }

Result<std::vector<std::string>> KeysOf(std::string_view field, const lmdbio_key* keys,
                                        size_t count) {
  std::vector<std::string> to;
  if (keys == nullptr && count > 0) return BadField(field, "is NULL, but its count is not 0");
  for (const lmdbio_key& key : std::span(keys, count)) {
    if (key.data == nullptr && key.size > 0) {
      return BadField(field, fmt::format("the key at index {} is NULL", to.size()));
    }
    to.emplace_back(static_cast<const char*>(key.data), key.size);
  }
  return to;
}

// The index of a database among the sources of the view; 0 is its own.
size_t SourceOf(const lmdbio_view_field& field, ViewSpec& spec) {
  if (field.path == nullptr && field.database_name == nullptr) return 0;
  const ViewDatabaseName name{TextOf(field.path), TextOf(field.database_name)};
  const auto same = std::ranges::find_if(spec.others, [&](const ViewDatabaseName& other) {
    return other.path == name.path && other.database_name == name.database_name;
  });
  const auto at = static_cast<size_t>(same - spec.others.begin());
  if (same == spec.others.end()) spec.others.push_back(name);
  return at + 1;
}

Status TakeFields(const lmdbio_view& from, ViewSpec& to) {
  if (from.fields == nullptr && from.field_count > 0) {
    return BadField("view.fields", "is NULL, but field_count is not 0");
  }
  for (const lmdbio_view_field* const given : std::span(from.fields, from.field_count)) {
    const std::string name = fmt::format("view.fields[{}]", to.fields.size());
    if (given == nullptr) return BadField(name, "is NULL");
    LMDBIO_TRY(const lmdbio_view_field field,
               CompleteStruct(name, "LMDBIO_VIEW_FIELD_INIT", given));
    to.fields.push_back({TextOf(field.name), TextOf(field.key_template), SourceOf(field, to)});
  }
  return {};
}

Status TakeSubset(const lmdbio_view& from, ViewSpec& to) {
  if (from.subset != nullptr && from.subset_keys != nullptr) {
    return BadField("view.subset", "excludes view.subset_keys");
  }
  if (from.subset == nullptr && from.subset_keys == nullptr && from.subset_count > 0) {
    return BadField("view.subset", "is NULL, as subset_keys is, but subset_count is not 0");
  }
  if (from.subset != nullptr) {
    to.subset.emplace(from.subset, from.subset + from.subset_count);
  }
  if (from.subset_keys != nullptr) {
    LMDBIO_TRY(to.subset_keys, KeysOf("view.subset_keys", from.subset_keys, from.subset_count));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const ViewSpec>> ViewSpecOf(const lmdbio_options& options) {
  if (options.view == nullptr) return std::shared_ptr<const ViewSpec>();
  LMDBIO_TRY(const lmdbio_view from, CompleteStruct("view", "LMDBIO_VIEW_INIT", options.view));
  const auto to = std::make_shared<ViewSpec>();
  LMDBIO_TRY_VOID(Choose("view.order", from.order, kOrders, to->order));
  LMDBIO_TRY(to->exclude, KeysOf("view.exclude", from.exclude, from.exclude_count));
  LMDBIO_TRY_VOID(TakeFields(from, *to));
  to->start = from.start;
  if (from.has_count != 0) to->count = from.count;
  to->count_key = TextOf(from.count_key);
  LMDBIO_TRY_VOID(TakeSubset(from, *to));
  LMDBIO_TRY_VOID(load::CheckView(*to));
  return std::shared_ptr<const ViewSpec>(to);
}

void ViewResult::Fill(std::vector<std::string> field_names, uint64_t sample_count,
                      uint64_t digest) {
  names = std::move(field_names);
  name_pointers.clear();
  for (const std::string& name : names) name_pointers.push_back(name.c_str());
  info = {sample_count, names.size(), name_pointers.data(), digest};
}

}  // namespace lmdbio::api
