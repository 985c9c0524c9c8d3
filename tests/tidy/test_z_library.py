"""libmooncake.so loads on Ubuntu 22.04, and the exception list has no dead entries.

Runs last by its name: the exceptions are judged after the other rules have used them."""

import os
import pathlib
import re
import subprocess

import pytest
import tree

NEWEST_GLIBC = (2, 35)
NEWEST_GLIBCXX = (3, 4, 30)
# What the library may need at run time. yaml-cpp and re2 travel in the wheel.
MAY_NEED = re.compile(
    r"^(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libssl|libcrypto|ld-linux-x86-64"
    r"|ld-linux-aarch64|libyaml-cpp|libre2)\.so")


def library():
    folders = [os.environ.get("MOONCAKE_BUILD_DIR", ""), tree.ROOT / "build/dev",
               tree.ROOT / "build/release"]
    for folder in filter(None, folders):
        path = pathlib.Path(folder) / "lib/libmooncake.so"
        if path.exists():
            return path
    pytest.skip("libmooncake.so is not built in build/dev or build/release: nothing was checked")


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments, str(library())],
                          capture_output=True, text=True, check=True).stdout


def version(text):
    return tuple(int(part) for part in text.split("."))


def test_old_systems_can_load_it():
    symbols = readelf("--version-info")
    glibc = {version(found) for found in re.findall(r"\bGLIBC_([0-9.]+)", symbols)}
    glibcxx = {version(found) for found in re.findall(r"\bGLIBCXX_([0-9.]+)", symbols)}
    assert glibc, "readelf shows no GLIBC versions"
    assert max(glibc) <= NEWEST_GLIBC
    assert max(glibcxx, default=(0,)) <= NEWEST_GLIBCXX


def test_it_needs_nothing_unusual():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic"))
    odd = [name for name in needed if not MAY_NEED.match(name)
           and not name.startswith(("libasan", "libubsan", "libtsan"))]
    tree.check(odd)


def test_exceptions_are_needed(request):
    ran = {item.fspath.basename for item in request.session.items}
    if not {"test_style.py", "test_layers.py"} <= ran:
        pytest.skip("judges only a run of the whole folder")
    unused = set(tree.exceptions()) - tree.used_exceptions
    tree.check(sorted(unused), "delete these lines of exceptions.txt")
