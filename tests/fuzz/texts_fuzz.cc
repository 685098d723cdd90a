// tests/fuzz/texts_fuzz.cc - any text that a user or a launcher gives: variables of a launcher,
// lists of hosts and cores, placements of threads, descriptions of views.
//
// Input: byte 0 chooses the kind of text. Variables are lines NAME=VALUE.
// Oracle: the sanitizers; a text is refused with one line, or its values are in their ranges; a
// list of cores is the same after it was written and read again. Memory is bounded by the size of
// the text and the largest number of cores, 2^20.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/load/view/key_template.h"
#include "lmdbio/load/view/view_spec.h"
#include "lmdbio/ranks/launcher/launch.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/input_parts.h"

namespace lmdbio::test {
namespace {

void ReadVariables(std::string_view text) {
  std::map<std::string, std::string, std::less<>> variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t equals = std::min(line.find('='), line.size());
    variables[std::string(line.substr(0, equals))] = line.substr(std::min(equals + 1, line.size()));
  }
  const auto launch = ranks::ReadLaunch([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
  if (!launch) return CheckMessage(launch.error());
  LMDBIO_CHECK(launch->rank >= 0 && launch->rank < launch->size && launch->limit.count() > 0);
  if (launch->size == 1) return;
  LMDBIO_CHECK(!launch->host.empty() && launch->first_port > 0 && launch->port_count > 0);
  LMDBIO_CHECK(launch->first_port + launch->port_count - 1 <= 65535);
}

void ReadHosts(std::string_view text) {
  const auto host = ranks::FirstHostOf(text);
  if (!host) return CheckMessage(host.error());
  LMDBIO_CHECK(!host->empty() && host->size() <= text.size());
}

void ReadCores(std::string_view text) {
  const auto cores = ParseCores(text);
  if (!cores) return CheckMessage(cores.error());
  LMDBIO_CHECK(!cores->empty() && cores->front() >= 0 && cores->back() < 1 << 20);
  LMDBIO_CHECK(std::ranges::adjacent_find(*cores, std::ranges::greater_equal()) == cores->end());
  const auto again = ParseCores(CoresText(*cores));
  LMDBIO_CHECK(again.has_value() && *again == *cores);
}

// Two sockets of two cores with two threads each.
HostCores SmallHost(uint8_t forbidden) {
  HostCores cores;
  cores.count = 8;
  for (int number = 0; number < cores.count; ++number) {
    cores.topology.push_back({number, number / 2, number / 4});
    if ((forbidden >> number & 1) == 0) cores.allowed.push_back(number);
  }
  if (cores.allowed.empty()) cores.allowed = {0};
  return cores;
}

void Place(InputParts in) {
  const HostCores cores = SmallHost(in.Take<uint8_t>());
  CoreShare share;
  share.ranks_on_host = static_cast<int>(1 + in.TakeBelow(4));
  share.rank_on_host = static_cast<int>(in.TakeBelow(static_cast<uint64_t>(share.ranks_on_host)));
  share.ranks_on_cores = share.ranks_on_host;
  share.rank_on_cores = share.rank_on_host;
  const auto placement = PlaceThreads(in.text_rest(), cores, share);
  if (!placement) return CheckMessage(placement.error());
  for (const CoreList& list : {placement->compute, placement->input, placement->sync}) {
    LMDBIO_CHECK(std::ranges::includes(cores.allowed, list));
    LMDBIO_CHECK(std::ranges::adjacent_find(list, std::ranges::greater_equal()) == list.end());
  }
  LMDBIO_CHECK(placement->Describe().find('\n') == std::string::npos);
}

load::ViewField FieldFrom(InputParts& in) {
  load::ViewField field;
  field.name = in.TakeText();
  if (in.TakeBelow(2) == 0) field.key_template = in.TakeText();
  field.source = in.TakeBelow(4);
  return field;
}

void DescribeView(InputParts in) {
  load::ViewSpec spec;
  spec.order = static_cast<load::ViewOrder>(in.TakeBelow(2));
  for (uint64_t i = in.TakeBelow(3); i > 0; --i) spec.exclude.push_back(in.TakeText());
  for (uint64_t i = in.TakeBelow(4); i > 0; --i) spec.others.push_back({in.TakeText(), ""});
  for (uint64_t i = in.TakeBelow(5); i > 0; --i) spec.fields.push_back(FieldFrom(in));
  spec.start = in.TakeScaled();
  if (in.TakeBelow(2) == 0) spec.count = in.TakeScaled();
  if (in.TakeBelow(4) == 0) spec.count_key = in.TakeText();
  if (in.TakeBelow(4) == 0) spec.subset = std::vector<uint64_t>(3, in.TakeScaled());
  if (in.TakeBelow(4) == 0) spec.subset_keys = std::vector<std::string>(2, in.TakeText());
  const Status checked = load::CheckView(spec);
  LMDBIO_CHECK(load::DigestOf(spec) == load::DigestOf(load::ViewSpec(spec)));
  if (!checked) return CheckMessage(checked.error());
  LMDBIO_CHECK(load::FieldNamesOf(&spec).size() == spec.field_count());
  for (const load::ViewField& field : spec.fields) {
    LMDBIO_CHECK(field.source <= spec.others.size());
    LMDBIO_CHECK(field.key_template.empty() != spec.has_templates());
  }
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  // Ends where its memory ends, so that the sanitizers see a read behind it.
  const Bytes input = std::as_bytes(std::span(data, size)).subspan(1);
  const std::vector<std::byte> exact(input.begin(), input.end());
  const test::InputParts rest{Bytes(exact)};
  switch (data[0] % 5) {
    case 0:
      test::ReadVariables(rest.text_rest());
      break;
    case 1:
      test::ReadHosts(rest.text_rest());
      break;
    case 2:
      test::ReadCores(rest.text_rest());
      break;
    case 3:
      test::Place(rest);
      break;
    default:
      test::DescribeView(rest);
  }
  return 0;
}
