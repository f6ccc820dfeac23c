"""The layers of the package, read from its imports (those inside functions included)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

BASE = {
    "_native",
    "arrays",
    "lazy",
    "native",
    "interrupts",
    "errors",
    "config",
    "prompt",
    "tools",
    "redaction",
    "unicode",
    "pii",
}
WHAT = {"ir", "reordering", "markup", "retrieval", "sql"}
WHEN = {"engine", "model"}
RECORDS = {"report", "ledger"}

# From low to high: a part of the package, and the other parts that it may import.
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "arrays": set(),
    "lazy": {"arrays"},
    "redaction": set(),
    "pii": {"errors"},
    "unicode": set(),
    "interrupts": set(),
    "_native": set(),
    "native": {"_native", "errors"},
    "config": {"errors"},
    "tools": {"errors"},
    "prompt": {"errors", "tools"},
    "html": set(),
    "progress": BASE | {"html"},
    "report": BASE | {"html"},
    "ledger": BASE,
    "backends.base": BASE,
    "prices": {"errors"},
    "backends.schemas": BASE,
    "backends.wires": BASE | {"prices", "backends.schemas"},
    # what to compute
    "ir": BASE,
    "reordering": BASE | {"prices", "backends.wires"},
    "retrieval": BASE,
    "cascade": BASE,
    "span": BASE | {"ir"},
    "spans": BASE | RECORDS | {"ir", "reordering", "backends.base"},
    "markup": BASE | {"backends.base"},
    "sql": BASE
    | RECORDS
    | {
        "prices",
        "html",
        "ir",
        "reordering",
        "markup",
        "retrieval",
        "cascade",
        "backends.base",
    },
    # when and where
    "engine": BASE,
    "model": BASE | {"engine"},
    "backends": BASE
    | WHEN
    | RECORDS
    | {"prices", "retrieval", "backends.base", "backends.schemas", "backends.wires", "demo"},
    "vllm.in_process": BASE | {"engine", "backends.base", "backends.schemas", "backends.wires"},
    "backends.load": BASE | WHEN | {"backends.base", "backends", "vllm.in_process"},
    "traces": BASE | {"engine"},
    # where both meet
    "demo": {"errors"},
    "connection": BASE
    | WHAT
    | RECORDS
    | {"progress", "backends.base", "backends", "backends.load", "demo", "spans"},
    "evaluation": {"errors", "report", "html", "sql", "connection"},
    "notebook": {"errors", "html", "sql", "connection"},
    "frames": BASE
    | RECORDS
    | {"progress", "sql", "retrieval", "backends.base", "backends", "connection"},
    "spark": BASE
    | WHAT
    | RECORDS
    | {"progress", "backends.base", "backends", "backends.load", "connection"},
    "vllm": BASE | {"engine"},
    "serve": BASE
    | WHAT
    | RECORDS
    | {"engine", "html", "backends.base", "backends", "backends.load", "demo", "connection"}
    | {"span", "spans"},
    "__main__": {"cli"},
    "cli": BASE
    | WHAT
    | RECORDS
    | {"engine", "traces", "backends.base", "backends", "backends.load", "demo", "connection"}
    | {"span", "spans", "serve", "progress", "prices"},
}

# The rooms of a part, from low to high: a room imports only itself and rooms before it. An entry
# is a folder or a module; what no entry names stands on top.
ROOMS: dict[str, list[str]] = {
    "sql": [
        "names", "exchange", "host", "parser", "types", "binder", "retrieval", "optimizer",
        "planner", "inputs", "caching", "record", "render", "page", "result", "executor",
        "explain",
    ],
    "reordering": [
        "encode", "items", "dependencies", "solvers.problem", "solvers", "cost", "prompts",
        "schedule",
    ],
    "ir": [
        "nodes", "paths", "rules", "optimize", "lower", "text", "wire_fields", "wire",
    ],
    "markup": [
        "reader", "schema", "imports", "tokens", "layout", "lower", "schemas", "program",
    ],
    "engine": [
        "cost", "machines", "requests", "block_pool", "executor", "scheduling.plan",
        "scheduling.reuse", "scheduling.policies.steps", "scheduling.policies.remaining",
        "scheduling.policies.fairness", "scheduling.policies.priority", "scheduling", "step",
        "calibration",
    ],
    "model": [
        "formats", "text", "tool_grammar", "grammar", "sampler", "networks", "attention_plan",
        "store", "footprint", "served", "native_runtime", "native_model", "hub", "gguf_store",
        "installed", "catalogue", "torch_runtime", "load", "simulated",
    ],
    "backends": [
        "schemas", "base", "arguments", "tokenizer", "wires", "scoring", "local", "remote",
        "provider.spending", "provider.config", "provider.providers", "provider.errors",
        "provider.failure_policy", "provider.client", "provider.server", "provider.limiter",
        "provider.budget", "provider.codec", "provider.dispatch", "provider",
    ],
    "frames": [
        "hints", "data", "expressions", "arguments", "relation", "recall", "runs", "frame", "lotus",
    ],
    "serve": [
        "settings", "errors", "bodies", "auth", "metrics", "streaming", "server", "logs",
        "sql_workers", "openai", "batches.store", "anthropic", "batches", "scores", "queries",
        "status", "middleware", "mcp", "app", "serving", "run",
    ],
    "cascade": ["bounds", "proxies", "sampling", "thresholds"],
    "evaluation": ["threshold", "columns", "comparison", "evaluation"],
    "pii": ["lists", "patterns", "persons", "placeholders"],
    "cli": [
        "terminal", "command", "interrupt", "tables", "app", "sql.options",
        "sql.output", "shell", "sql",
    ],
}  # fmt: skip
# Third-party packages that stay inside some parts.
CONFINED = {
    "torch": {"model", "vllm"},
    "transformers": {"model"},
    "openai": {"serve"},
    "httpx2": {"backends", "backends.load"},
    "fastapi": {"serve"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "mcp": {"serve"},
    "IPython": {"notebook", "progress"},
}

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "relquery"


def module_name(path: Path) -> str:
    """`sql.plan` for src/relquery/sql/plan.py; `sql` for its __init__; `` for the package's."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
PACKAGE = ""  # relquery itself: its names come lazily, from any layer, and no module imports it
BELOW_PACKAGE = [module for module in MODULES if module != PACKAGE]


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import; write it in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


IMPORTS = {module: list(imports(path)) for module, path in MODULES.items()}
MODULES["_native"], IMPORTS["_native"] = SOURCE / "native", []  # the extension


def own_imports(module: str) -> set[str]:
    """Modules of this package that a module imports."""
    found = set()
    for name in IMPORTS[module]:
        if name.split(".")[0] == "relquery":
            target = name.removeprefix("relquery").removeprefix(".")
            while target not in MODULES:  # a name in a module, not a module
                target = target.rpartition(".")[0]
            found.add(target)
    return found


GRAPH = {module: own_imports(module) for module in MODULES}


@cache
def part_of(module: str) -> str:
    """The longest entry of LAYERS that holds the module."""
    holders = [part for part in LAYERS if f"{module}.".startswith(f"{part}.")]
    assert holders, f"{module} is in no layer: give it a place in LAYERS"
    return max(holders, key=len)


def test_a_module_imports_only_from_layers_below() -> None:
    arrows = [(module, target) for module in BELOW_PACKAGE for target in GRAPH[module]]
    lazy = [module for module, target in arrows if target == PACKAGE]
    assert not lazy, f"{lazy} import relquery itself; import the module that is needed"
    breaches = [
        f"{module} > {target}"
        for module, target in arrows
        if part_of(target) not in LAYERS[part_of(module)] | {part_of(module)}
    ]
    assert not breaches, "\n".join(sorted(breaches))


def floor(module: str) -> int:
    """Of the room that holds a module of ROOMS' parts; higher than all where none does."""
    part, _, rest = module.partition(".")
    rooms = ROOMS.get(part, [])
    holders = [room for room in rooms if f"{rest}.".startswith(f"{room}.")]
    return rooms.index(max(holders, key=len)) if holders else len(rooms)


@pytest.mark.parametrize("part", ROOMS)
def test_no_arrow_between_rooms_goes_up(part: str) -> None:
    inside = [module for module in BELOW_PACKAGE if f"{module}.".startswith(f"{part}.")]
    arrows = ((module, target) for module in inside for target in GRAPH[module] - {part})
    up = [f"{a} > {b}" for a, b in arrows if f"{b}.".startswith(f"{part}.") and floor(b) > floor(a)]
    assert not up, "\n".join(sorted(up))


def test_rooms_exist() -> None:
    named = {f"{part}.{room}" for part, rooms in ROOMS.items() for room in rooms}
    assert named <= set(MODULES), f"no such room: {', '.join(sorted(named - set(MODULES)))}"


def test_modules_import_one_another_in_no_cycle() -> None:
    graph = {module: targets - {module} for module, targets in GRAPH.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {' -> '.join(error.args[1])}")


def test_a_heavy_package_is_imported_in_its_own_part_alone() -> None:
    strays = [
        f"{module} > {root}"
        for module in BELOW_PACKAGE
        for root in {name.split(".")[0] for name in IMPORTS[module]} & set(CONFINED)
        if part_of(module) not in CONFINED[root]
    ]
    assert not strays, "\n".join(sorted(strays))


def test_planning_and_execution_know_nothing_of_each_other() -> None:
    for part in WHAT:
        assert not LAYERS[part] & WHEN
    for part in WHEN:
        assert not LAYERS[part] & WHAT
