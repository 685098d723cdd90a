// tools/make/caffe_record.h - keys and values in the form of Caffe's conversion programs.
#ifndef LMDBIO_TOOLS_MAKE_CAFFE_RECORD_H_
#define LMDBIO_TOOLS_MAKE_CAFFE_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace lmdbio::tools {

// An image without compression.
struct RawImage {
  int channels = 0;
  int height = 0;
  int width = 0;
  std::string_view planes;  // [channels x height x width] bytes, borrowed for the call
};

// Whether a Datum contains the field "encoded" although it is false, the default. convert_imageset
// writes it, which takes two bytes a record; convert_cifar_data does not.
enum class EncodedField { kWritten, kLeftOut };

// A serialized Datum with pixels.
std::string RawDatum(const RawImage& image, int32_t label, EncodedField encoded);

// A serialized Datum with an unchanged image file.
std::string EncodedDatum(std::string_view file_bytes, int32_t label);

// `index` in decimal, with at least `digits` digits.
std::string DecimalKey(uint64_t index, int digits);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_CAFFE_RECORD_H_
