"""A source compiles, and its twin with a mistake does not.

    compile_fail_test.py SOURCE EXPECTED COMPILER [OPTION...]

EXPECTED is a regular expression. It must match the messages about SOURCE with LMDBIO_BAD defined.
"""

import os
import re
import subprocess
import sys


def messages_of(command):
    """(exit status, messages in English) of a compiler."""
    result = subprocess.run(command, env={**os.environ, "LC_ALL": "C"}, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


def main():
    source, expected, *compiler = sys.argv[1:]
    good = [*compiler, "-fsyntax-only", source]
    bad = [*compiler, "-fsyntax-only", "-DLMDBIO_BAD", source]
    status, messages = messages_of(good)
    if status != 0:
        print(f"{' '.join(good)}\nthe good twin does not compile:\n{messages}")
        return 1
    status, messages = messages_of(bad)
    if status == 0:
        print(f"{' '.join(bad)}\nthe bad twin compiles")
        return 1
    if not re.search(expected, messages):
        print(f"{' '.join(bad)}\nno message matches '{expected}':\n{messages}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
