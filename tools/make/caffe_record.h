// tools/make/caffe_record.h - keys and values as Caffe's conversion programs write them.
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

// Whether a Datum says that it is not encoded, which is the default anyway: convert_imageset does,
// at two bytes a record, and convert_cifar_data does not.
enum class EncodedField { kWritten, kLeftOut };

// A serialized Datum that holds pixels.
std::string RawDatum(const RawImage& image, int32_t label, EncodedField encoded);

// A serialized Datum that holds an image file as it is.
std::string EncodedDatum(std::string_view file_bytes, int32_t label);

// `index` in decimal, at least `digits` wide.
std::string DecimalKey(uint64_t index, int digits);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_CAFFE_RECORD_H_
