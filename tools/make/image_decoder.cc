#include "tools/make/image_decoder.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <png.h>
#include <stb_image_resize.h>
#include <turbojpeg.h>

namespace lmdbio::tools {
namespace {

// Pixels in the order of decoders: row by row, the channels of a pixel together, red first, opacity
// last.
struct Interleaved {
  int channels = 0;
  ImageSize size;
  std::vector<unsigned char> bytes;
};

size_t PixelCount(ImageSize size) {
  return static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
}

Status CheckSize(ImageSize size) {
  // A gigabyte at four bytes a pixel. A damaged header must not make the program allocate more.
  constexpr size_t kPixelCountMax = size_t{1} << 28;
  if (size.width < 1 || size.height < 1)
    return Fail(ErrorCode::kCorruption, "the image is cut off");
  if (PixelCount(size) <= kPixelCountMax) return {};
  return Fail(
      ErrorCode::kResourceExhausted,
      fmt::format("{} x {} pixels are too many; expected at most 2^28", size.width, size.height));
}

const unsigned char* Data(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Error JpegError(tjhandle decoder) { return Error(ErrorCode::kCorruption, tjGetErrorStr2(decoder)); }

// libjpeg-turbo warns about defects that change no pixel, such as stray bytes between segments;
// such an image is accepted. Only the warning about an early end is an error, because the missing
// pixels would be grey.
bool IsHarmless(tjhandle decoder) {
  return tjGetErrorCode(decoder) == TJERR_WARNING &&
         std::strstr(tjGetErrorStr2(decoder), "Premature end") == nullptr;
}

Result<Interleaved> DecodeJpeg(std::string_view file, ImageColors colors) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  if (!decoder) return Fail(ErrorCode::kResourceExhausted, "no memory for a JPEG decoder");
  Interleaved image{colors == ImageColors::kGray ? 1 : 3, {}, {}};
  int subsampling = 0;
  int colorspace = 0;
  // The size from the header is checked before the memory for the pixels is allocated.
  if (tjDecompressHeader3(decoder.get(), Data(file), file.size(), &image.size.width,
                          &image.size.height, &subsampling, &colorspace) != 0 &&
      !IsHarmless(decoder.get())) {
    return Fail(JpegError(decoder.get()));
  }
  if (colorspace == TJCS_CMYK || colorspace == TJCS_YCCK) {
    return Fail(ErrorCode::kUnsupported, "a JPEG in printing colours (CMYK) is not supported");
  }
  LMDBIO_TRY_VOID(CheckSize(image.size));
  image.bytes.resize(PixelCount(image.size) * static_cast<size_t>(image.channels));
  if (tjDecompress2(decoder.get(), Data(file), file.size(), image.bytes.data(), image.size.width,
                    /*pitch=*/0, image.size.height,
                    colors == ImageColors::kGray ? TJPF_GRAY : TJPF_RGB, /*flags=*/0) != 0 &&
      !IsHarmless(decoder.get())) {
    return Fail(JpegError(decoder.get()));
  }
  return image;
}

// The luma of pixels with red, green and blue as their first channels. The weights are those of
// JPEG (ITU-R BT.601), which OpenCV uses for every kind of file. They are integers that add up to
// 2^14, and 2^13 rounds to the nearest.
Interleaved ToGray(const Interleaved& image) {
  const auto channels = static_cast<size_t>(image.channels);
  Interleaved gray{1, image.size, std::vector<unsigned char>(PixelCount(image.size))};
  for (size_t pixel = 0; pixel < gray.bytes.size(); ++pixel) {
    const unsigned char* rgb = image.bytes.data() + pixel * channels;
    gray.bytes[pixel] =
        static_cast<unsigned char>((rgb[0] * 4899 + rgb[1] * 9617 + rgb[2] * 1868 + 8192) >> 14);
  }
  return gray;
}

// Opacity is dropped and not blended, because trainers do not use it. Transparent pixels keep their
// colour.
Result<Interleaved> DecodePng(std::string_view file) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> guard(&png, png_image_free);
  if (png_image_begin_read_from_memory(&png, file.data(), file.size()) == 0) {
    return Fail(ErrorCode::kCorruption, png.message);
  }
  Interleaved image{4, {static_cast<int>(png.width), static_cast<int>(png.height)}, {}};
  LMDBIO_TRY_VOID(CheckSize(image.size));
  image.bytes.resize(PixelCount(image.size) * 4);
  // Four channels for every kind of file, so that libpng does not blend opacity with a background.
  png.format = PNG_FORMAT_RGBA;
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // otherwise libpng takes 16-bit files for linear light
  if (png_image_finish_read(&png, nullptr, image.bytes.data(), 0, nullptr) == 0) {
    return Fail(ErrorCode::kCorruption, png.message);
  }
  return image;
}

// TurboJPEG also reads BMP, PGM and PPM, but only from a path.
Result<Interleaved> DecodePlain(const std::string& path) {
  Interleaved image{3, {}, {}};
  int format = TJPF_RGB;
  const std::unique_ptr<unsigned char, void (*)(unsigned char*)> pixels(
      tjLoadImage(path.c_str(), &image.size.width, /*align=*/1, &image.size.height, &format, 0),
      tjFree);
  // The library has no decoder object here; it keeps the message for the thread.
  if (!pixels) return Fail(ErrorCode::kCorruption, tjGetErrorStr2(nullptr));
  LMDBIO_TRY_VOID(CheckSize(image.size));
  image.bytes.assign(pixels.get(), pixels.get() + PixelCount(image.size) * 3);
  return image;
}

Result<Interleaved> Decode(const std::string& path, std::string_view file, ImageColors colors) {
  // The first bytes decide, not the name: files with a wrong ending are common in data sets.
  if (file.starts_with("\xff\xd8")) return DecodeJpeg(file, colors);
  const bool is_png = file.starts_with("\x89PNG");
  const bool is_plain = file.starts_with("BM") || file.starts_with("P5") || file.starts_with("P6");
  if (!is_png && !is_plain) {
    return Fail(ErrorCode::kUnsupported, "not a JPEG, PNG, BMP, PGM or PPM image");
  }
  LMDBIO_TRY(Interleaved image, is_png ? DecodePng(file) : DecodePlain(path));
  return colors == ImageColors::kGray ? ToGray(image) : std::move(image);
}

// Resizes with a triangle filter as wide as the coarser of the two grids. Enlarging is then linear
// interpolation, and reducing has no aliasing. Values are used without gamma, as trainers expect.
Result<Interleaved> Resize(const Interleaved& image, ImageSize size) {
  LMDBIO_TRY_VOID(CheckSize(size));
  Interleaved scaled{image.channels, size, {}};
  scaled.bytes.resize(PixelCount(size) * static_cast<size_t>(image.channels));
  if (stbir_resize_uint8_generic(image.bytes.data(), image.size.width, image.size.height, 0,
                                 scaled.bytes.data(), size.width, size.height, 0, image.channels,
                                 STBIR_ALPHA_CHANNEL_NONE, 0, STBIR_EDGE_CLAMP,
                                 STBIR_FILTER_TRIANGLE, STBIR_COLORSPACE_LINEAR, nullptr) == 0) {
    return Fail(ErrorCode::kResourceExhausted, "no memory to resize the image");
  }
  return scaled;
}

// Converts from channels last, red first, to channels first, blue first. A fourth channel is
// dropped.
DecodedImage ToPlanes(const Interleaved& image) {
  const size_t pixel_count = PixelCount(image.size);
  const auto step = static_cast<size_t>(image.channels);
  const size_t plane_count = step == 1 ? 1 : 3;
  DecodedImage planes{static_cast<int>(plane_count), image.size,
                      std::string(pixel_count * plane_count, '\0')};
  for (size_t channel = 0; channel < plane_count; ++channel) {
    char* plane = planes.planes.data() + (plane_count - 1 - channel) * pixel_count;
    for (size_t pixel = 0; pixel < pixel_count; ++pixel) {
      plane[pixel] = static_cast<char>(image.bytes[pixel * step + channel]);
    }
  }
  return planes;
}

}  // namespace

Result<DecodedImage> DecodeImage(const std::string& path, std::string_view file_bytes,
                                 ImageColors colors, std::optional<ImageSize> resize) {
  LMDBIO_TRY(Interleaved image, Decode(path, file_bytes, colors));
  if (resize) {
    LMDBIO_TRY(image, Resize(image, *resize));
  }
  return ToPlanes(image);
}

}  // namespace lmdbio::tools
