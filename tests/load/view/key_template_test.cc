// Goal: a template finds the numbers of its own keys and of no others; a wrong one is refused with
// a right one.
#include "lmdbio/load/view/key_template.h"

#include <string>

#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::load {
namespace {

using test::Good;

TEST_CASE("KeyTemplate makes keys and finds their numbers", "[view]") {
  const KeyTemplate padded = Good(KeyTemplate::Parse("image-{:09d}"));
  CHECK(padded.KeyOf(7) == "image-000000007");
  CHECK(padded.KeyOf(12345678901) == "image-12345678901");
  for (const uint64_t number : {uint64_t{0}, uint64_t{7}, uint64_t{999999999}, ~uint64_t{0}}) {
    CHECK(padded.NumberOf(padded.KeyOf(number)) == number);
  }
  for (const char* other : {"image-7", "image-0000000007", "image-00000007", "label-000000007",
                            "image-00000000x", "image-", "", "image-000000007-"}) {
    INFO(other);
    CHECK_FALSE(padded.NumberOf(other));
  }
  const KeyTemplate plain = Good(KeyTemplate::Parse("latents_{}_data"));
  CHECK(plain.KeyOf(0) == "latents_0_data");
  CHECK(plain.NumberOf("latents_0_data") == uint64_t{0});
  CHECK(plain.NumberOf("latents_120_data") == uint64_t{120});
  for (const char* other : {"latents_007_data", "latents__data", "latents_-1_data", "latents_data",
                            "latents_99999999999999999999_data", "latents_ 1_data"}) {
    INFO(other);
    CHECK_FALSE(plain.NumberOf(other));
  }
  CHECK(Good(KeyTemplate::Parse("{:d}")).NumberOf("42") == uint64_t{42});
  CHECK(Good(KeyTemplate::Parse("{{{}}}")).KeyOf(3) == "{3}");
}

TEST_CASE("KeyTemplate refuses what has not one place for the number", "[view]") {
  const auto refusal = [](const std::string& text) {
    const auto parsed = KeyTemplate::Parse(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code() == ErrorCode::kInvalidArgument);
    CHECK(parsed.error().message().find("\"" + text + "\"") != std::string::npos);
    CHECK(parsed.error().message().find("\"image-{:09d}\"") != std::string::npos);
    return parsed.error().message();
  };
  CHECK(refusal("label").find("no place") != std::string::npos);
  CHECK(refusal("label-%09d").find("no place") != std::string::npos);
  CHECK(refusal("").find("no place") != std::string::npos);
  CHECK(refusal("{}{}").find("several places") != std::string::npos);
  for (const char* wrong : {"{:9d}", "{:00d}", "{:021d}", "{name}", "{0}", "{:x}"}) {
    CHECK(refusal(wrong).find("unknown place") != std::string::npos);
  }
  for (const char* wrong : {"a{", "a}", "{:09d", "a}b{}"}) {
    CHECK(refusal(wrong).find("brace") != std::string::npos);
  }
}

TEST_CASE("Decimal numbers and words of keys", "[view]") {
  CHECK(DecimalOf("0") == uint64_t{0});
  CHECK(DecimalOf("007") == uint64_t{7});
  CHECK(DecimalOf("18446744073709551615") == ~uint64_t{0});
  for (const char* other : {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "18446744073709551616"}) {
    CHECK_FALSE(DecimalOf(other));
  }
  CHECK(KeyWords(std::string_view("length")) == "\"length\"");
  CHECK(KeyWords(std::string_view("\x00\x07", 2)) == "0x0007");
  CHECK(KeyWords(std::string(70, 'k')) == "\"" + std::string(64, 'k') + "...\"");
}

}  // namespace
}  // namespace lmdbio::load
