#include "tools/make/make_digits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/source/small_file.h"
#include "tools/cli/as_text.h"
#include "tools/make/caffe_record.h"
#include "tools/make/database_load.h"
#include "tools/make/digits_data.h"
#include "tools/make/gunzip.h"

namespace lmdbio::tools {
namespace {

constexpr int kSide = 8;
constexpr size_t kPixelCount = size_t{kSide} * kSide;
constexpr int kPixelMax = 16;
constexpr int kLabelMax = 9;
constexpr int kKeyDigits = 5;
constexpr uint64_t kTableBytesMax = uint64_t{1} << 30;
// Adjacent digits of the table are often by one writer. The parts interleave, so that both contain
// digits of every writer.
constexpr uint64_t kTestStride = 6;

struct Digit {
  std::array<char, kPixelCount> pixels;  // row by row
  int label = 0;
};

Result<std::string> ReadTable(const Invocation& invocation) {
  if (!invocation.has("data")) {
    return Gunzip({reinterpret_cast<const char*>(kDigitsData), kDigitsDataBytes});
  }
  const std::string& path = invocation.option<std::string>("data");
  LMDBIO_TRY(const std::vector<std::byte> bytes, file::ReadSmallFile(path, kTableBytesMax));
  Result<std::string> table = Gunzip(AsText(bytes));
  if (!table) return Fail(std::move(table).error().Within(path));
  return table;
}

// Removes a number and the comma after it from `line`. Returns -1 unless the number is 0 to `max`.
int TakeNumber(std::string_view& line, int max) {
  int number = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || number < 0 || number > max) return -1;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (line.empty()) return number;
  if (line.front() != ',' || line.size() == 1) return -1;
  line.remove_prefix(1);
  return number;
}

Result<Digit> ParseDigit(std::string_view line, uint64_t index) {
  Digit digit;
  bool is_good = true;
  for (char& pixel : digit.pixels) {
    const int number = TakeNumber(line, kPixelMax);
    is_good = is_good && number >= 0;
    pixel = static_cast<char>(number);
  }
  digit.label = TakeNumber(line, kLabelMax);
  if (is_good && digit.label >= 0 && line.empty()) return digit;
  return Fail(
      ErrorCode::kCorruption,
      fmt::format("line {}: not 64 pixels from 0 to 16 and a label from 0 to 9", index + 1));
}

// Whether the record `index` belongs to `part`.
bool Holds(std::string_view part, uint64_t index) {
  if (part == "all") return true;
  const bool is_for_test = index % kTestStride == kTestStride - 1;
  return is_for_test == (part == "test");
}

Status Load(std::string_view table, std::string_view part, DatabaseLoad& load) {
  bool is_empty = true;
  for (uint64_t index = 0; !table.empty(); ++index) {
    const size_t end = std::min(table.find('\n'), table.size());
    LMDBIO_TRY(const Digit digit, ParseDigit(table.substr(0, end), index));
    table.remove_prefix(std::min(end + 1, table.size()));
    // The key is the line number in the whole table, so a digit has the same key in each part.
    if (!Holds(part, index)) continue;
    is_empty = false;
    const RawImage image{1, kSide, kSide, {digit.pixels.data(), digit.pixels.size()}};
    LMDBIO_TRY_VOID(load.Put(DecimalKey(index, kKeyDigits),
                             RawDatum(image, digit.label, EncodedField::kLeftOut)));
  }
  if (!is_empty) return {};
  return Fail(ErrorCode::kInvalidArgument, fmt::format("the table has no record of part {}", part));
}

void Describe(po::options_description_easy_init options) {
  options("data", po::value<std::string>()->value_name("FILE"),
          "use this table instead of the built-in one (65 numbers a line, may be gzipped)")(
      "part", po::value<std::string>()->value_name("PART")->default_value("all"),
      "all, test (every sixth record, from the sixth on) or train (the others); each record keeps "
      "its key");
  DescribeDatabase(options, 1000);
}

Status Run(const Invocation& invocation) {
  const std::string& part = invocation.option<std::string>("part");
  if (part != "all" && part != "train" && part != "test") {
    throw Misuse(fmt::format("--part takes all, train or test, not '{}'", part));
  }
  LMDBIO_TRY(const std::string table, ReadTable(invocation));
  if (table.empty()) return Fail(ErrorCode::kInvalidArgument, "the table of digits is empty");
  LMDBIO_TRY(DatabaseLoad load,
             DatabaseLoad::Create(DatabaseOptions(invocation, invocation.operand("OUT")), 0));
  LMDBIO_TRY_VOID(Load(table, part, load));
  LMDBIO_TRY(const auto outcome, load.Finish());
  return invocation.Report(outcome);
}

}  // namespace

Command DigitsCommand() {
  return {"digits", "OUT", "Stores 1,797 built-in handwritten digits of 8 x 8 pixels.", Describe,
          Run};
}

}  // namespace lmdbio::tools
