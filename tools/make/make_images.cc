#include "tools/make/make_images.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/source/small_file.h"
#include "tools/cli/as_text.h"
#include "tools/make/caffe_record.h"
#include "tools/make/database_load.h"
#include "tools/make/image_decoder.h"
#include "tools/make/image_list.h"

namespace lmdbio::tools {
namespace {

// The keys of convert_imageset: eight digits, an underscore and the path. LMDB takes keys of 511
// bytes at most.
constexpr int kKeyDigits = 8;
constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;
constexpr size_t kKeyBytesMax = 511;

struct ImagesJob {
  std::string root;
  bool keeps_files = false;  // --encoded
  ImageColors colors = ImageColors::kBgr;
  std::optional<ImageSize> resize;
};

void Describe(po::options_description_easy_init options) {
  options("encoded", "store the unchanged image files, not their pixels");
  options("resize", po::value<std::string>()->value_name("WxH"), "scale every image to this size");
  options("gray", "store one channel instead of blue, green and red");
  options("shuffle", "store the images in random order (default: by label and name)");
  options("seed", po::value<Whole>()->default_value(Whole{1})->value_name("N"),
          "seed of --shuffle");
  DescribeDatabase(options, 1000);
}

ImageSize ParseSize(std::string_view text) {
  constexpr uint64_t kSideMax = 65535;
  const size_t times = text.find('x');
  if (times == std::string_view::npos) {
    throw Misuse(fmt::format("--resize '{}' is not of the form WxH", text));
  }
  const uint64_t width = ParseWhole(text.substr(0, times), "--resize: width");
  const uint64_t height = ParseWhole(text.substr(times + 1), "--resize: height");
  if (width == 0 || height == 0 || width > kSideMax || height > kSideMax) {
    throw Misuse(
        fmt::format("--resize '{}' is out of range; each side has 1 to {} pixels", text, kSideMax));
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

ImagesJob ParseJob(const Invocation& invocation) {
  ImagesJob job;
  job.root = invocation.operand("ROOT");
  job.keeps_files = invocation.has("encoded");
  if (invocation.has("gray")) job.colors = ImageColors::kGray;
  if (invocation.has("resize")) job.resize = ParseSize(invocation.option<std::string>("resize"));
  if (job.keeps_files && (job.resize || job.colors == ImageColors::kGray)) {
    throw Misuse("--encoded stores unchanged files; it excludes --resize and --gray");
  }
  return job;
}

// The Datum of one image. Files that are stored unchanged are decoded, too, so that a broken file
// is found here and not during training.
Result<std::string> MakeDatum(const ImagesJob& job, const LabelledFile& file) {
  const std::string path = job.root + "/" + file.path;
  LMDBIO_TRY(const std::vector<std::byte> bytes, file::ReadSmallFile(path, kImageBytesMax));
  Result<DecodedImage> image = DecodeImage(path, AsText(bytes), job.colors, job.resize);
  if (!image) return Fail(std::move(image).error().Within(path));
  if (job.keeps_files) return EncodedDatum(AsText(bytes), file.label);
  const RawImage raw{image->channels, image->size.height, image->size.width, image->planes};
  return RawDatum(raw, file.label, EncodedField::kWritten);
}

// Stores the images. Warns about each image that cannot be stored.
// Returns: the number of skipped images
Result<uint64_t> Load(const Invocation& invocation, const ImagesJob& job, const ImageList& list,
                      DatabaseLoad& load) {
  uint64_t skipped_count = 0;
  for (size_t index = 0; index < list.files.size(); ++index) {
    const LabelledFile& file = list.files[index];
    // As in convert_imageset, the number counts skipped images too.
    const std::string key = DecimalKey(index, kKeyDigits) + "_" + file.path;
    // A long name is skipped here, because the writer would end the load for it.
    Result<std::string> datum =
        key.size() <= kKeyBytesMax
            ? MakeDatum(job, file)
            : Fail(ErrorCode::kInvalidArgument,
                   fmt::format("{}: the name is too long for a key", file.path));
    if (datum) {
      LMDBIO_TRY_VOID(load.Put(key, *datum));
    } else {
      invocation.Warn(datum.error().message() + "; skipped");
      ++skipped_count;
    }
  }
  if (skipped_count == list.files.size()) {
    return Fail(ErrorCode::kNotFound, fmt::format("{}: no image could be stored", job.root));
  }
  return skipped_count;
}

Status WriteLabels(const std::string& path, const ImageList& list) {
  std::string text;
  for (const std::string& label : list.labels) text += label + "\n";
  return file::WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

std::string LabelsPath(std::string out) {
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out + ".labels.txt";
}

Status Run(const Invocation& invocation) {
  const ImagesJob job = ParseJob(invocation);
  const std::string& out = invocation.operand("OUT");
  const std::string labels_path = LabelsPath(out);
  // Checked before the load, which may take hours. The file is written after it, so a failed load
  // leaves none.
  if (std::error_code error; std::filesystem::exists(labels_path, error)) {
    return Fail(ErrorCode::kInvalidArgument,
                labels_path + " exists; remove it or give another OUT");
  }
  LMDBIO_TRY(ImageList list, ListImages(job.root));
  if (list.unlabelled_count != 0) {
    invocation.Warn(fmt::format("{}: {} files outside the folders have no label; skipped", job.root,
                                list.unlabelled_count));
  }
  // The numbers of the keys are given after shuffling, so key order is the shuffled order.
  if (invocation.has("shuffle")) Shuffle(list.files, invocation.whole("seed"));
  LMDBIO_TRY(DatabaseLoad load,
             DatabaseLoad::Create(DatabaseOptions(invocation, out), list.files.size()));
  LMDBIO_TRY(const uint64_t skipped_count, Load(invocation, job, list, load));
  LMDBIO_TRY(auto outcome, load.Finish());
  LMDBIO_TRY_VOID(WriteLabels(labels_path, list));
  outcome["skipped"] = skipped_count + list.unlabelled_count;
  outcome["labels"] = list.labels.size();
  outcome["labels_file"] = labels_path;
  return invocation.Report(outcome);
}

}  // namespace

Command ImagesCommand() {
  return {
      "images", "ROOT OUT",
      "Loads the images in the folders of ROOT; each folder is a label. OUT.labels.txt lists them.",
      Describe, Run};
}

}  // namespace lmdbio::tools
