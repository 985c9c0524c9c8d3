"""The tree as the style tests see it: files, code without comments, exceptions."""

import functools
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPP = (".h", ".cpp", ".cc", ".cu", ".cuh", ".inc")


@functools.cache
def files():
    """All files git tracks or would track, as paths relative to the root."""
    # safe.directory: the tree may belong to another user than the one who tests it.
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True).stdout.decode()
    names = sorted(set(filter(None, listing.split("\0"))))
    return [name for name in names if (ROOT / name).is_file()]


@functools.cache
def text(name):
    """Content of a file, or "" for a binary one."""
    data = (ROOT / name).read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


def cpp_files(*folders):
    return [name for name in files()
            if name.endswith(CPP) and (not folders or name.startswith(folders))]


def python_files():
    return [name for name in files() if name.endswith(".py")]


def is_test(name):
    return (name.startswith("tests/") or "/tests/" in name
            or re.search(r"_test\.(cpp|cc|py)$|(^|/)test_[^/]*\.py$", name) is not None)


_SKIP = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|R"(?P<tag>[^()\s\\"]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)


@functools.cache
def code(name):
    """C++ with comments gone and literals emptied; line numbers stay."""
    def blank(match):
        found = match.group(0)
        kept = "\n" * found.count("\n")
        if found.startswith("/"):
            return " " + kept
        return ('""' if found[0] in 'R"' else "' '") + kept

    # #include lines hold a name in quotes that the layer test wants.
    lines = text(name)
    includes = {}

    def keep(match):
        includes[len(includes)] = match.group(0)
        return f"#include @{len(includes) - 1}@"

    lines = re.sub(r'^[ \t]*#[ \t]*include[ \t]*["<][^">\n]+[">]', keep, lines, flags=re.M)
    lines = _SKIP.sub(blank, lines)
    return re.sub(r"#include @(\d+)@", lambda match: includes[int(match.group(1))], lines)


def find(pattern, names, source=text):
    """`file:line: text` of each place where the pattern matches."""
    found = []
    for name in names:
        content = source(name)
        for match in re.finditer(pattern, content, re.M):
            line = content.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: {match.group(0).strip()}")
    return found


@functools.cache
def exceptions():
    """{(rule, what)} of exceptions.txt."""
    result = {}
    path = pathlib.Path(__file__).with_name("exceptions.txt")
    for line in path.read_text().splitlines():
        line = line.split("#")[0].split()
        if line:
            result[(line[0], line[1])] = int(line[2]) if len(line) > 2 else None
    return result


used_exceptions = set()


def excepted(rule, what, value=0):
    """True if exceptions.txt allows `what` (up to its number, if it names one)."""
    if (rule, what) not in exceptions():
        return False
    used_exceptions.add((rule, what))
    limit = exceptions()[(rule, what)]
    return limit is None or value <= limit


def without_excepted(rule, found):
    """Drops the finds (`file:line: ...`) whose file is excepted from the rule."""
    return [line for line in found if not excepted(rule, line.split(":")[0])]


def text_or_empty(name):
    return text(name) if (ROOT / name).is_file() else ""


def check(found, hint=""):
    """Fails with one line per find."""
    found = [str(line) for line in found]
    if found:
        pytest.fail("\n".join([*found, hint] if hint else found), pytrace=False)
