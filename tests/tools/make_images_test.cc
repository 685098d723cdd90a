#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <stb_image_write.h>
#include <turbojpeg.h>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/make_tool.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

// Rows of pixels, red first.
struct Picture {
  int width = 0;
  int height = 0;
  std::string rgb;
};

// A picture with a value in each byte that identifies its position.
Picture Gradient(int width, int height) {
  Picture picture{width, height, {}};
  for (int i = 0; i < width * height * 3; ++i) picture.rgb += static_cast<char>(i % 251);
  return picture;
}

Picture Flat(int width, int height, const std::string& rgb) {
  Picture picture{width, height, {}};
  for (int i = 0; i < width * height; ++i) picture.rgb += rgb;
  return picture;
}

// The pixels in Caffe's form: a plane each for blue, green and red.
std::string BgrPlanes(const Picture& picture) {
  std::string planes;
  for (const size_t channel : {2U, 1U, 0U}) {
    for (size_t i = channel; i < picture.rgb.size(); i += 3) planes += picture.rgb[i];
  }
  return planes;
}

std::string Ppm(const Picture& picture) {
  return "P6\n" + std::to_string(picture.width) + " " + std::to_string(picture.height) + "\n255\n" +
         picture.rgb;
}

void AppendTo(void* text, void* bytes, int count) {
  static_cast<std::string*>(text)->append(static_cast<char*>(bytes), static_cast<size_t>(count));
}

std::string Png(const Picture& picture) {
  std::string file;
  stbi_write_png_to_func(AppendTo, &file, picture.width, picture.height, 3, picture.rgb.data(),
                         picture.width * 3);
  return file;
}

std::string Bmp(const Picture& picture) {
  std::string file;
  stbi_write_bmp_to_func(AppendTo, &file, picture.width, picture.height, 3, picture.rgb.data());
  return file;
}

std::string Jpeg(const Picture& picture) {
  const std::unique_ptr<void, int (*)(tjhandle)> encoder(tjInitCompress(), tjDestroy);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder.get(), reinterpret_cast<const unsigned char*>(picture.rgb.data()),
              picture.width, 0, picture.height, TJPF_RGB, &bytes, &size, TJSAMP_444, 100, 0);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  return file;
}

class ImageTree {
 public:
  ImageTree() { fs::create_directory(root()); }

  ImageTree& Add(const std::string& name, const std::string& bytes) {
    fs::create_directories((root() / name).parent_path());
    WriteWholeFile(root() / name, AsBytes(bytes));
    return *this;
  }

  fs::path root() const { return dir_.path() / "in"; }
  fs::path out() const { return dir_.path() / "db"; }
  fs::path labels_file() const { return dir_.path() / "db.labels.txt"; }
  std::vector<CaffeRecord> records() const { return CaffeRecords(out() / "data.mdb"); }

  std::vector<std::string> Arguments(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"images", root().string(), out().string()});
    return options;
  }

 private:
  TempDir dir_;
};

TEST_CASE("lmdbio-make images stores pixels as Caffe does", "[tools]") {
  const Picture picture = Gradient(7, 5);
  ImageTree tree;
  tree.Add("dog/b.png", Png(picture))
      .Add("dog/a.ppm", Ppm(picture))
      .Add("cat/deep/x.bmp", Bmp(picture));
  tree.Add("cat/.hidden", "no image").Add("cat/.git/y.ppm", Ppm(picture));

  const nlohmann::json outcome = Make(tree.Arguments());

  CHECK(outcome["records"] == 3);
  CHECK(outcome["skipped"] == 0);
  CHECK(ReadWholeTextFile(tree.labels_file()) == "cat\ndog\n");
  const std::vector<CaffeRecord> records = tree.records();
  REQUIRE(records.size() == 3);
  CHECK(records[0].key == "00000000_cat/deep/x.bmp");
  CHECK(records[1].key == "00000001_dog/a.ppm");
  CHECK(records[2].key == "00000002_dog/b.png");
  for (const CaffeRecord& record : records) {
    INFO(record.key);
    CHECK(record.datum.channels() == 3);
    CHECK(record.datum.height() == 5);
    CHECK(record.datum.width() == 7);
    CHECK(record.datum.data() == BgrPlanes(picture));
    CHECK(record.datum.label() == (record.key[9] == 'd' ? 1 : 0));
    CHECK(record.datum.has_encoded());  // convert_imageset writes this field
    CHECK_FALSE(record.datum.encoded());
  }
}

TEST_CASE("lmdbio-make images decodes JPEG", "[tools]") {
  ImageTree tree;
  tree.Add("x/a.jpg", Jpeg(Flat(16, 24, "\xc8\x64\x32")));  // 200, 100, 50
  Make(tree.Arguments());
  const caffe::Datum datum = tree.records().at(0).datum;
  REQUIRE(datum.data().size() == 3 * 16 * 24);
  CHECK(datum.height() == 24);
  const auto near = [&datum](size_t plane, int expected) {
    const int pixel = static_cast<unsigned char>(datum.data()[plane * 16 * 24 + 100]);
    return std::abs(pixel - expected) <= 2;
  };
  CHECK(near(0, 50));
  CHECK(near(1, 100));
  CHECK(near(2, 200));
}

TEST_CASE("lmdbio-make images keeps encoded files", "[tools]") {
  const std::string jpeg = Jpeg(Gradient(9, 9));
  const std::string ppm = Ppm(Gradient(3, 3));
  ImageTree tree;
  tree.Add("x/a.jpg", jpeg).Add("x/b.ppm", ppm);
  Make(tree.Arguments({"--encoded"}));
  const std::vector<CaffeRecord> records = tree.records();
  REQUIRE(records.size() == 2);
  CHECK(records[0].datum.data() == jpeg);
  CHECK(records[1].datum.data() == ppm);
  CHECK(records[0].datum.encoded());
  CHECK_FALSE(records[0].datum.has_width());
}

TEST_CASE("lmdbio-make images resizes and converts to grey", "[tools]") {
  ImageTree tree;
  tree.Add("x/flat.png", Png(Flat(40, 30, "\x64\x64\x64")));
  tree.Add("x/steps.pgm", "P5\n2 1\n255\n" + std::string("\x00\xf0", 2));
  Make(tree.Arguments({"--gray", "--resize", "4x2"}));
  const std::vector<CaffeRecord> records = tree.records();
  REQUIRE(records.size() == 2);
  for (const CaffeRecord& record : records) {
    CHECK(record.datum.channels() == 1);
    CHECK(record.datum.width() == 4);
    CHECK(record.datum.height() == 2);
  }
  CHECK(records[0].datum.data() == std::string(8, '\x64'));
  // Linear between the centres of the two source pixels, computed by hand: 0, 1/4, 3/4, 1 of 240.
  CHECK(records[1].datum.data() == std::string("\x00\x3c\xb4\xf0\x00\x3c\xb4\xf0", 8));
}

TEST_CASE("lmdbio-make images names broken files and continues", "[tools]") {
  const Picture picture = Gradient(30, 30);
  ImageTree tree;
  tree.Add("x/a.jpg", Jpeg(picture).substr(0, 500)).Add("x/b.ppm", Ppm(picture));
  tree.Add("x/c.png", Png(picture).substr(0, 200)).Add("x/d.txt", "words").Add("x/e.jpg", "");
  tree.Add("stray.ppm", Ppm(picture));
  tree.Add("x/i.jpg", Jpeg(picture).substr(0, Jpeg(picture).size() * 3 / 4));
  tree.Add("x/j.bmp", Bmp(picture).substr(0, 2000)).Add("x/k.bmp", "BM").Add("x/l.png", "\x89PNG");
  tree.Add("x/f.ppm", Ppm(picture).substr(0, 100)).Add("x/g.ppm", "P6\n99999 99999\n255\n");
  fs::create_symlink("nothing", tree.root() / "x/h.ppm");

  const CommandResult result = RunMake(tree.Arguments({"--json"}));

  REQUIRE(result.exit_code == 0);
  const nlohmann::json outcome = nlohmann::json::parse(result.output);
  CHECK(outcome["records"] == 1);
  CHECK(outcome["skipped"] == 12);
  CHECK(tree.records().at(0).key == "00000001_x/b.ppm");  // a gap for a.jpg, as convert_imageset
  for (const char* name : {"a.jpg", "c.png", "d.txt", "e.jpg", "f.ppm", "g.ppm", "h.ppm", "i.jpg",
                           "j.bmp", "k.bmp", "l.png"}) {
    INFO(name << "\n" << result.errors);
    CHECK(result.errors.find("x/" + std::string(name) + ": ") != std::string::npos);
  }
  CHECK(result.errors.find("1 files outside the folders") != std::string::npos);
}

TEST_CASE("lmdbio-make images fails if nothing can be stored", "[tools]") {
  ImageTree tree;
  std::string message;
  SECTION("only broken files") {
    tree.Add("x/a.jpg", "broken");
    message = "no image could be stored";
  }
  SECTION("an empty folder") {
    fs::create_directory(tree.root() / "x");
    message = "no image could be stored";
  }
  SECTION("no folder") { message = "contains no folder; each folder is a label"; }
  SECTION("no root") {
    fs::remove(tree.root());
    message = "No such file or directory";
  }
  SECTION("a file as root") {
    fs::remove(tree.root());
    WriteWholeFile(tree.root(), {});
    message = "Not a directory";
  }

  const CommandResult result = RunMake(tree.Arguments());

  INFO(result.errors);
  CHECK(result.exit_code == 1);
  CHECK(result.errors.find(message) != std::string::npos);
  CHECK_FALSE(fs::exists(tree.out()));
  CHECK_FALSE(fs::exists(tree.out().string() + ".lmdbio-partial"));
  CHECK_FALSE(fs::exists(tree.labels_file()));
}

// Goal: the order changes and depends only on the seed, and every image keeps its label.
TEST_CASE("lmdbio-make images shuffles by a seed", "[tools]") {
  ImageTree tree;
  for (int i = 0; i < 20; ++i) {
    tree.Add("a/" + std::to_string(i) + ".ppm", Ppm(Gradient(1, 1)));
    tree.Add("b/" + std::to_string(i) + ".ppm", Ppm(Gradient(1, 1)));
  }
  const auto shuffle = [&tree](const char* seed) {
    Make(tree.Arguments({"--shuffle", "--seed", seed}));
    std::vector<std::string> order;
    for (const CaffeRecord& record : tree.records()) {
      order.push_back(record.key.substr(9));
      CHECK(record.datum.label() == (order.back()[0] == 'b' ? 1 : 0));
    }
    fs::remove_all(tree.out());
    fs::remove(tree.labels_file());
    return order;
  };
  const std::vector<std::string> order = shuffle("1");
  CHECK(order.size() == 40);
  CHECK(std::set<std::string>(order.begin(), order.end()).size() == 40);
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  CHECK(shuffle("1") == order);
  CHECK(shuffle("2") != order);
}

TEST_CASE("lmdbio-make images skips a name that is too long for a key", "[tools]") {
  ImageTree tree;
  const std::string folder(200, 'f');
  tree.Add(folder + "/" + folder + "/" + std::string(97, 'a') + ".ppm", Ppm(Gradient(1, 1)));
  tree.Add(folder + "/" + folder + "/" + std::string(96, 'b') + ".ppm", Ppm(Gradient(1, 1)));
  const CommandResult result = RunMake(tree.Arguments());
  CHECK(result.exit_code == 0);
  CHECK(result.errors.find("the name is too long for a key; skipped") != std::string::npos);
  REQUIRE(tree.records().size() == 1);
  CHECK(tree.records()[0].key.size() == 511);
}

TEST_CASE("lmdbio-make images refuses invalid options", "[tools]") {
  const auto options = GENERATE(values<std::vector<std::string>>({{"--resize", "4"},
                                                                  {"--resize", "0x4"},
                                                                  {"--resize", "4x4x4"},
                                                                  {"--resize", "4x70000"},
                                                                  {"--encoded", "--gray"},
                                                                  {"--encoded", "--resize", "4x4"},
                                                                  {"--seed", "x"}}));
  ImageTree tree;
  tree.Add("x/a.ppm", Ppm(Gradient(2, 2)));
  const CommandResult result = RunMake(tree.Arguments(options));
  INFO(result.errors);
  CHECK(result.exit_code == 2);
  CHECK_FALSE(fs::exists(tree.out()));
}

TEST_CASE("lmdbio-make images does not replace a labels file", "[tools]") {
  ImageTree tree;
  tree.Add("x/a.ppm", Ppm(Gradient(2, 2)));
  WriteWholeFile(tree.labels_file(), AsBytes("precious"));
  const CommandResult result = RunMake(tree.Arguments());
  CHECK(result.exit_code == 1);
  CHECK(ReadWholeTextFile(tree.labels_file()) == "precious");
  CHECK_FALSE(fs::exists(tree.out()));
}

}  // namespace
}  // namespace lmdbio::test
