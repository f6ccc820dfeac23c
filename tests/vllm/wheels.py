"""What the plug-in uses of vLLM, looked for in wheels: python -m tests.vllm.wheels WHEEL...

Nothing of a wheel is imported, so that versions are compared which cannot run here. Prints what
each lacks, and exits with 1 if any lacks something.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile

from relquery.vllm import contract

ATTRIBUTES = (
    *contract.OF_SCHEDULER,
    *contract.OF_MANAGER,
    *contract.OF_BLOCK,
    *contract.OF_REQUEST,
)
Found = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.stmt


@dataclass(slots=True)
class Wheel:
    """The modules of a wheel."""

    files: ZipFile
    _read: dict[str, ast.Module | None] = field(default_factory=dict)

    def module(self, name: str) -> ast.Module | None:
        """A module by its dotted name; None if there is none."""
        if name not in self._read:
            path = name.replace(".", "/")
            names = {*self.files.namelist()} & {f"{path}.py", f"{path}/__init__.py"}
            self._read[name] = ast.parse(self.files.read(names.pop())) if names else None
        return self._read[name]

    def find(self, name: str) -> tuple[str, Found] | None:
        """The module and the definition of a dotted name; None if there is none."""
        parts = name.split(".")
        for end in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:end])
            if self.module(module) is not None:
                return self._inside(module, parts[end:])
        return None

    def _inside(self, module: str, names: list[str]) -> tuple[str, Found] | None:
        found = self._top(module, names[0])
        for name in names[1:]:
            found = None if found is None else self._member(*found, name)
        return found

    def _top(self, module: str, name: str) -> tuple[str, Found] | None:
        """A name of a module, where it is defined."""
        tree = self.module(module)
        every = () if tree is None else ast.walk(tree)
        for node in (one for one in every if isinstance(one, ast.ImportFrom) and one.module):
            if any((one.asname or one.name) == name for one in node.names):
                package = f"{module}." if node.level else ""  # of a package's own __init__
                return self._top(f"{package}{node.module}", name)
        return next(((module, one) for one in getattr(tree, "body", ()) if _names(one, name)), None)

    def _member(self, module: str, of: Found, name: str) -> tuple[str, Found] | None:
        """A member of a class or of its base classes."""
        if not isinstance(of, ast.ClassDef):
            return None
        for one in of.body:
            if _names(one, name):
                return module, one
        for base in (one.id for one in of.bases if isinstance(one, ast.Name)):
            found = self._top(module, base)
            member = None if found is None else self._member(*found, name)
            if member is not None:
                return member
        return None

    def lacks(self, functions: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
        """Functions that are not there, and parameters that they do not have."""
        for name, parameters in functions.items():
            found = self.find(name)
            if found is None:
                yield name
                continue
            known = self._parameters(*found)
            yield from (f"{name}({one})" for one in parameters if one not in known)

    def _parameters(self, module: str, of: Found) -> set[str]:
        """Of a function, or of what makes an object of a class."""
        if isinstance(of, ast.ClassDef):
            init = self._member(module, of, "__init__")
            if init is not None:
                return self._parameters(*init)
            fields = (one.target for one in of.body if isinstance(one, ast.AnnAssign))
            return {one.id for one in fields if isinstance(one, ast.Name)}
        if not isinstance(of, ast.FunctionDef | ast.AsyncFunctionDef):
            return set()
        given = of.args
        several = [one for one in (given.vararg, given.kwarg) if one is not None]
        return {one.arg for one in [*given.args, *given.kwonlyargs, *several]}

    def attributes(self) -> set[str]:
        """Names of all attributes that code of the engine sets, defines or declares."""
        names: set[str] = set()
        for path in self.files.namelist():
            if not path.startswith(("vllm/v1/", "vllm/config/")) or not path.endswith(".py"):
                continue
            for node in ast.walk(ast.parse(self.files.read(path))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
                elif isinstance(node, ast.FunctionDef):
                    names.add(node.name)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    names.add(node.target.id)
        return names


def _names(node: ast.stmt, name: str) -> bool:
    """Whether a statement defines a name."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(one, ast.Name) and one.id == name for one in targets)


def missing(path: Path) -> list[str]:
    """What a wheel lacks of all that the plug-in uses."""
    with ZipFile(path) as files:
        wheel = Wheel(files)
        values = (*contract.NAMES, *contract.NAMES_OF_SPANS, *contract.OF_WORKER)
        lacks = [*wheel.lacks(contract.FUNCTIONS), *wheel.lacks(contract.OF_SPANS)]
        lacks += [name for name in values if wheel.find(name) is None]
        known = wheel.attributes()
        parts = dict.fromkeys(part for name in ATTRIBUTES for part in name.split("."))
        return lacks + [f"an attribute {part}" for part in parts if part not in known]


def main(paths: list[str]) -> int:
    """Print what each wheel lacks."""
    failed = 0
    for path in map(Path, paths):
        lacks = missing(path)
        failed |= bool(lacks)
        print(f"{path.name}: {'lacks ' + ', '.join(lacks) if lacks else 'has all of it'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
