"""The outline of a C++ file, found by matching braces: enough to measure functions and read heads.

This is no parser. It blanks comments and literals, follows `{}`, `()` and `;`, and decides from the
text before a brace what the brace opens. It knows namespaces, classes, functions, constructor
initialisers, brace initialisation, lambdas and conditional compilation; code that fools it is rare
and takes an escape comment (see check_tree.py).
"""

import copy
import dataclasses
import re

_LITERAL = re.compile(
    r"""(?P<number>\b[0-9](?:'?[0-9A-Za-z_.])*)
      | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | \b(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
      | "(?:\\.|[^"\\\n])*"
      | '(?:\\.|[^'\\\n])+'""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:\\\n|[^\n])*", re.MULTILINE)
_TOKEN = re.compile(
    r"^[ \t]*#[ \t]*(?P<directive>\w*)(?:\\\n|[^\n])*"
    r"|\b(?P<access>public|protected|private)\s*:(?!:)"
    r"|[{}();]",
    re.MULTILINE,
)
_OPERATOR = re.compile(r"\boperator\s*(?:\(\s*\)|\[\s*\]|<=>|[-+*/%^&|~!=<>,]+)")
# A word before "(" that does not make the parentheses a parameter list.
_NOT_A_NAME = frozenset(
    "alignas decltype explicit noexcept requires sizeof static_assert __attribute__ "
    "void bool char short int long float double auto if while for switch return".split()
)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def strip_comments(text):
    """`text` with comments blanked; every other character keeps its place."""
    return _LITERAL.sub(lambda m: _blank(m[0]) if m["comment"] else m[0], text)


def strip_literals(text):
    """`text` with comments and the insides of string and character literals blanked."""

    def replacement(match):
        if match["number"]:
            return match[0]
        if match["comment"]:
            return _blank(match[0])
        return match[0][0] + _blank(match[0][1:-1]) + match[0][-1]

    return _LITERAL.sub(replacement, text)


def comments(text):
    """(offset, words) of each comment; of a comment of several lines, the words of the first."""
    for match in _LITERAL.finditer(text):
        if match["comment"]:
            yield match.start(), match[0].split("\n")[0].strip("/*! \t")


@dataclasses.dataclass
class Callable:
    """A function outside any function body, or text that looks like one."""

    head: str  # the text up to `{` or `;`, blanked as by strip_literals
    first_line: int  # counts from 1
    last_line: int  # line of the closing brace; of the `;` for a declaration
    is_public: bool  # a user of the header may name every scope around it
    scope_line: int  # first line of the enclosing class or namespace; 1 for the file
    scope: int = 0  # number of the enclosing scope, counted in the file; 0 for the file
    has_body: bool = False

    def parameters(self):
        """[(line, text)] of the parameter list; None if `head` declares no function."""
        span = _parameter_span(self.head)
        if span is None:
            return None
        found, start = [], span[0]
        for end in _top_level_commas(self.head, *span) + [span[1]]:
            text = self.head[start:end]
            indent = len(text) - len(text.lstrip())
            line = self.first_line + self.head.count("\n", 0, start + indent)
            found.append((line, " ".join(text.split())))
            start = end + 1
        return found


@dataclasses.dataclass
class Type:
    """A class, struct, union or enum with a body, outside any function body."""

    name: str  # "" if it has none
    outer: str  # the names of the classes around it, joined by "::"; "" at namespace scope
    first_line: int  # counts from 1
    scope: int  # its own number; Callable.scope of its members
    members: int = 0  # data members that are not static


@dataclasses.dataclass
class _Scope:
    kind: str  # "file", "namespace", "class", "body" or "init"
    is_public: bool = True
    first_line: int = 1  # first line of the head
    number: int = 0  # counts the scopes of the file
    names: tuple = ()  # names of the enclosing classes, this one included
    callable_index: int = -1  # index of the function with this body
    resume_depth: int = 0  # parentheses open around an "init" scope


class _Outliner:
    """One pass over one file. Inside "body" and "init" scopes only braces count."""

    def __init__(self, text):
        code = strip_literals(text)
        self.tokens = _TOKEN.finditer(code)
        self.code = _DIRECTIVE.sub(lambda m: _blank(m[0]), code)
        self.found = []
        self.types = []
        self.scope_count = 0
        self.branches = []  # the state at each open #if, restored at its #else
        self.state = ([_Scope("file")], 0, 0, [])  # scopes, head start, parenthesis depth, holes

    def run(self):
        for token in self.tokens:
            if token["directive"] is not None:
                self._directive(token)
            else:
                self.state = self._step(token, *self.state)
        return self.found

    def _directive(self, token):
        word = token["directive"]
        if word in ("if", "ifdef", "ifndef"):
            self.branches.append((token.start(), copy.deepcopy(self.state)))
        elif word in ("else", "elif") and self.branches:
            branch_start, state = self.branches[-1]
            scopes, start, depth, holes = copy.deepcopy(state)
            if not self.code[start:branch_start].strip():
                start = token.end()  # the head begins after the #if
            self.state = (scopes, start, depth, holes)
        elif word == "endif" and self.branches:
            self.branches.pop()

    def _step(self, token, scopes, start, depth, holes):
        mark, top = token[0], scopes[-1]
        if mark == "{":
            return self._open(token, scopes, start, depth, holes)
        if mark == "}":
            return self._close(token, scopes, start, depth, holes)
        if top.kind in ("body", "init"):
            return scopes, start, depth, holes
        if mark in "()":
            return scopes, start, max(0, depth + (1 if mark == "(" else -1)), holes
        if token["access"]:
            if top.kind == "class" and depth == 0:
                top.is_public = token["access"] != "private" and scopes[-2].is_public
                return scopes, token.end(), 0, []
            return scopes, start, depth, holes
        if depth == 0:  # ";"
            self._add(start, token.start(), holes, top)
            return scopes, token.end(), 0, []
        return scopes, start, depth, holes

    def _open(self, token, scopes, start, depth, holes):
        top = scopes[-1]
        if top.kind in ("body", "init"):
            scopes.append(_Scope(top.kind, resume_depth=depth))
            return scopes, start, depth, holes
        head = self._head(start, token.start(), holes)
        kind = "init" if depth > 0 else classify(head)
        line = self._first_line(start, head)
        self.scope_count += 1
        scope = _Scope(kind, top.is_public, first_line=line, resume_depth=depth,
                       number=self.scope_count, names=top.names)
        scopes.append(scope)
        self._note_type(head, scope)
        if kind == "init":
            return scopes, start, depth, holes + [token.start()]
        if kind == "body":
            scope.callable_index = self._add(start, token.start(), holes, top)
        elif kind == "namespace":
            hidden = re.search(r"\b(?:internal|detail)\b", head) or not re.search(
                r"\bnamespace\s+\w|\bextern\b", head)
            scope.is_public = top.is_public and not hidden
        elif re.search(r"\bclass\b", head):
            scope.is_public = False
        return scopes, token.end(), 0, []

    def _note_type(self, head, scope):
        flat = re.sub(r"\b(?:alignas|__attribute__)\s*\(\)", "", _flatten(head))
        word = re.match(r"(?:typedef\s+)?(?:class|struct|union|enum(?:\s+(?:class|struct))?)\b"
                        r"\s*([\w:]*)", flat)
        if scope.kind not in ("class", "init") or not word or re.search(r"[(=]", flat):
            return
        parts = word[1].strip(":").split("::")
        outer = "::".join([*scope.names, *parts[:-1]])
        self.types.append(Type(parts[-1], outer, scope.first_line, scope.number))
        scope.names = (*scope.names, *parts)

    def _close(self, token, scopes, start, depth, holes):
        if len(scopes) == 1:
            return scopes, token.end(), 0, []  # unbalanced; the compiler reports it
        scope = scopes.pop()
        if scopes[-1].kind in ("body", "init"):
            return scopes, start, depth, holes
        if scope.kind == "init":
            return scopes, start, scope.resume_depth, holes + [token.start()]
        if scope.callable_index >= 0:
            function = self.found[scope.callable_index]
            function.has_body, function.last_line = True, self._line(token.start())
        return scopes, token.end(), 0, []

    def _head(self, start, end, holes):
        text = self.code[start:end]
        for left, right in zip(holes[::2], holes[1::2]):
            left, right = left - start, right - start
            text = text[: left + 1] + _blank(text[left + 1 : right]) + text[right:]
        return text

    def _add(self, start, end, holes, scope):
        head = self._head(start, end, holes)
        self.found.append(Callable(head.strip(), self._first_line(start, head), self._line(end),
                                   scope.is_public, scope.first_line, scope.number))
        return len(self.found) - 1

    def _first_line(self, start, head):
        return self._line(start + len(head) - len(head.lstrip()))

    def _line(self, offset):
        return self.code.count("\n", 0, offset) + 1


def outline(text):
    """Every Callable of a file, in order; heads of fields and types are among them."""
    return _Outliner(text).run()


def types(text):
    """Every Type of a file, in order."""
    outliner = _Outliner(text)
    outliner.run()
    by_scope = {one.scope: one for one in outliner.types}
    for found in outliner.found:
        owner = by_scope.get(found.scope)
        if owner and not found.has_body and found.parameters() is None:
            owner.members += _declared_members(found.head)
    return outliner.types


def _declared_members(head):
    """How many data members a declaration in a class declares: `int a, b;` are two."""
    head = without_template(head)
    word = re.match(r"[\w]*", head)[0]
    if not head or word in ("using", "typedef", "friend", "static", "static_assert", "class",
                            "struct", "enum", "union", "template", "case", "extern"):
        return 1 if re.match(r"(?:class|struct|union)\s+[\w:]+\s*[*&]?\s+\w", head) else 0
    if re.search(r"\boperator\b|^~|^(?:inline|constexpr) static\b|=\s*(?:default|delete)$", head):
        return 0
    return 1 + len(_top_level_commas(head.split("=")[0], 0, len(head.split("=")[0])))


def without_template(head):
    """`head` without a leading `template <...>` and attributes."""
    head = re.sub(r"\[\[.*?\]\]", "", head, flags=re.DOTALL).strip()
    while match := re.match(r"template\s*<", head):
        depth, at = 1, match.end()
        while depth and at < len(head):
            depth += {"<": 1, ">": -1}.get(head[at], 0)
            at += 1
        head = head[at:].strip()
    return head


def _flatten(head):
    """`head` without the contents of () and <>, and with operator names as words."""
    text = _OPERATOR.sub("operator_", without_template(head)).replace("->", " RETURNS ")
    flat, parentheses, angles = [], 0, 0
    for mark in text:
        if parentheses == 0 and mark in "<>":
            angles = max(0, angles + (1 if mark == "<" else -1))
        elif angles == 0 and mark in "()":
            parentheses = max(0, parentheses + (1 if mark == "(" else -1))
            if parentheses == (1 if mark == "(" else 0):
                flat.append(mark)
        elif parentheses == 0 and angles == 0:
            flat.append(mark)
    return "".join(flat).strip()


def classify(head):
    """The kind of scope that a brace after `head` opens: "namespace", "class", "body", "init"."""
    flat = _flatten(head)
    if re.match(r"(?:inline\s+)?namespace\b|extern\s*\"\s*\"$", flat):
        return "namespace"
    if re.search(r"\benum\b", flat) and "(" not in flat:
        return "init"
    bare = re.sub(r"\b(?:alignas|__attribute__)\s*\(\)", "", flat)
    if re.match(r"(?:typedef\s+)?(?:class|struct|union)\b", bare) and not re.search(r"[(=]", bare):
        return "class"
    if "=" in flat:
        is_lambda = re.search(r"\]\s*(?:\(\)\s*(?:mutable\b|noexcept\b|\s|RETURNS.*)*)?$", flat)
        return "body" if is_lambda and re.search(r"=\s*\[", flat) else "init"
    if "()" not in flat:
        return "init"
    if re.search(r"\brequires\s+requires\s*\(\)$", flat):
        return "init"
    if initialisers := re.search(r"\(\)[^:]*(?<!:):(?!:)(.*)$", flat, re.DOTALL):
        return "body" if re.search(r"[)}]\s*$", initialisers[1]) else "init"
    tail = flat[flat.rindex("()") + 2 :]
    is_function = re.fullmatch(
        r"[\s&]*(?:(?:const|noexcept|override|final|volatile|try)\b[\s&]*)*"
        r"(?:RETURNS.*)?(?:requires\b.*)?", tail, re.DOTALL)
    return "body" if is_function or "requires" in flat else "init"


def _parameter_span(head):
    """(begin, end) of the text inside the first parentheses that follow a function's name."""
    text = _OPERATOR.sub(lambda m: "_" * len(m[0]), head).replace("->", "__")
    angle_depth, offset = 0, len(head) - len(without_template(head))
    for at in range(offset, len(text)):
        angle_depth += {"<": 1, ">": -1}.get(text[at], 0)
        if text[at] == "=":
            return None
        if text[at] != "(" or angle_depth > 0:
            continue
        name = re.search(r"(\w+)\s*$", text[:at])
        if name and name[1] not in _NOT_A_NAME:
            return at + 1, _closing(text, at)
    return None


def _closing(text, opening):
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def _top_level_commas(text, begin, end):
    depth, commas = 0, []
    for at in range(begin, end):
        depth += (text[at] in "(<{[") - (text[at] in ")>}]")
        if text[at] == "," and depth == 0:
            commas.append(at)
    return commas
