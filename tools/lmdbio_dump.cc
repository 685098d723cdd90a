// lmdbio-dump: prints databases in the text form of LMDB's own mdb_dump, byte for byte, so that
// mdb_load can read it - but without LMDB, without its lock file, and with every page checked.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/io/data_path.h"
#include "lmdbio/io/read_ahead_source.h"
#include "lmdbio/layout/database.h"
#include "lmdbio/layout/record_scan.h"
#include "tools/cli.h"
#include "tools/lock_file.h"

namespace {

using lmdbio::Bytes;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::layout::Database;
using lmdbio::layout::Environment;
using lmdbio::tools::Invocation;
using lmdbio::tools::Misuse;
using lmdbio::tools::WriteOutput;

enum class Notation { kHex, kPrintable };

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr size_t kFlushBytes = 1 << 20;

void AppendHex(Bytes bytes, std::string& out) {
  out += ' ';
  for (const std::byte byte : bytes) {
    out += kHexDigits[static_cast<unsigned>(byte) >> 4];
    out += kHexDigits[static_cast<unsigned>(byte) & 15];
  }
  out += '\n';
}

void AppendPrintable(Bytes bytes, std::string& out) {
  out += ' ';
  for (const std::byte byte : bytes) {
    const auto c = static_cast<unsigned char>(byte);
    if (c < 0x80 && std::isprint(c) != 0) {
      if (c == '\\') out += '\\';
      out += static_cast<char>(c);
    } else {
      out += '\\';
      out += kHexDigits[c >> 4];
      out += kHexDigits[c & 15];
    }
  }
  out += '\n';
}

void Append(Notation notation, Bytes bytes, std::string& out) {
  notation == Notation::kHex ? AppendHex(bytes, out) : AppendPrintable(bytes, out);
}

std::string Header(const Environment& environment, const Database& database, Notation notation,
                   uint64_t reader_slots) {
  using namespace lmdbio::format;
  static constexpr std::array<std::pair<DatabaseFlags, const char*>, 6> kFlagNames = {{
      {kReverseKey, "reversekey"},
      {kDupSort, "dupsort"},
      {kIntegerKey, "integerkey"},
      {kDupFixed, "dupfixed"},
      {kIntegerDup, "integerdup"},
      {kReverseDup, "reversedup"},
  }};
  const auto& snapshot = environment.snapshot();
  std::string text = fmt::format("VERSION=3\nformat={}\n",
                                 notation == Notation::kHex ? "bytevalue" : "print");
  if (!database.name().empty()) text += fmt::format("database={}\n", database.name());
  text += fmt::format("type=btree\nmapsize={}\n", lmdbio::tools::MapSizeBytes(environment.snapshot()));
  if (snapshot.meta.map_address != 0) text += fmt::format("mapaddr=0x{:x}\n", snapshot.meta.map_address);
  text += fmt::format("maxreaders={}\n", reader_slots);
  if (database.record().has_duplicates()) text += "duplicates=1\n";
  for (const auto& [flag, name] : kFlagNames) {
    if ((database.record().flags & flag) != 0) text += fmt::format("{}=1\n", name);
  }
  return text + fmt::format("db_pagesize={}\nHEADER=END\n", snapshot.page_format.page_size_bytes());
}

Status DumpDatabase(const Environment& environment, const Database& database, Notation notation,
                    uint64_t reader_slots) {
  std::string out = Header(environment, database, notation, reader_slots);
  lmdbio::layout::RecordScan scan(database);
  for (;;) {
    LMDBIO_TRY(const bool found, scan.Next());
    if (!found) break;
    LMDBIO_TRY(const Bytes value, scan.cursor().Value());
    Append(notation, scan.cursor().key(), out);
    Append(notation, value, out);
    if (out.size() >= kFlushBytes) {
      LMDBIO_TRY_VOID(WriteOutput(out));
      out.clear();
    }
  }
  out += "DATA=END\n";
  return WriteOutput(out);
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
  const std::string& path = invocation.operand("PATH");
  const Notation notation = invocation.has("printable") ? Notation::kPrintable : Notation::kHex;
  LMDBIO_TRY(const std::vector<Database> chosen, Chosen(environment, invocation, path));
  const uint64_t reader_slots = lmdbio::tools::ReaderSlots(environment.pages().source().name());
  for (const Database& database : chosen) {
    LMDBIO_TRY_VOID(DumpDatabase(environment, database, notation, reader_slots));
  }
  return {};
}

Status Dump(const Invocation& invocation) {
  if (invocation.has("all") && invocation.has("name")) throw Misuse("-a and -s exclude each other");
  LMDBIO_TRY(const std::string data_path, lmdbio::io::FindDataFile(invocation.operand("PATH")));
  LMDBIO_TRY(const auto source, lmdbio::io::ReadAheadSource::Open(data_path));
  LMDBIO_TRY(const Environment environment, Environment::Open(*source));
  Status dumped = DumpChosen(environment, invocation);
  // A writer at work explains what looks like damage, and spoils what looks whole.
  LMDBIO_TRY_VOID(environment.CheckHolds());
  return dumped;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  const std::array commands = {lmdbio::tools::Command{
      "", "PATH", "Prints the records of an LMDB database as mdb_dump does.",
      [](po::options_description_easy_init options) {
        options("all,a", "all named databases instead of the main one");
        options("name,s", po::value<std::string>()->value_name("NAME"), "this named database");
        options("printable,p", "printable characters as they are, others as \\xx");
      },
      &Dump}};
  return lmdbio::tools::RunTool("lmdbio-dump", "Prints an LMDB database.", commands, argc, argv);
}
