"""Names, docstrings and state of modules, read from the source: what CONTRIBUTING.md asks for."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import relquery

ROOT = Path(relquery.__file__).parent
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}
RIDDLE = re.compile(r"(?:What|How|Where|Why|Whether|Which|Who|Whose|Whom)\b|See \S+$")
"""Beginnings of docstrings that do not say what the thing is."""
STATE = {
    "backends/provider/batch_run.py _submitting": "batches that this process submits right now",
    "cli/shell/commands.py COMMANDS": "filled while the module is imported",
    "engine/requests/pieces.py _latest": "one prompt's keys: comparing takes a tenth of hashing",
    "redaction.py _known": "a secret of the process, to be hidden in any of its messages",
    "sql/host/catalog.py _OF_NEW": "the functions of new databases, the same for all in a process",
    "sql/parser/tree.py _BY_CLASS": "filled while the module is imported",
    "sql/parser/tree.py _BY_TYPE": "filled while the module is imported",
}
"""What modules keep and change, and why it is not an argument."""
CHANGING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "remove", "update"}


def test_no_two_public_classes_have_one_name() -> None:
    homes = defaultdict[str, list[str]](list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_docstrings_of_modules_and_classes_say_what_the_thing_is() -> None:
    riddles = [
        f"{path}: {text.splitlines()[0]}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef)
        and (text := ast.get_docstring(node)) is not None
        and RIDDLE.match(text.splitlines()[0])
    ]
    assert riddles == []


def changed(tree: ast.Module) -> Iterator[str]:
    """Names of a module's own objects that its code changes, or binds anew."""
    own = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        local = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} | {
            each.id
            for each in ast.walk(function)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        for node in ast.walk(function):
            match node:
                case ast.Global(names):
                    yield from names
                case ast.Subscript(ast.Name(name), _, ast.Store() | ast.Del()):
                    yield from {name} & own - local
                case ast.Call(ast.Attribute(ast.Name(name), what)) if what in CHANGING:
                    yield from {name} & own - local


def test_modules_keep_no_state_but_what_is_listed_with_its_reason() -> None:
    found = {f"{path} {name}" for path, tree in TREES.items() for name in changed(tree)}
    assert found == set(STATE)
