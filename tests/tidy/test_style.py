"""House rules that a text search can keep: sizes, banned calls, includes and words, READMEs."""

import pathlib
import re
import shutil
import subprocess

import pytest
import tree
from functions import cpp_functions, python_functions

FILE_LINES = 600
FUNCTION_LINES = 70
HERE = "tests/tidy/"  # these files spell out what they ban

# Where a thing that is banned elsewhere has its one home.
ENVIRONMENT_HOME = ("src/base/config",)
CLOCK_HOME = ("src/base/clock", "src/os/clock", "src/os/env")
ASIO_HOME = re.compile(r"^src/net/[^/]*\.cpp$")
VENDOR_HOME = re.compile(
    r"^src/(device/(?!cpu/)\w+/|ep/cuda/|transfer/transports/(rdma|cuda_ipc|nvmeof|fabric)/)")


def own(names):
    return [name for name in names if not name.startswith(HERE)]


def sources():
    return own(tree.cpp_files() + tree.python_files())


def test_files_are_short():
    found = []
    for name in tree.cpp_files() + tree.python_files():
        lines = tree.text(name).count("\n")
        if lines > FILE_LINES and not tree.excepted("file", name, lines):
            found.append(f"{name}: {lines} lines, limit {FILE_LINES}")
    tree.check(found)


def test_functions_are_short():
    found = []
    for name in tree.cpp_files() + tree.python_files():
        functions = (python_functions(tree.text(name)) if name.endswith(".py")
                     else cpp_functions(tree.code(name)))
        for function, line, lines in functions:
            if lines > FUNCTION_LINES and not tree.excepted(
                    "function", f"{name}:{function}", lines):
                found.append(f"{name}:{line}: {function}: {lines} lines, limit {FUNCTION_LINES}")
    tree.check(found)


def test_asio_and_beast_stay_in_net():
    names = [name for name in tree.cpp_files() if not ASIO_HOME.match(name)]
    found = tree.find(r"#\s*include\s*[<\"]boost/(asio|beast)[/.][^>\"]*|\bboost::(asio|beast)\b",
                      own(names), tree.code)
    tree.check(tree.without_excepted("asio", found))


def test_headers_show_no_json():
    names = [name for name in tree.cpp_files("src/", "include/") if name.endswith(".h")]
    found = tree.find(r"#\s*include\s*[<\"]nlohmann/[^>\"]*|\bnlohmann::", names, tree.code)
    tree.check(tree.without_excepted("json", found))


def test_headers_show_no_vendor_types():
    names = [name for name in tree.cpp_files("src/", "include/")
             if name.endswith(".h") and not VENDOR_HOME.match(name)]
    found = tree.find(
        r"#\s*include\s*[<\"](cuda|hip/|hip_|infiniband/|rdma/|cufile|musa|acl/|nccl)[^>\"]*"
        r"|\bibv_\w+|\bcuda(Stream|Event|Error|IpcMem)\w*|\bCUdeviceptr\b|\bCUstream\b",
        names, tree.code)
    tree.check(tree.without_excepted("vendor", found))


def test_vendor_conditionals_stay_home():
    names = [name for name in tree.cpp_files("src/", "include/") if not VENDOR_HOME.match(name)]
    found = tree.find(r"^\s*#\s*(el)?if\w*.*\b(USE_)?(CUDA|HIP|MUSA|ASCEND|RDMA|EFA)\b.*$",
                      names, tree.code)
    tree.check(tree.without_excepted("vendor-if", found))


def test_tests_do_not_sleep():
    """Executor::sleep_for() is not meant: a test waits for it on the simulated clock."""
    names = own(name for name in sources() if tree.is_test(name))
    found = tree.find(r"\bthis_thread::sleep_\w+|\b(usleep|nanosleep)\b|\bsleep\s*\(\s*\d",
                      [name for name in names if not name.endswith(".py")], tree.code)
    found += tree.find(r"\b(time|asyncio)\.sleep\b(?!\s*\(\s*0\s*\))|^from time import .*\bsleep\b",
                       [name for name in names if name.endswith(".py")])
    tree.check(tree.without_excepted("sleep", found))


def test_nothing_is_left_to_do():
    words = r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b"
    found = tree.find(words, own(name for name in tree.files() if name != "LICENSE"))
    tree.check(found)


def test_wall_clock_has_one_home():
    """base::system_clock() is not meant: it is that home, and monotonic."""
    names = [name for name in tree.cpp_files() if not name.startswith(CLOCK_HOME)]
    found = tree.find(r"\bchrono::system_clock\b|\bgettimeofday\b|\bCLOCK_REALTIME\b",
                      own(names), tree.code)
    tree.check(tree.without_excepted("clock", found))


def test_environment_is_read_in_one_place():
    names = [name for name in tree.cpp_files("src/", "include/", "programs/", "bindings/")
             if not name.startswith(ENVIRONMENT_HOME) and not tree.is_test(name)]
    found = tree.find(r"\b(secure_)?getenv\b", names, tree.code)
    tree.check(tree.without_excepted("getenv", found))


def test_no_thread_is_detached():
    found = tree.find(r"\.detach\s*\(\s*\)|\bpthread_detach\b", own(tree.cpp_files()), tree.code)
    tree.check(tree.without_excepted("detach", found))


def folders_that_need_a_readme():
    folders = set()
    for name in tree.files():
        parts = name.split("/")
        if len(parts) < 2:
            continue
        if parts[0] in ("programs", "bench", "tools", "cmake", "tests", "simulator"):
            folders.add(parts[0])
        if parts[0] in ("src", "bindings", "tests") and len(parts) > 2:
            folders.add("/".join(parts[:2]))
        if parts[0] == "src" and parts[-1] == "CMakeLists.txt":
            folders.add("/".join(parts[:-1]))
    return sorted(folders)


def test_every_folder_has_a_readme():
    found = [f"{folder}: no README.md of a paragraph" for folder in folders_that_need_a_readme()
             if not tree.excepted("readme", folder)
             and len(tree.text_or_empty(f"{folder}/README.md").split()) < 10]
    tree.check(found)


def test_every_source_is_built():
    """Each .cpp under src/ is named by a CMakeLists.txt at or above it; each named one exists."""
    lists = {str(pathlib.PurePosixPath(name).parent): tree.text(name) for name in tree.files()
             if name.startswith("src/") and name.endswith("/CMakeLists.txt")}
    found = []
    for name in tree.cpp_files("src/"):
        if name.endswith((".cpp", ".cc")) and not any(
                str(folder) in lists and built_by(lists[str(folder)], str(folder), name)
                for folder in pathlib.PurePosixPath(name).parents):
            found.append(f"{name}: no CMakeLists.txt names it")
    for folder, content in lists.items():
        for word in re.findall(r"[\w./-]+\.(?:cpp|cc|fbs)\b", re.sub(r"#[^\n]*", "", content)):
            if not (tree.ROOT / folder / word).exists():
                found.append(f"{folder}/CMakeLists.txt: {word} does not exist")
    tree.check(tree.without_excepted("unused", found))


def built_by(content, folder, name):
    relative = name.removeprefix(folder + "/")
    if re.search(rf"(?<![\w./-]){re.escape(relative)}(?![\w.])", content):
        return True
    # An mc_plugin line without SOURCES takes its folder, or the file with its name.
    for call in re.findall(r"mc_plugin\s*\(\s*\w+\s+(\w+)([^)]*)\)", content):
        if "SOURCES" not in call[1] and "/" not in relative:
            if folder.endswith("/" + call[0]) or relative in (f"{call[0]}.cpp", f"{call[0]}_test.cpp"):
                return True
    return False


def test_format():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if tool is None:
        pytest.skip("clang-format 14 is not installed (tools/setup)")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
    if " 14." not in version:
        pytest.skip(f"needs clang-format 14, found {version.strip()}")
    names = [name for name in tree.cpp_files() if not name.endswith((".inc",))]
    found = []
    for begin in range(0, len(names), 50):
        run = subprocess.run([tool, "--dry-run", "--ferror-limit=1", *names[begin:begin + 50]],
                             cwd=tree.ROOT, capture_output=True, text=True)
        found += re.findall(r"^(\S+?):\d+:\d+: (?:warning|error)", run.stderr, re.M)
    tree.check(sorted(set(found)), "run `make format`")


def test_the_function_finder_finds():
    """The heuristic itself, on the shapes that matter here."""
    code = """
namespace a::b {
template <class T>
struct X final : Base<T> {
  explicit X(int v) noexcept : a_{v}, b_(v) {
    use();
  }
  int get() const { return a_; }
  int a_{0};
  static constexpr int kTable[] = {1, 2};
};
Task<int> run(Env& env) {
  auto f = [&] { return 1; };

  co_return f();
}
auto g() -> std::vector<int> {
  return {};
}
TEST(Suite, Name) {
  if (x) { y(); }
}
enum class E : int { a, b };
}
"""
    found = {name: (line, lines) for name, line, lines in cpp_functions(code)}
    assert found == {"X": (5, 3), "get": (8, 1), "run": (12, 5), "g": (17, 3),
                     "Suite.Name": (20, 3)}
