// tests/fuzz/provenance_fuzz.cc - any bytes as a provenance file, and round trips through one.
//
// Input: byte 0 chooses the kind of input. The rest is a provenance file, a list of numbers, or the
// description of a load. Length and checksum of a provenance file are corrected, so that the input
// reaches the decoder.
// Oracle: the sanitizers; encoded data must decode to the same.
#include <algorithm>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/number_codec.h"
#include "lmdbio/file/provenance/provenance.h"
#include "lmdbio/file/provenance/sealed_file.h"

namespace lmdbio::test {
namespace {

using file::Fingerprint;
using file::Layout;
using file::LayoutBuilder;
using file::Provenance;

constexpr uint64_t kRecordsMax = 20'000;  // limits the time of an input; the library has no limit

// Little-endian numbers from the input, as in the files; zeros behind its end.
using Input = file::ByteReader;

bool SameLayout(const Layout& a, const Layout& b) {
  if (a.record_count() != b.record_count()) return false;
  for (uint64_t i = 0; i < a.record_count(); ++i) {
    if (a.Value({i}) != b.Value({i}) || !(a.Key({i}) == b.Key({i}))) return false;
  }
  return true;
}

// Both kinds of file that can hold `layout` must decode to it.
void CheckExactRoundTrip(const Fingerprint& fingerprint, const Layout& layout) {
  file::ExactEncoder encoder(fingerprint.page_format);
  LMDBIO_CHECK(layout.Expand(encoder).has_value());
  const auto file = file::EncodeExactLayout(fingerprint, layout.record_count(), encoder.Finish());
  const auto decoded = Provenance::Decode(file);
  LMDBIO_CHECK(decoded.has_value());
  LayoutBuilder builder;
  LMDBIO_CHECK(decoded->Expand(builder).has_value());
  LMDBIO_CHECK(SameLayout(builder.Finish(), layout));
}

void DecodeFile(Bytes input) {
  std::vector<std::byte> file(input.begin(), input.end());
  (void)Provenance::Decode(file);
  file::Reseal(file);
  const auto decoded = Provenance::Decode(file);
  if (!decoded || decoded->record_count() > kRecordsMax) return;
  LayoutBuilder builder;
  if (!decoded->Expand(builder)) return;
  const Layout layout = builder.Finish();
  LMDBIO_CHECK(layout.record_count() == decoded->record_count());
  CheckExactRoundTrip(decoded->fingerprint(), layout);
}

void RoundTripNumbers(Input in) {
  const uint32_t shift = in.Get<uint8_t>() % 64;
  std::vector<uint64_t> numbers;
  while (!in.at_end()) numbers.push_back(uint64_t{in.Get<uint32_t>()} << shift);
  file::ByteWriter out;
  file::EncodeNumbers(numbers, out);
  file::ByteReader again(out.bytes());
  std::vector<uint64_t> decoded;
  LMDBIO_CHECK(file::DecodeNumbers(again, numbers.size(), decoded).has_value());
  LMDBIO_CHECK(again.at_end() && decoded == numbers);
  for (const uint64_t n : numbers) LMDBIO_CHECK(file::UnZigZag(file::ZigZag(n)) == n);
}

// Any list of sizes is a load. Both kinds of provenance file must decode to its layout.
void RoundTripLoad(Input in) {
  const uint32_t choice = in.Get<uint8_t>();
  Fingerprint fingerprint;
  fingerprint.page_format = {(choice & 1) == 0 ? file::DataVersion::k1 : file::DataVersion::k3,
                             512U << ((choice >> 1) % 4)};
  const uint32_t interval = 1 + in.Get<uint8_t>();
  const uint32_t unit = 1 + in.Get<uint8_t>();
  std::vector<uint32_t> key_bytes, value_bytes;
  while (!in.at_end()) {
    key_bytes.push_back(1 + in.Get<uint8_t>() % 100);
    value_bytes.push_back(in.Get<uint8_t>() * unit);
  }
  file::OrderedLoad load{.record_count = key_bytes.size(),
                         .commit_interval_records = interval,
                         .key_bytes = file::SizeColumn::Each(key_bytes),
                         .value_bytes = file::SizeColumn::Each(value_bytes),
                         .put_mode = static_cast<file::PutMode>((choice >> 3) % 2)};
  LayoutBuilder builder;
  const auto totals = file::Replay(fingerprint.page_format, load, builder);
  if (!totals) return;
  const Layout layout = builder.Finish();
  fingerprint.last_page = totals->last_page;
  fingerprint.record = {.depth = static_cast<uint16_t>(totals->depth),
                        .branch_pages = totals->branch_pages,
                        .leaf_pages = totals->leaf_pages,
                        .overflow_pages = totals->overflow_pages,
                        .entry_count = load.record_count,
                        .root = totals->root};
  const auto decoded = Provenance::Decode(file::EncodeOrderedLoad(fingerprint, load, *totals));
  LMDBIO_CHECK(decoded.has_value());
  LayoutBuilder again;
  LMDBIO_CHECK(decoded->Expand(again).has_value());
  LMDBIO_CHECK(SameLayout(again.Finish(), layout));
  CheckExactRoundTrip(fingerprint, layout);
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  const Bytes rest = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 4 == 1) {
    test::RoundTripNumbers(test::Input(rest));
  } else if (data[0] % 4 == 2) {
    test::RoundTripLoad(test::Input(rest));
  } else {
    test::DecodeFile(rest);
  }
  return 0;
}
