#include "tools/make/caffe_record.h"

#include <fmt/format.h>

#include "tools/datum/caffe_datum.pb.h"

namespace lmdbio::tools {

// The fields of Caffe's message "Datum". protobuf's C++ code writes them in the order of their
// numbers, so equal images give equal bytes.
std::string RawDatum(const RawImage& image, int32_t label, EncodedField encoded) {
  caffe::Datum datum;
  datum.set_channels(image.channels);
  datum.set_height(image.height);
  datum.set_width(image.width);
  datum.set_data(image.planes.data(), image.planes.size());
  datum.set_label(label);
  if (encoded == EncodedField::kWritten) datum.set_encoded(false);
  return datum.SerializeAsString();
}

std::string EncodedDatum(std::string_view file_bytes, int32_t label) {
  caffe::Datum datum;
  datum.set_data(file_bytes.data(), file_bytes.size());
  datum.set_label(label);
  datum.set_encoded(true);
  return datum.SerializeAsString();
}

// LMDB sorts keys as bytes. A fixed number of digits makes that the numeric order.
std::string DecimalKey(uint64_t index, int digits) { return fmt::format("{:0{}}", index, digits); }

}  // namespace lmdbio::tools
