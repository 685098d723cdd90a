#include "lmdbio/load/view/view_spec.h"

#include <set>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/load/view/key_template.h"

namespace lmdbio::load {
namespace {

// More samples than any set has. Sums below it do not overflow.
constexpr uint64_t kNumberMax = uint64_t{1} << 62;

tl::unexpected<Error> BadView(std::string why) {
  return Fail(ErrorCode::kInvalidArgument, "view: " + std::move(why));
}

Status CheckFields(const ViewSpec& spec) {
  std::set<std::string_view> names;
  for (const ViewField& field : spec.fields) {
    if (field.name.empty()) return BadView("a field has no name");
    if (!names.insert(field.name).second) {
      return BadView(fmt::format("two fields have the name \"{}\"", field.name));
    }
    if (field.source > spec.others.size()) {
      return BadView(fmt::format("field \"{}\": source {} is out of range; expected 0 to {}",
                                 field.name, field.source, spec.others.size()));
    }
    if (field.key_template.empty() == spec.has_templates()) {
      return BadView(
          fmt::format("field \"{}\" {} a key template, and field \"{}\" {}: fields are joined "
                      "either by numbers "
                      "or by keys",
                      spec.fields.front().name, spec.has_templates() ? "has" : "has not",
                      field.name, spec.has_templates() ? "has not" : "has"));
    }
    if (field.key_template.empty()) continue;
    if (auto parsed = KeyTemplate::Parse(field.key_template); !parsed) {
      return BadView(fmt::format("field \"{}\": {}", field.name, parsed.error().message()));
    }
  }
  return {};
}

// Feeds texts and numbers into one digest. Lengths go in front, so parts cannot be confused.
class Digester {
 public:
  void Add(std::string_view text) {
    Add(text.size());
    digest_ = TextDigest(text, digest_);
  }
  void Add(uint64_t number) {
    char bytes[sizeof number];
    for (size_t i = 0; i < sizeof number; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
    digest_ = TextDigest({bytes, sizeof number}, digest_);
  }
  uint64_t digest() const { return digest_; }

 private:
  uint64_t digest_ = 0;
};

}  // namespace

std::vector<std::string> FieldNamesOf(const ViewSpec* spec) {
  if (spec == nullptr || spec->fields.empty()) return {""};
  std::vector<std::string> names;
  for (const ViewField& field : spec->fields) names.push_back(field.name);
  return names;
}

Status CheckView(const ViewSpec& spec) {
  LMDBIO_TRY_VOID(CheckFields(spec));
  const bool has_count = spec.count || !spec.count_key.empty();
  if (!spec.has_templates() && (has_count || spec.start > 0)) {
    return BadView(
        "start and count need fields with a place for the number, as in "
        "\"image-{:09d}\"");
  }
  if (spec.count && !spec.count_key.empty()) {
    return BadView("a count and the key of a count record exclude each other");
  }
  if (spec.start > kNumberMax || spec.count.value_or(0) > kNumberMax) {
    return BadView(fmt::format("start {} or count {} is out of range; expected at most {}",
                               spec.start, spec.count.value_or(0), kNumberMax));
  }
  if (spec.subset && spec.subset_keys) {
    return BadView("a subset by numbers and a subset by keys exclude each other");
  }
  return {};
}

uint64_t DigestOf(const ViewSpec& spec) {
  Digester all;
  all.Add(static_cast<uint64_t>(spec.order));
  all.Add(spec.exclude.size());
  for (const std::string& key : spec.exclude) all.Add(key);
  all.Add(spec.fields.size());
  for (const ViewField& field : spec.fields) {
    all.Add(field.name);
    all.Add(field.key_template);
    all.Add(field.source);
  }
  all.Add(spec.others.size());
  for (const ViewDatabaseName& other : spec.others) {
    all.Add(other.path);
    all.Add(other.database_name);
  }
  all.Add(spec.start);
  all.Add(spec.count ? 1 : 0);
  all.Add(spec.count.value_or(0));
  all.Add(spec.count_key);
  all.Add(spec.subset ? spec.subset->size() + 1 : 0);
  if (spec.subset) {
    for (const uint64_t number : *spec.subset) all.Add(number);
  }
  all.Add(spec.subset_keys ? spec.subset_keys->size() + 1 : 0);
  if (spec.subset_keys) {
    for (const std::string& key : *spec.subset_keys) all.Add(key);
  }
  return all.digest();
}

}  // namespace lmdbio::load
