"""The floors of layers.txt hold for every #include line and for every DEPENDS in src/."""

import pathlib
import re

import tree


class Layers:
    """layers.txt, parsed."""

    def __init__(self, text):
        self.floor, self.allow, self.only, self.public = {}, [], {}, {}
        height = 0
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "floor":
                height += 1
                self.floor.update(dict.fromkeys(words[1:], height))
            elif words[0] == "allow":
                self.allow.append((words[1], words[3]))
            elif words[0] == "only":
                self.only[words[1]] = set(words[3:])
            elif words[0] == "public":
                self.public[words[1]] = words[2]

    def complaint(self, user, used):
        """Why `user` (path below src/, or a top folder) must not use `used`; None if it may."""
        from_module, to_module = user.split("/")[0], used.split("/")[0]
        for module in (from_module, to_module):
            if module not in self.floor:
                return f"layers.txt has no floor for {module}"
        for folder, modules in self.only.items():
            if (user.startswith(folder + "/") and not used.startswith(folder + "/")
                    and to_module not in modules):
                return f"{folder} may use only {', '.join(sorted(modules))}"
        if from_module == to_module or self.floor[to_module] < self.floor[from_module]:
            return None
        for left, right in self.allow:
            if from_module == left and used.startswith(right):
                return None
        return f"{to_module} is not on a lower floor than {from_module}"


def layers():
    return Layers(tree.text("layers.txt"))


def user_of(name):
    """Where a file lives, as a path that begins with a name of layers.txt."""
    if name.startswith("src/"):
        return name.removeprefix("src/")
    if name.startswith("include/mooncake/"):
        return public_module(name.removeprefix("include/mooncake/")) + "/" + name
    return name


def public_module(rest):
    """Module of include/mooncake/REST: listed, of the same name, or else the lowest floor."""
    rules = layers()
    stem = rest.split("/")[0].split(".")[0]
    return rules.public.get(stem, stem if stem in rules.floor else "base")


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)


def include_complaints(name, content, rules):
    modules = set(rules.floor)
    for match in INCLUDE.finditer(content):
        quote, target = match.groups()
        line = content.count("\n", 0, match.start()) + 1
        if target.startswith("mooncake/"):
            used = public_module(target.removeprefix("mooncake/")) + "/" + target
        elif quote == '"':
            used = target
            if name.startswith("src/") and "/" not in target:
                yield f'{name}:{line}: "{target}": write the path from src/'
                continue
            if name.startswith("include/"):
                yield f'{name}:{line}: "{target}": public headers include <mooncake/...> only'
                continue
        else:
            continue
        if used.split("/")[0] not in modules:
            if quote == '"' and name.startswith("src/"):
                yield f'{name}:{line}: "{target}": not a module of layers.txt'
            continue
        complaint = rules.complaint(user_of(name), used)
        if complaint:
            yield f"{name}:{line}: {target}: {complaint}"


def test_includes_go_down_only():
    rules = layers()
    found = []
    for name in tree.cpp_files("src/", "include/", "programs/", "bindings/python/", "simulator/"):
        found += include_complaints(name, tree.code(name), rules)
    tree.check(tree.without_excepted("layers", found))


CALL = re.compile(r"mc_(?:module|plugin)\s*\(([^)]*)\)", re.S)
KEYWORDS = {"SOURCES", "TESTS", "DEPENDS", "LIBS", "SCHEMAS", "FLATC_FLAGS", "TEST_LIBS",
            "TEST_LABELS", "TEST_TIMEOUT", "REQUIRES"}


def depends_of(content):
    """All words after DEPENDS in mc_module and mc_plugin calls."""
    content = re.sub(r"#[^\n]*", "", content)
    for call in CALL.finditer(content):
        current = None
        for word in call.group(1).split():
            if word in KEYWORDS:
                current = word
            elif current == "DEPENDS":
                yield word


def module_paths():
    """Module name -> path below src/, from the mc_module calls."""
    paths = {}
    for name in tree.files():
        if name.startswith("src/") and name.endswith("/CMakeLists.txt"):
            folder = str(pathlib.PurePosixPath(name).parent).removeprefix("src/")
            for match in re.finditer(r"mc_module\s*\(\s*(\w+)", tree.text(name)):
                paths[match.group(1)] = folder
            for match in re.finditer(r"mc_plugin\s*\(\s*(\w+)\s+(\w+)", tree.text(name)):
                paths[f"{match.group(1)}_{match.group(2)}"] = folder
    return paths


def test_links_go_down_only():
    rules, paths, found = layers(), module_paths(), []
    for name in tree.files():
        if not (name.startswith("src/") and name.endswith("/CMakeLists.txt")):
            continue
        folder = str(pathlib.PurePosixPath(name).parent).removeprefix("src/")
        for used in depends_of(tree.text(name)):
            path = paths.get(used, used.replace("_", "/", 1))
            # A link can't tell wire types from the rest; the include test does.
            complaint = rules.complaint(folder + "/", path + "/")
            allowed = [right for left, right in rules.allow if left == folder.split("/")[0]]
            if complaint and not any(right.startswith(path.split("/")[0]) for right in allowed):
                found.append(f"{name}: DEPENDS {used}: {complaint}")
    tree.check(found)


def test_every_module_has_a_floor():
    floors = layers().floor
    modules = {name.split("/")[1] for name in tree.files()
               if name.startswith("src/") and name.count("/") > 1}
    tree.check(sorted(modules - set(floors)), "name them in layers.txt")


def test_the_rules_bite():
    """The checker itself: one case per rule."""
    rules = Layers("floor base\nfloor net memory\nfloor store ep conductor reshard collective\n"
                   "allow ep -> collective\nallow conductor -> store/wire\nonly reshard/plan -> base")
    assert rules.complaint("net/a.cpp", "base/b.h") is None
    assert rules.complaint("base/a.cpp", "net/b.h")
    assert rules.complaint("net/a.cpp", "memory/b.h")
    assert rules.complaint("ep/a.cpp", "collective/b.h") is None
    assert rules.complaint("collective/a.cpp", "ep/b.h")
    assert rules.complaint("conductor/a.cpp", "store/wire.h") is None
    assert rules.complaint("conductor/a.cpp", "store/master/master.h")
    assert rules.complaint("reshard/plan/a.cpp", "net/b.h")
    assert rules.complaint("reshard/exec/a.cpp", "net/b.h") is None
    assert rules.complaint("reshard/plan/a.cpp", "base/b.h") is None
    found = list(include_complaints("src/base/a.h", '#include "net/b.h"\n#include "b.h"\n', rules))
    assert len(found) == 2
    assert list(depends_of("mc_module(net SOURCES a.cpp DEPENDS base os LIBS x)")) == ["base", "os"]
