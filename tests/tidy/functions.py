"""Finds functions and their lengths: C++ by braces, Python by its own parser."""

import ast
import re

_TEMPLATE = re.compile(r"^\s*template\s*<")
_CONTAINER = re.compile(
    r"^(?:(?:inline|static|constexpr|const|typedef|export|friend)\s+|\[\[.*?\]\]\s*)*"
    r"(?:namespace|class|struct|union|enum|extern\s*\"\")(?!\w)", re.S)
_CALLABLE_END = re.compile(
    r"(?:\)|\bconst|\bnoexcept|\boverride|\bfinal|\btry|&|->\s*[^;{}=]+|requires[^;{}]+)\s*$", re.S)
_INIT_LIST = re.compile(r"\)\s*(?:noexcept(?:\s*\([^)]*\))?\s*)?:(?!:)(?:.*[,\s])?\s*[\w:<>]+\s*$", re.S)


def cpp_functions(code):
    """Yields (name, first line, lines) for each function with a body, given tree.code()."""
    # Preprocessor lines go, with their continuations; line numbers stay.
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda match: "\n" * match.group(0).count("\n"), code, flags=re.M)
    head_start = 0
    position = 0
    while position < len(code):
        char = code[position]
        if char in ";}":
            head_start = position + 1
        elif char == "{":
            head = code[head_start:position]
            kind = _classify(head)
            if kind == "container":
                head_start = position + 1
            else:
                end = _matching(code, position)
                if kind == "function":
                    stripped = len(head) - len(head.lstrip())
                    begin = code.count("\n", 0, head_start + stripped) + 1
                    yield _name(head), begin, code.count("\n", 0, end) + 2 - begin
                position = end
                if kind == "function":
                    head_start = end + 1
                # After an initializer the head goes on.
        position += 1


def _classify(head):
    head = _strip_template(head.strip())
    head = re.sub(r"^(?:public|private|protected)\s*:\s*", "", head)
    head = _strip_template(head)
    if _CONTAINER.match(head) and not _CALLABLE_END.search(head):
        return "container"
    if "(" not in head or re.search(r"=\s*$|=\s*[\w:<>]+\s*$", head):
        return "data"
    if _INIT_LIST.search(head) and not re.search(r"[)}]\s*$", head):
        return "data"  # a member's braces in a constructor's list
    return "function"


def _strip_template(head):
    while _TEMPLATE.match(head):
        depth = 0
        for index, char in enumerate(head):
            depth += {"<": 1, ">": -1}.get(char, 0)
            if char == ">" and depth == 0:
                head = head[index + 1:].strip()
                break
        else:
            return head
    return head


def _matching(code, position):
    depth = 0
    for index in range(position, len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if depth == 0:
            return index
    return len(code) - 1


def _name(head):
    head = _strip_template(head.strip())
    test = re.match(r"(?:TEST|TEST_F|TEST_P|RC_GTEST_\w+|TYPED_TEST)\s*\(\s*(\w+)\s*,\s*(\w+)", head)
    if test:
        return f"{test.group(1)}.{test.group(2)}"
    match = re.search(r"([~\w:]+|operator\s*\S+?)\s*\(", head)
    return match.group(1) if match else "(unnamed)"


def python_functions(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1
