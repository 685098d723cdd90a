"""One canary for each rule of scripts/check_tree.py: a file that breaks the rule and is found.

Each test adds one file to a small clean tree and names all expected findings. So a missed finding
and a false finding both fail the test.
"""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_tree  # noqa: E402
import cpp_outline  # noqa: E402

MARKERS = ["FIX" + "ME", "TO" + "DO"]  # in parts, because this file is checked, too
MACHINE_PATHS = ["/" + folder + "/x" for folder in ("home", "tmp", "work")]

CLEAN_TREE = {
    "CMakeLists.txt": "add_subdirectory(lmdbio)\n",
    "README.md": "See [the map](lmdbio/docs/paper_map.md#rows) and [more](https://example.org).\n",
    "lmdbio/CMakeLists.txt": "# add_room(FOLDER ...)\nadd_room(file/format page.h page.cc)\n",
    "lmdbio/docs/format.md": "# Pages\n",
    "lmdbio/docs/paper_map.md": "| 5.2 | `lmdbio/file/format/page.h` |\n",
    "lmdbio/file/format/page.h": (
        "// Source: docs/format.md section 1; dissertation 5.2.\n"
        '#include "lmdbio/base/status.h"\n'
        "namespace lmdbio::file {\n"
        "// Reads a page.\n"
        "// Errors: kIo\n"
        "Result<int> Read(int page_no);\n"
        "}  // namespace lmdbio::file\n"),
    "lmdbio/file/format/page.cc": '#include "lmdbio/file/format/page.h"\n// throw; exit(1)\n',
    "tests/CMakeLists.txt": "add_unit(small_test.cc)\n",
    "tests/small_test.cc": '#include <lmdb.h>\nconst char* kText = "throw abort( printf(";\n',
}


def long_body(line_count):
    """The lines between the first and the last of a function of `line_count` lines."""
    return "  Step();\n" * (line_count - 2)


class TreeTest(unittest.TestCase):
    def findings(self, planted):
        """[(path, line, rule)] of the clean tree with the files `planted` added."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in (CLEAN_TREE | planted).items():
                target = pathlib.Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            found = []
            for line in check_tree.check(folder):
                place, text = line.split(": ", 1)
                path, number = place.split(":")
                self.assertRegex(text, r"^[^;]+; .+ \[[\w-]+\]$")
                found.append((path, int(number), text[text.rindex("[") + 1 : -1]))
            return found

    def expect(self, planted, *expected):
        self.assertEqual(self.findings(planted), list(expected))

    def expect_in_page_cc(self, text, *expected):
        """Replaces lmdbio/file/format/page.cc by `text`; expected: (line, rule)."""
        path = "lmdbio/file/format/page.cc"
        self.expect({path: text}, *[(path, line, rule) for line, rule in expected])

    def expect_in_page_h(self, text, *expected):
        path = "lmdbio/file/format/page.h"
        self.expect({path: text}, *[(path, line, rule) for line, rule in expected])


class Canaries(TreeTest):
    def test_a_clean_tree_has_no_findings(self):
        self.expect({})

    def test_this_tree_lists_every_library_folder_in_the_table(self):
        rooms = {check_tree.room_of(path.relative_to(ROOT).as_posix())
                 for path in (ROOT / "lmdbio").glob("**/*.h")}
        self.assertEqual(rooms, set(check_tree.MAY_INCLUDE))

    def test_the_table_has_no_cycle(self):
        done = set()
        while len(done) < len(check_tree.MAY_INCLUDE):
            ready = {folder for folder, allowed in check_tree.MAY_INCLUDE.items()
                     if done.issuperset(allowed)}
            self.assertGreater(len(ready), len(done))
            done = ready

    def test_include_edge_upwards(self):
        self.expect_in_page_cc('\n#include "lmdbio/file/layout/replay.h"\n', (2, "include-edge"))

    def test_include_edge_in_angle_brackets(self):
        self.expect_in_page_cc("#include <lmdbio/file/io/file.h>\n", (1, "include-edge"))

    def test_include_edge_from_a_folder_without_a_row(self):
        self.expect({"lmdbio/newcomer/a.h": '#include "lmdbio/base/status.h"\n',
                     "lmdbio/newcomer/CMakeLists.txt": "add(a.h)\n"},
                    ("lmdbio/newcomer/a.h", 1, "include-edge"))

    def test_include_path_not_from_the_root(self):
        self.expect_in_page_cc('#include "page.h"\n', (1, "include-path"))

    def test_foreign_includes_outside_their_folder(self):
        text = ("#include <mpi.h>\n#include <liburing.h>\n#include <lmdb.h>\n"
                "#include <catch2/catch.hpp>\n// #include <mpi.h>\n")
        self.expect_in_page_cc(text, *[(line, "foreign-include") for line in (1, 2, 3, 4)])

    def test_foreign_includes_at_home(self):
        self.expect({"lmdbio/CMakeLists.txt": "add(page.h page.cc group.cc ring.cc lmdbio_mpi.h "
                                              "lmdb_stream.cc)\n",
                     "lmdbio/ranks/mpi/group.cc": "#include <mpi.h>\n",
                     "lmdbio/api/c/lmdbio_mpi.h": "#include <mpi.h>\n",
                     "lmdbio/file/io/ring.cc": "#include <liburing.h>\n",
                     "lmdbio/load/baseline/lmdb_stream.cc": "#include <lmdb.h>\n"})

    def test_liblmdb_in_other_files_of_the_loader(self):
        self.expect({"lmdbio/load/slots/slot.cc": "#include <lmdb.h>\n",
                     "lmdbio/load/slots/CMakeLists.txt": "add(slot.cc)\n"},
                    ("lmdbio/load/slots/slot.cc", 1, "foreign-include"))

    def test_long_function(self):
        self.expect_in_page_cc("void F() {\n" + long_body(70) + "}\n")
        self.expect_in_page_cc("\nvoid F() {\n" + long_body(71) + "}\n", (2, "long-function"))

    def test_an_escape_needs_a_reason(self):
        function = "void F() {\n" + long_body(71) + "}\n"
        self.expect_in_page_cc("// check-tree: long-function (one table)\n" + function)
        self.expect_in_page_cc("// check-tree: long-function\n" + function, (2, "long-function"))
        self.expect_in_page_cc("// check-tree: long-file (wrong)\n" + function,
                               (2, "long-function"))

    def test_long_file(self):
        self.expect_in_page_cc("int x;\n" * 800)
        self.expect_in_page_cc("int x;\n" * 801, (801, "long-file"))

    def test_long_line(self):
        self.expect_in_page_cc("// " + "é" * 97 + "\n")
        self.expect_in_page_cc("// " + "e" * 98 + "\n", (1, "long-line"))

    def test_crowded_folder(self):
        def planted(count):
            names = [f"h{number}.h" for number in range(10, 10 + count)]
            return {"lmdbio/base/" + name: "\n" for name in names} | {
                "lmdbio/base/CMakeLists.txt": f"add({' '.join(names)})\n"}
        self.expect(planted(12))
        self.expect(planted(13), ("lmdbio/base/h10.h", 1, "crowded-folder"))

    def test_test_in_the_folder_of_another_room(self):
        def planted(folder):
            return {f"tests/{folder}/page_test.cc": "\n",
                    f"tests/{folder}/CMakeLists.txt": "add_unit(page_test.cc)\n"}
        self.expect(planted("file/format"))
        self.expect(planted("file/io"), ("tests/file/io/page_test.cc", 1, "test-place"))

    def test_guard_of_another_path(self):
        def planted(guard):
            return {"bench/plan.h": f"#ifndef {guard}\n#define {guard}\n#endif\n",
                    "bench/CMakeLists.txt": "add(plan.h)\n"}
        self.expect(planted("LMDBIO_BENCH_PLAN_H_"))
        self.expect(planted("BENCH_PLAN_H_"), ("bench/plan.h", 1, "guard"))

    def test_large_class(self):
        members = "".join(f"  int m{number}_ = 0;\n" for number in range(13))
        rest = ("  static int shared_;\n  int F(int a);\n  using T = int;\n"
                "  enum class Kind { kA, kB };\n  struct Inner { int a, b; };\n")
        def planted(last):
            return f"class C {{\n{rest}{members}{last}}};\n"
        self.expect_in_page_cc(planted("  std::map<int, int> a_; int b_, c[3];\n"),
                               (1, "large-class"))
        self.expect_in_page_cc(planted("  std::function<int(int)> a_, b_{1};\n"))

    def test_two_types_of_one_name(self):
        self.expect({"tests/page_test.cc": "struct Place {\n};\nclass Page;\nenum Way { kA };\n",
                     "tests/other.cc": "class A {\n  struct Place {};\n};\nclass Page {};\n"
                                       "enum class Way { kA };\nstruct Impl {};\n",
                     "tests/third.cc": "struct Impl {};\nvoid F() {\n  struct Way {};\n}\n",
                     "tests/CMakeLists.txt": "add(small_test.cc page_test.cc other.cc third.cc)\n"},
                    ("tests/page_test.cc", 1, "same-type"), ("tests/page_test.cc", 4, "same-type"))

    def test_one_place(self):
        text = "// SYS_futex\nint a = SYS_futex;\nint b = SO_KEEPALIVE;\n"
        self.expect_in_page_cc(text, (2, "one-place"), (3, "one-place"))

    def test_keepalive_in_two_files_of_its_folder(self):
        text = "int b = SO_KEEPALIVE;\n"
        cmake = {"lmdbio/ranks/net/CMakeLists.txt": "add(a.cc b.cc)\n"}
        self.expect(cmake | {"lmdbio/ranks/net/a.cc": text, "lmdbio/ranks/net/b.cc": ""})
        self.expect(cmake | {"lmdbio/ranks/net/a.cc": text, "lmdbio/ranks/net/b.cc": text},
                    ("lmdbio/ranks/net/b.cc", 1, "one-place"))

    def test_vague_comment(self):
        for word in ("Who", "Whoever", "Whose", "Whatever", "What"):
            self.expect_in_page_cc(f"// {word} waits.\nint a;  // {word} sleeps\n/* {word} */\n",
                                   *[(line, "vague-comment") for line in (1, 2, 3)])
            self.expect({"scripts/a.py": f"# {word} waits\nx = 1  # {word} sleeps\n"},
                        *[("scripts/a.py", line, "vague-comment") for line in (1, 2)])

    def test_plain_comments(self):
        self.expect_in_page_cc("// The reader waits.\n// What follows continues the sentence.\n"
                               'int x;\nauto s = "// What";\nint y;  // and\nint z;  // What else\n'
                               "// Whole pages.\n")

    def test_readme_that_names_other_rooms(self):
        path = "lmdbio/file/format/README.md"
        self.expect({path: "# format\n\n**May include** `base`.\n\n`file/io` is below.\n"})
        self.expect({path: "# format\n\n**May include** `base`, `file/io`.\n"},
                    (path, 3, "readme-includes"))
        self.expect({path: "# format\n"}, (path, 1, "readme-includes"))

    def test_bool_parameter(self):
        for text in ("void F(bool);", "void F(int a,\n bool deep = false);", "explicit F(bool x);",
                     "virtual void F(const bool deep) = 0;", "template <typename T>\nT F(bool b);",
                     "struct S {\n  void operator()(bool b);\n};",
                     "class C {\n public:\n  C(bool b) : b_(b) {}\n};"):
            line = [number for number, part in enumerate(text.split("\n"), 1) if "bool" in part][0]
            self.expect_in_page_h(text + "\n", (line, "bool-parameter"))

    def test_bool_elsewhere_in_a_header(self):
        self.expect_in_page_h(
            "bool F(int n);\nvoid G(bool* out);\nusing Done = void (*)(bool);\n"
            "struct S { bool deep = false; std::function<void(bool)> done; };\n"
            "inline int H() { return [](bool b) { return b ? 1 : 0; }(true); }\n"
            "class C {\n  explicit C(bool b);\n};\n"
            "namespace internal { void K(bool b); }\n")

    def test_no_errors_line(self):
        self.expect_in_page_h("// Opens it.\nResult<int> F();\n", (2, "no-errors-line"))
        self.expect_in_page_h("class C {\n public:\n  virtual Status F() = 0;\n};\n",
                              (3, "no-errors-line"))

    def test_errors_line_in_place(self):
        self.expect_in_page_h(
            "// Errors: kIo\nResult<int> F();\nResult<int> G();\n\n"
            "// Errors, of every call: kIo\nclass C {\n public:\n\n  Status Next();\n};\n\n"
            "class D : public C {\n public:\n  Status Next() override;\n\n private:\n"
            "  Status Hidden();\n  Status status_;\n};\n")

    def test_banned_calls(self):
        calls = ["throw 1;", "std::abort();", "std::exit(1);", "std::cout << 1;", 'printf("");',
                 "std::fprintf(f, s);", "fmt::print(s);", "snprintf(b, n, s);"]
        text = "void F() {\n" + "\n".join(calls) + "\n}\n"
        self.expect_in_page_cc(text, *[(line, "banned-call") for line in range(2, 10)])
        self.expect_in_page_cc("void F() { mdb_txn_abort(t); on_exit_(1); Abort(); }\n")

    def test_only_check_cc_may_end_the_process(self):
        cmake = {"lmdbio/CMakeLists.txt": "add(page.h page.cc check.cc)\n"}
        self.expect(cmake | {"lmdbio/base/check.cc": "void F() { std::abort(); }\n"})

    def test_markers(self):
        for word in MARKERS:
            for path in ("lmdbio/file/format/page.cc", "README.md", "CMakeLists.txt"):
                self.expect({path: f"# {word}: later\n"}, (path, 1, "marker"))

    def test_machine_paths(self):
        for text in MACHINE_PATHS:
            self.expect({"README.md": f"\nRead {text}.\n"}, ("README.md", 2, "machine-path"))
        self.expect({"README.md": "https://example.org" + MACHINE_PATHS[0] + " a" +
                     MACHINE_PATHS[2] + "\n"})
        self.expect({"scripts/a": "d=$(mktemp -d " + MACHINE_PATHS[1] + "X)\n"})

    def test_tests_fuzzers_and_benches_are_registered(self):
        for name in ("a_test.cc", "a_fuzz.cc", "a_bench.cc", "a_test.c", "a_test.py", "a.cc"):
            self.expect({"tests/deep/" + name: "\n"},
                        ("tests/deep/" + name, 1, "not-registered"))
            for path in ("CMakeLists.txt", "tests/deep/CMakeLists.txt"):
                cmake = f"add(x/{name})\nadd_subdirectory(lmdbio)\n"
                self.expect({"tests/deep/" + name: "\n", path: cmake})

    def test_a_longer_name_or_a_comment_registers_nothing(self):
        for cmake in ("add(data_test.cc)", "add(a_test_more)", "add(x)  # as a_test.cc",
                      "#[[\nadd(\na_test)\n]]"):
            self.expect({"tests/deep/a_test.cc": "\n", "tests/deep/CMakeLists.txt": cmake + "\n"},
                        ("tests/deep/a_test.cc", 1, "not-registered"))

    def test_library_headers_are_registered(self):
        self.expect({"lmdbio/file/format/leaf.h": "\n"},
                    ("lmdbio/file/format/leaf.h", 1, "not-registered"))

    def test_commented_out_registration(self):
        for text in ("  # lmdbio_add_test(page)", "# add_subdirectory(deep)", "#  page_test.cc",
                     "# page_fuzz)"):
            self.expect({"CMakeLists.txt": text + "\n"}, ("CMakeLists.txt", 1, "commented-out"))
        self.expect({"CMakeLists.txt": "# add_test(NAME ...) takes a name; see page_test.cc\n"})

    def test_two_files_of_one_name(self):
        self.expect({"tools/page.h": "\n"}, ("tools/page.h", 1, "same-name"))

    def test_source_tag_without_a_row_in_the_paper_map(self):
        self.expect_in_page_cc("// Source: dissertation 5.2.\n")  # page.h's row covers page.cc
        cmake = {"lmdbio/CMakeLists.txt": "add(page.h page.cc pager.h)\n"}
        for tag in ("dissertation 5.2.", "docs/format.md;\n// dissertation 5.2.",
                    'row "a" of docs/paper_map.md'):
            self.expect(cmake | {"lmdbio/file/format/pager.h": f"// Source: {tag}\n"},
                        ("lmdbio/file/format/pager.h", 1, "source-tag"))

    def test_source_tag_naming_a_document_that_does_not_exist(self):
        self.expect_in_page_cc("\n// Source: docs/gone.md section 1.\n", (2, "source-tag"))

    def test_dead_link(self):
        text = "[a](../file/format/page.h) `[x](y)`\n[b](gone.md#a)\n"
        self.expect({"lmdbio/docs/format.md": text},
                    ("lmdbio/docs/format.md", 2, "dead-link"))

    def test_dead_path(self):
        text = ("`lmdbio/file/format/page.h`, `tests/small_test`, small_test.cc, `lmdbio/file`,\n"
                "`tests/ROOM/NAME_test.cc`, `lmdbio/file/{a,b}`\n"
                "`lmdbio/format/page.h`\n`tests/format`\nlarge_test.cc\n")
        self.expect({"lmdbio/docs/format.md": text},
                    *(("lmdbio/docs/format.md", line, "dead-path") for line in (3, 4, 5)))

    def test_dead_path_in_the_paper_map(self):
        path = "lmdbio/docs/paper_map.md"
        self.expect({path: CLEAN_TREE[path] + "| 6.3 | `lmdbio/sync/gone.h` |\n"},
                    (path, 2, "dead-path"))


class OutlineTest(unittest.TestCase):
    """Long functions in every shape that brace matching could miss or mistake."""

    def lengths(self, text):
        return [item.last_line - item.first_line + 1 for item in cpp_outline.outline(text)
                if item.has_body]

    def expect_one_function(self, opening, closing="}"):
        text = f"namespace a {{\n{opening}\n  if (x) {{\n  }}\n{closing}\nint y;\n}}\n"
        self.assertEqual(self.lengths(text), [opening.count("\n") + closing.count("\n") + 4], text)

    def test_shapes_of_functions(self):
        for opening in (
            "void F() {",
            "static Result<std::vector<int>>\nF(int a,\n  Options o = {}) const noexcept {",
            "auto F() -> std::pair<int, int> {",
            "C::C(int a) : a_(a), b_{a} {",
            "C::C(int a)\n    : a_{a},\n      b_(a) {",
            "C::C() : Base<int>{1}, f_([](int i) { return i; }) {",
            "bool operator==(const C& a, const C& b) {",
            "void C::operator()(int a) {",
            "C& C::operator=(C&& other) noexcept {",
            "explicit C::operator bool() const {",
            "template <typename T = int>\n  requires std::integral<T>\nT F(T t) {",
            "template <typename T>\nT F(T t) requires(sizeof(T) > 1) {",
            'TEST_CASE("a { b (", "[c]") {',
            'extern "C" int LLVMFuzzerTestOneInput(const uint8_t* d, size_t n) {',
            "struct stat StatOf(int fd) {",
            "[[nodiscard]] inline int F(std::function<void(bool)> f) {",
            "constexpr auto kF = [](int a) {",
        ):
            with self.subTest(opening):
                self.expect_one_function(opening, "};" if "= [" in opening else "}")

    def test_what_is_no_function(self):
        for text in ("struct S : Base<int()> {\n int a = 0;\n};", "enum class E {\n kA = F(1),\n};",
                     "const int kTable[] = {\n F(1),\n};", "std::function<void(int)> f{\n g};",
                     'extern "C" {\nint a;\n}', "class alignas(64) C final : public B {\n};",
                     "namespace a {\nnamespace {\nint x;\n}\n}"):
            with self.subTest(text):
                self.assertEqual(self.lengths(text), [])

    def test_literals_and_comments_hold_no_braces(self):
        self.expect_one_function("void F() {  // {\n  char c = '{'; auto s = \"{\\\"{\"; /* { */")
        self.expect_one_function('void F() {\n  auto s = R"x({ ")" {)x"; int n = 1\'000\'000; {}')

    def test_conditional_branches_are_alternatives(self):
        text = "#ifdef A\nvoid F(int a) {\n#else\nvoid F() {\n#endif\n  Step();\n}\nvoid G() {\n}\n"
        self.assertEqual(self.lengths(text), [4, 2])

    def test_methods_are_found_inside_classes(self):
        text = ("class C : public B {\n public:\n  int a{0};\n  void F() {\n\n  }\n"
                "  void G() const {\n  }\n};")
        self.assertEqual(self.lengths(text), [3, 2])


if __name__ == "__main__":
    unittest.main()
