#include "tools/make/make_synthetic.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/make/database_load.h"
#include "tools/make/synthetic_records.h"

namespace lmdbio::tools {
namespace {

// The node of a record has 32 bits for the size of the value. 511 bytes is LMDB's default limit of
// keys.
constexpr uint64_t kValueBytesMax = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kKeyBytesMax = 511;
constexpr double kAddressSpaceBytes = 0x1.0p47;  // liblmdb maps the whole file

struct SyntheticJob {
  uint64_t count = 0;
  ValueSizes sizes;
  uint64_t seed = 0;
  uint64_t key_digits = 0;
  bool is_random_order = false;
};

void Describe(po::options_description_easy_init options) {
  const auto text = [](const char* shape) { return po::value<std::string>()->value_name(shape); };
  options("count", po::value<Whole>()->required()->value_name("N"), "number of records");
  options("value-size", po::value<Whole>()->value_name("BYTES"), "size of every value");
  options("value-size-uniform", text("MIN:MAX"), "uniformly distributed sizes of MIN to MAX bytes");
  options("value-size-lognormal", text("MEDIAN:SIGMA"),
          "log-normal sizes: the median in bytes, and the standard deviation of the logarithm");
  options("key-digits", po::value<Whole>()->value_name("N"),
          "number of digits of the decimal keys (default: 8, more if the count needs it)");
  options("order", po::value<std::string>()->default_value("sequential")->value_name("ORDER"),
          "order in which records are put: sequential (key order) or random");
  options("seed", po::value<Whole>()->default_value(Whole{1})->value_name("N"),
          "seed of contents, sizes and order");
  DescribeDatabase(options, 1000);
}

// Splits "A:B".
std::pair<std::string_view, std::string_view> SplitPair(std::string_view text,
                                                        std::string_view what) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw Misuse(fmt::format("{} '{}' is not of the form A:B", what, text));
  }
  return {text.substr(0, colon), text.substr(colon + 1)};
}

double ParseSigma(std::string_view text) {
  double sigma = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sigma);
  // With a larger sigma the sizes of ordinary samples exceed the limit of LMDB.
  if (error != std::errc() || end != text.data() + text.size() || !(sigma >= 0 && sigma <= 10)) {
    throw Misuse(
        fmt::format("--value-size-lognormal: sigma '{}' is not a number from 0 to 10", text));
  }
  return sigma;
}

uint64_t CheckedValueBytes(uint64_t value_bytes) {
  if (value_bytes <= kValueBytesMax) return value_bytes;
  throw Misuse(
      fmt::format("a value size of {} bytes is too large; LMDB takes less than 2^32", value_bytes));
}

ValueSizes ParseSizes(const Invocation& invocation) {
  const int given = invocation.has("value-size") + invocation.has("value-size-uniform") +
                    invocation.has("value-size-lognormal");
  if (given != 1)
    throw Misuse(
        "give exactly one of --value-size, --value-size-uniform and --value-size-lognormal");
  ValueSizes sizes;
  if (invocation.has("value-size")) {
    sizes.min_bytes = CheckedValueBytes(invocation.whole("value-size"));
  } else if (invocation.has("value-size-uniform")) {
    const auto [min, max] =
        SplitPair(invocation.option<std::string>("value-size-uniform"), "--value-size-uniform");
    sizes.kind = ValueSizes::SizeDistribution::kUniform;
    sizes.min_bytes = CheckedValueBytes(ParseWhole(min, "--value-size-uniform"));
    sizes.max_bytes = CheckedValueBytes(ParseWhole(max, "--value-size-uniform"));
    if (sizes.min_bytes > sizes.max_bytes) throw Misuse("--value-size-uniform: MIN is above MAX");
  } else {
    const auto [median, sigma] =
        SplitPair(invocation.option<std::string>("value-size-lognormal"), "--value-size-lognormal");
    sizes.kind = ValueSizes::SizeDistribution::kLogNormal;
    sizes.median_bytes =
        static_cast<double>(CheckedValueBytes(ParseWhole(median, "--value-size-lognormal")));
    if (sizes.median_bytes < 1)
      throw Misuse("--value-size-lognormal: the median must be at least 1");
    sizes.sigma = ParseSigma(sigma);
  }
  return sizes;
}

uint64_t ParseKeyDigits(const Invocation& invocation, uint64_t count) {
  constexpr uint64_t kDefaultDigits = 8;
  // The keys are 0 to count - 1. Equal lengths make the byte order of LMDB the numeric order.
  const uint64_t needed_digits = std::to_string(count - 1).size();
  if (!invocation.has("key-digits")) return std::max(kDefaultDigits, needed_digits);
  const uint64_t digits = invocation.whole("key-digits");
  if (digits < needed_digits) {
    throw Misuse(
        fmt::format("--key-digits: {} records need keys of {} digits", count, needed_digits));
  }
  if (digits > kKeyBytesMax) {
    throw Misuse(fmt::format("--key-digits {} is out of range; LMDB takes at most {}", digits,
                             kKeyBytesMax));
  }
  return digits;
}

bool ParseOrder(const Invocation& invocation) {
  const std::string& order = invocation.option<std::string>("order");
  if (order != "sequential" && order != "random") {
    throw Misuse(fmt::format("--order takes sequential or random, not '{}'", order));
  }
  // MDB_APPEND takes keys in ascending order only.
  if (order == "random" && invocation.has("append")) {
    throw Misuse("--append needs --order sequential");
  }
  return order == "random";
}

SyntheticJob ParseJob(const Invocation& invocation) {
  SyntheticJob job;
  job.count = invocation.whole("count");
  if (job.count == 0) throw Misuse("--count 0 is out of range; give at least 1");
  job.sizes = ParseSizes(invocation);
  // An estimate from the mean size, in floating point, because the product may exceed 64 bits.
  if (static_cast<double>(job.count) * std::max(1.0, MeanValueBytes(job.sizes)) >
      kAddressSpaceBytes) {
    throw Misuse("--count times the value size is more than LMDB can map, 2^47 bytes");
  }
  job.seed = invocation.whole("seed");
  job.key_digits = ParseKeyDigits(invocation, job.count);
  job.is_random_order = ParseOrder(invocation);
  return job;
}

Status Load(const SyntheticJob& job, DatabaseLoad& load) {
  // Order, size and content of a record depend on the seed and its number alone. Nothing is kept,
  // so memory does not grow with the number of records.
  const Permutation permutation(job.seed, job.count);
  std::string key;
  std::vector<std::byte> value;
  for (uint64_t position = 0; position < job.count; ++position) {
    const uint64_t record = job.is_random_order ? permutation(position) : position;
    key.clear();
    fmt::format_to(std::back_inserter(key), "{:0{}}", record, job.key_digits);
    value.resize(SyntheticValueBytes(job.sizes, job.seed, record));
    FillSyntheticValue(job.seed, record, value);
    LMDBIO_TRY_VOID(load.Put(key, value));
  }
  return {};
}

Status Run(const Invocation& invocation) {
  const SyntheticJob job = ParseJob(invocation);
  LMDBIO_TRY(
      DatabaseLoad load,
      DatabaseLoad::Create(DatabaseOptions(invocation, invocation.operand("OUT")), job.count));
  LMDBIO_TRY_VOID(Load(job, load));
  LMDBIO_TRY(const auto outcome, load.Finish());
  return invocation.Report(outcome);
}

}  // namespace

Command SyntheticCommand() {
  return {"synthetic", "OUT",
          "Stores pseudo-random records; the first 8 bytes of each are its number.", Describe, Run};
}

}  // namespace lmdbio::tools
