"""lmdbio/api/options.toml for tests: the rows that a test sets to their examples."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "lmdbio" / "api" / "options.toml"


def rows(kind):
    """The options of a table, without callbacks. None if this Python cannot read TOML."""
    try:
        import tomllib
    except ModuleNotFoundError:
        return None
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [row for row in table[kind] if row["type"] != "callback"]


def flag_words(name, value):
    """An option as words of a command line."""
    if isinstance(value, bool):
        value = "on" if value else "off"
    return ["--" + name.replace("_", "-"), value]
