// lmdbio-dump: prints databases in the text form of LMDB's mdb_dump, byte for byte, so that
// mdb_load can read it. It needs neither LMDB nor the lock file, and it checks every page. With
// --key it prints the records of these keys alone.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/keys/key_search.h"
#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/record_scan.h"
#include "lmdbio/file/source/read_ahead_source.h"
#include "tools/cli/cli.h"
#include "tools/cli/flag_names.h"
#include "tools/inspect/lock_file.h"

namespace {

using lmdbio::Bytes;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::file::Database;
using lmdbio::file::Environment;
using lmdbio::tools::Invocation;
using lmdbio::tools::Misuse;
using lmdbio::tools::WriteOutput;

// The text of each byte in a dump. Every text is copied with kSpellingBytesMax bytes, so the copy
// needs no branch; the real length then advances the position.
constexpr size_t kSpellingBytesMax = 3;
struct Spelling {
  std::array<char, kSpellingBytesMax> text{};
  uint8_t length_bytes = 0;
};
struct Notation {
  const char* name;  // in the header of a dump
  std::array<Spelling, 256> spellings{};
};

constexpr Notation HexNotation() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  Notation notation{.name = "bytevalue"};
  for (size_t byte = 0; byte < notation.spellings.size(); ++byte) {
    notation.spellings[byte] = {{kDigits[byte >> 4], kDigits[byte & 15]}, 2};
  }
  return notation;
}

// Printable ASCII is unchanged, a backslash is doubled, any other byte becomes a backslash and two
// digits. mdb_dump before 0.9.25 did not double the backslash, so its output was ambiguous.
constexpr Notation PrintableNotation() {
  Notation notation = HexNotation();
  notation.name = "print";
  for (size_t byte = 0; byte < notation.spellings.size(); ++byte) {
    const std::array<char, kSpellingBytesMax> hex = notation.spellings[byte].text;
    const bool is_printable = byte >= ' ' && byte <= '~';
    notation.spellings[byte] =
        is_printable ? Spelling{{static_cast<char>(byte)}, 1} : Spelling{{'\\', hex[0], hex[1]}, 3};
  }
  notation.spellings['\\'] = {{'\\', '\\'}, 2};
  return notation;
}

// Both tables are computed by the compiler; each has four bytes for each of the 256 byte values.
constexpr Notation kHex = HexNotation();
constexpr Notation kPrintable = PrintableNotation();

// Buffers the text of a dump for standard output. The memory does not grow with the values.
class DumpText {
 public:
  explicit DumpText(const Notation& notation) : notation_(notation) {}

  const Notation& notation() const { return notation_; }

  // Adds a key or a value, as a line that begins with a blank.
  Status AddBytes(Bytes bytes) {
    LMDBIO_TRY_VOID(Add(" "));
    while (!bytes.empty()) {
      // With room for one spelling at least, each turn of the loop takes one byte or more. A value
      // longer than the buffer passes through it in parts.
      LMDBIO_TRY_VOID(FlushUnlessFits(kSpellingBytesMax));
      const size_t count = std::min(bytes.size(), (kBufferBytes - used_bytes_) / kSpellingBytesMax);
      Spell(bytes.first(count));
      bytes = bytes.subspan(count);
    }
    return Add("\n");
  }

  // Requires: text.size() <= kBufferBytes
  Status Add(std::string_view text) {
    LMDBIO_TRY_VOID(FlushUnlessFits(text.size()));
    std::memcpy(buffer_.data() + used_bytes_, text.data(), text.size());
    used_bytes_ += text.size();
    return {};
  }

  Status Flush() { return WriteOutput({buffer_.data(), std::exchange(used_bytes_, 0)}); }

 private:
  static constexpr size_t kBufferBytes = 1 << 20;

  Status FlushUnlessFits(size_t size_bytes) {
    return size_bytes <= kBufferBytes - used_bytes_ ? Status() : Flush();
  }

  // Requires: room for kSpellingBytesMax for each byte
  void Spell(Bytes bytes) {
    char* to = buffer_.data() + used_bytes_;
    for (const std::byte byte : bytes) {
      const Spelling& spelling = notation_.spellings[static_cast<uint8_t>(byte)];
      std::memcpy(to, spelling.text.data(), kSpellingBytesMax);
      to += spelling.length_bytes;
    }
    used_bytes_ = static_cast<size_t>(to - buffer_.data());
  }

  const Notation& notation_;
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
  size_t used_bytes_ = 0;
};

// The lines and their order are those of mdb_dump. mdb_load creates the database from them: the map
// size, the number of reader slots and the flags of the database.
std::string Header(const Environment& environment, const Database& database,
                   const Notation& notation) {
  const auto& snapshot = environment.snapshot();
  const uint64_t map_address = snapshot.meta.map_address;
  std::string text = fmt::format("VERSION=3\nformat={}\n", notation.name);
  if (!database.name().empty()) text += fmt::format("database={}\n", database.name());
  text += fmt::format("type=btree\nmapsize={}\n", lmdbio::tools::MapSizeBytes(snapshot));
  // Only an environment that was created with MDB_FIXEDMAP has an address.
  if (map_address != 0) text += fmt::format("mapaddr=0x{:x}\n", map_address);
  text += fmt::format("maxreaders={}\n",
                      lmdbio::tools::ReaderSlots(environment.pages().source().name()));
  if (database.record().has_duplicates()) text += "duplicates=1\n";
  for (const auto& [flag, name] : lmdbio::tools::kFlagNames) {
    if ((database.record().flags & flag) != 0) text += fmt::format("{}=1\n", name);
  }
  return text + fmt::format("db_pagesize={}\nHEADER=END\n", snapshot.page_format.page_size_bytes());
}

// The last line, DATA=END, is written only after the check that all records came from one state of
// the file. So a dump with that line is complete.
Status DumpDatabase(const Environment& environment, const Database& database, DumpText& out) {
  LMDBIO_TRY_VOID(out.Add(Header(environment, database, out.notation())));
  lmdbio::file::RecordScan scan(database);
  for (;;) {
    LMDBIO_TRY(const bool found, scan.Next());
    if (!found) break;
    LMDBIO_TRY(const Bytes value, scan.cursor().Value());
    LMDBIO_TRY_VOID(out.AddBytes(scan.cursor().key()));
    LMDBIO_TRY_VOID(out.AddBytes(value));
  }
  LMDBIO_TRY_VOID(environment.CheckHolds());
  return out.Add("DATA=END\n");
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The bytes of a key in the notation of --printable.
std::vector<std::byte> ReadKey(const std::string& text) {
  std::vector<std::byte> key;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<std::byte>(text[i]);
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '\\') {
      ++i;
    } else if (text[i] == '\\') {
      const int high = i + 2 < text.size() ? DigitOf(text[i + 1]) : -1;
      const int low = high < 0 ? -1 : DigitOf(text[i + 2]);
      if (low < 0) {
        throw Misuse(
            fmt::format("--key {}: a backslash is followed by another one, or by two "
                        "hexadecimal digits",
                        text));
      }
      byte = static_cast<std::byte>(16 * high + low);
      i += 2;
    }
    key.push_back(byte);
  }
  return key;
}

// The search proves that the key is there or absent; the cursor then reads all its values.
Status DumpKey(const Database& database, Bytes key, const std::string& text, DumpText& out) {
  bool is_found = false;
  lmdbio::file::KeptBranches branches;
  LMDBIO_TRY_VOID(lmdbio::file::KeySearch(database, branches)
                      .Find(std::span(&key, 1), [&](const lmdbio::file::FoundLeaf&) -> Status {
                        is_found = true;
                        return {};
                      }));
  if (!is_found) {
    return Fail(lmdbio::ErrorCode::kNotFound,
                fmt::format("{}: has no key {}", database.pages().source().name(), text));
  }
  lmdbio::file::Cursor cursor(database);
  LMDBIO_TRY(bool more, cursor.SeekKey(key));
  for (; more && std::ranges::equal(cursor.key(), key);) {
    LMDBIO_TRY(const Bytes value, cursor.Value());
    LMDBIO_TRY_VOID(out.AddBytes(cursor.key()));
    LMDBIO_TRY_VOID(out.AddBytes(value));
    LMDBIO_TRY(more, cursor.Next());
  }
  return {};
}

Status DumpKeys(const Environment& environment, const Database& database,
                const std::vector<std::string>& texts, DumpText& out) {
  LMDBIO_TRY_VOID(out.Add(Header(environment, database, out.notation())));
  for (const std::string& text : texts) {
    const std::vector<std::byte> key = ReadKey(text);
    LMDBIO_TRY_VOID(DumpKey(database, key, text, out));
  }
  LMDBIO_TRY_VOID(environment.CheckHolds());
  return out.Add("DATA=END\n");
}

Result<std::vector<Database>> Chosen(const Environment& environment, const Invocation& invocation,
                                     const std::string& path) {
  std::vector<Database> chosen;
  if (invocation.has("name")) {
    LMDBIO_TRY(Database named, environment.Named(invocation.option<std::string>("name")));
    chosen.push_back(std::move(named));
  } else if (invocation.has("all")) {
    LMDBIO_TRY(const std::vector<std::string> names, environment.Names());
    for (const std::string& name : names) {
      LMDBIO_TRY(Database named, environment.Named(name));
      chosen.push_back(std::move(named));
    }
    if (chosen.empty()) {
      return Fail(lmdbio::ErrorCode::kNotFound,
                  path + ": does not contain named databases (dump it without -a)");
    }
  } else {
    chosen.push_back(environment.Main());
  }
  return chosen;
}

Status DumpChosen(const Environment& environment, const Invocation& invocation) {
  LMDBIO_TRY(const std::vector<Database> chosen,
             Chosen(environment, invocation, invocation.operand("PATH")));
  DumpText out(invocation.has("printable") ? kPrintable : kHex);
  for (const Database& database : chosen) {
    LMDBIO_TRY_VOID(invocation.has("key")
                        ? DumpKeys(environment, database,
                                   invocation.option<std::vector<std::string>>("key"), out)
                        : DumpDatabase(environment, database, out));
  }
  return out.Flush();
}

Status Dump(const Invocation& invocation) {
  if (invocation.has("all") && invocation.has("name")) throw Misuse("-a and -s exclude each other");
  if (invocation.has("all") && invocation.has("key")) throw Misuse("-a and -k exclude each other");
  LMDBIO_TRY(const std::string data_path, lmdbio::file::FindDataFile(invocation.operand("PATH")));
  // A dump needs every page of the tree in key order, which is file order in most databases.
  // Read-ahead serves such a pass.
  LMDBIO_TRY(const auto source, lmdbio::file::ReadAheadSource::Open(data_path));
  LMDBIO_TRY(const Environment environment, Environment::Open(*source));
  Status dumped = DumpChosen(environment, invocation);
  // An active writer makes a file look damaged, so check for one before reporting damage.
  if (!dumped) LMDBIO_TRY_VOID(environment.CheckHolds());
  return dumped;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  const std::array commands = {lmdbio::tools::Command{
      "", "PATH", "Prints the records of an LMDB database as mdb_dump does.",
      [](po::options_description_easy_init options) {
        options("all,a", "print all named databases instead of the main one");
        options("name,s", po::value<std::string>()->value_name("NAME"),
                "print this named database");
        options("key,k", po::value<std::vector<std::string>>()->value_name("KEY"),
                "print only the records with this key, in the notation of -p; may be repeated");
        options("printable,p", "print printable characters unchanged, others as \\xx");
      },
      &Dump, lmdbio::tools::Output::kText}};
  return lmdbio::tools::RunTool("lmdbio-dump", "Prints an LMDB database.", commands, argc, argv);
}
