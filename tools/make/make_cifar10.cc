#include "tools/make/make_cifar10.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/source/small_file.h"
#include "tools/cli/as_text.h"
#include "tools/make/caffe_record.h"
#include "tools/make/database_load.h"

namespace lmdbio::tools {
namespace {

// The binary version of CIFAR-10. A file consists of records only; each is a label and three planes
// of 32 x 32 pixels.
constexpr int kSide = 32;
constexpr int kChannels = 3;
constexpr size_t kPixelBytes = size_t{kChannels} * kSide * kSide;
constexpr size_t kRecordBytes = 1 + kPixelBytes;
constexpr uint64_t kBatchBytesMax = uint64_t{1} << 30;  // the published files have 30 MB
constexpr int kLabelCount = 10;
constexpr int kKeyDigits = 5;

struct Cifar10Part {
  std::string database;
  std::vector<std::string> batches;
  uint64_t record_count = 0;
};

std::vector<Cifar10Part> Parts(const std::string& in, const std::string& out) {
  Cifar10Part train{out + "/cifar10_train_lmdb", {}};
  for (int batch = 1; batch <= 5; ++batch) {
    train.batches.push_back(fmt::format("{}/data_batch_{}.bin", in, batch));
  }
  return {std::move(train), Cifar10Part{out + "/cifar10_test_lmdb", {in + "/test_batch.bin"}}};
}

// Checks all files before the first record is written.
Status CountRecords(Cifar10Part& part) {
  for (const std::string& batch : part.batches) {
    std::error_code error;
    const uint64_t file_bytes = std::filesystem::file_size(batch, error);
    if (error) return Fail(ErrnoError(error.value(), batch, "cannot be examined"));
    if (file_bytes == 0 || file_bytes % kRecordBytes != 0) {
      return Fail(ErrorCode::kCorruption,
                  fmt::format("{}: {} bytes; expected a positive multiple of {}, the record size",
                              batch, file_bytes, kRecordBytes));
    }
    part.record_count += file_bytes / kRecordBytes;
  }
  if (std::error_code error; std::filesystem::exists(part.database, error)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} exists; remove it or give another OUT", part.database));
  }
  return {};
}

Status PutBatch(const std::string& batch, uint64_t& index, DatabaseLoad& load) {
  LMDBIO_TRY(const std::vector<std::byte> bytes, file::ReadSmallFile(batch, kBatchBytesMax));
  std::string_view rest = AsText(bytes);
  for (; rest.size() >= kRecordBytes; rest.remove_prefix(kRecordBytes)) {
    const int label = static_cast<unsigned char>(rest.front());
    if (label >= kLabelCount) {
      return Fail(
          ErrorCode::kCorruption,
          fmt::format("{}: record at byte {}: label {} is out of range; CIFAR-10 has {} labels",
                      batch, bytes.size() - rest.size(), label, kLabelCount));
    }
    const RawImage image{kChannels, kSide, kSide, rest.substr(1, kPixelBytes)};
    LMDBIO_TRY_VOID(
        load.Put(DecimalKey(index, kKeyDigits), RawDatum(image, label, EncodedField::kLeftOut)));
    ++index;
  }
  return {};
}

Result<nlohmann::ordered_json> LoadPart(const Invocation& invocation, const Cifar10Part& part) {
  LMDBIO_TRY(DatabaseLoad load,
             DatabaseLoad::Create(DatabaseOptions(invocation, part.database), part.record_count));
  // Keys count on from one batch to the next, as in convert_cifar_data.
  uint64_t index = 0;
  for (const std::string& batch : part.batches) LMDBIO_TRY_VOID(PutBatch(batch, index, load));
  return load.Finish();
}

void Describe(po::options_description_easy_init options) {
  // convert_cifar_data commits once, so this is the default here, too.
  DescribeDatabase(options, 0);
}

Status Run(const Invocation& invocation) {
  const std::string& out = invocation.operand("OUT");
  std::vector<Cifar10Part> parts = Parts(invocation.operand("DIR"), out);
  // Both parts are checked first, so a missing test file does not leave a training database alone.
  for (Cifar10Part& part : parts) LMDBIO_TRY_VOID(CountRecords(part));
  std::error_code error;
  std::filesystem::create_directory(out, error);
  if (error) return Fail(ErrnoError(error.value(), out, "cannot be created"));
  nlohmann::ordered_json outcome;
  LMDBIO_TRY(outcome["train"], LoadPart(invocation, parts[0]));
  LMDBIO_TRY(outcome["test"], LoadPart(invocation, parts[1]));
  return invocation.Report(outcome);
}

}  // namespace

Command Cifar10Command() {
  return {"cifar10", "DIR OUT",
          "Loads the binary CIFAR-10 batches of DIR into OUT/cifar10_train_lmdb and "
          "OUT/cifar10_test_lmdb.",
          Describe, Run};
}

}  // namespace lmdbio::tools
