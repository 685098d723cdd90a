// lmdbio/load/view/view_spec.h - the description of a view: which records make which sample.
//
// Source: docs/views.md.
#ifndef LMDBIO_LOAD_VIEW_VIEW_SPEC_H_
#define LMDBIO_LOAD_VIEW_VIEW_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::load {

enum class ViewOrder {
  kKeys,     // samples in the order of their keys
  kNumeric,  // keys are decimal numbers, and samples are in the order of these numbers
};

// A record of each sample.
struct ViewField {
  std::string name;
  std::string key_template;  // of its keys (key_template.h); empty: joined by equal keys
  size_t source = 0;         // 0: the view's own database; else others[source - 1]
};

// A database beside the view's own.
struct ViewDatabaseName {
  std::string path;           // empty: the file of the view's own database
  std::string database_name;  // empty: the main database
};

// All default: every record is a sample, in key order.
struct ViewSpec {
  ViewOrder order = ViewOrder::kKeys;
  std::vector<std::string> exclude;  // keys of records that are no samples, if they are there
  // The records of each sample; empty: one of the view's own database, without a name.
  std::vector<ViewField> fields;
  std::vector<ViewDatabaseName> others;
  // With templates: the number of the first sample, and the number of samples. Without a count:
  // all numbers from `start` on that are there.
  uint64_t start = 0;
  std::optional<uint64_t> count;
  std::string count_key;  // of a record that begins with the count
  // Chosen samples, in this order: their numbers, from 0, or their keys. With templates a key is
  // the number in the template, in decimal digits.
  std::optional<std::vector<uint64_t>> subset;
  std::optional<std::vector<std::string>> subset_keys;

  bool has_templates() const { return !fields.empty() && !fields.front().key_template.empty(); }
  size_t field_count() const { return fields.empty() ? 1 : fields.size(); }
};

// The names of the records of each sample: one empty name without fields, or without a view.
// spec  null: none
std::vector<std::string> FieldNamesOf(const ViewSpec* spec);

// Checks everything that needs no database. Errors: kInvalidArgument  names the member
Status CheckView(const ViewSpec& spec);

// Of the whole description, for ranks that compare it.
uint64_t DigestOf(const ViewSpec& spec);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_VIEW_SPEC_H_
