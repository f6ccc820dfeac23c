"""What the plug-in uses of vLLM is listed, and what moves is named."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from relquery.vllm import contract
from relquery.vllm.contract import MovedError, check_code, check_request, check_scheduler
from tests.engine.harness import for_each
from tests.vllm.fake import Scheduler
from tests.vllm.test_scheduler import request, scheduler
from tests.vllm.wheels import Wheel

SOURCE = Path(contract.__file__).parent


def test_the_pinned_signatures_hold() -> None:
    check_code()
    contract.check_spans()
    contract.check_worker()
    check_scheduler(scheduler("fcfs"))
    check_request(request("r", [1], 1))


def test_every_name_that_is_imported_is_in_the_list() -> None:
    listed = [*contract.FUNCTIONS, *contract.NAMES, *contract.OF_SPANS]
    listed += [*contract.NAMES_OF_SPANS, *contract.OF_WORKER]
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm"):
                for name in node.names:
                    used = f"{node.module}.{name.name}"
                    assert any(one == used or one.startswith(f"{used}.") for one in listed), used


def test_what_has_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Scheduler, "_preempt_request")
    monkeypatch.setattr(Scheduler, "schedule", lambda self, throttle: None)
    with pytest.raises(MovedError, match=r"vLLM 0\.32") as error:
        check_code()
    assert error.value.moved == [
        "vllm.v1.core.sched.async_scheduler.AsyncScheduler.schedule(throttle_prefills)",
        "vllm.v1.core.sched.scheduler.Scheduler.schedule(throttle_prefills)",
        "vllm.v1.core.sched.scheduler.Scheduler._preempt_request",
    ]


@for_each("name", ["max_num_active_reqs", "hash_block_size"])
def test_attributes_that_are_gone_are_named(name: str) -> None:
    served: Any = scheduler("fcfs")
    delattr(served, name)
    with pytest.raises(MovedError, match=f"Scheduler.{name}"):
        check_scheduler(served)
    gone: Any = request("r", [1], 1)
    del gone.block_hashes
    with pytest.raises(MovedError, match=r"Request\.block_hashes"):
        check_request(gone)


@for_each("name, of", [("kv_cache_group_id", "SimpleNamespace"), ("block_id", "KVCacheBlock")])
def test_attributes_of_managers_and_blocks_that_are_gone_are_named(name: str, of: str) -> None:
    served = scheduler("fcfs")
    kept = served.kv_cache_manager
    is_block = of == "KVCacheBlock"
    delattr(served.pool.blocks[0] if is_block else kept.coordinator.single_type_managers[0], name)
    with pytest.raises(MovedError, match=rf"{of}\.{name}"):
        check_scheduler(served)


def test_a_wheel_is_read_for_all_of_it_without_being_imported(tmp_path: Path) -> None:
    parts = {
        "vllm/__init__.py": "from vllm.llm import LLM",
        "vllm/llm.py": "class A:\n    def step(self, a, *, b): ...\nclass LLM(A):\n    x: int",
        "vllm/v1/__init__.py": "from .core import Pool",
        "vllm/v1/core.py": "class Pool:\n    def __init__(self, n): self.total = n\n    FULL = 1",
    }
    with ZipFile(tmp_path / "vllm.whl", "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
    with ZipFile(tmp_path / "vllm.whl") as file:
        wheel = Wheel(file)
        there = {"vllm.LLM": ("x",), "vllm.LLM.step": ("a", "b"), "vllm.v1.Pool": ("n",)}
        assert not [*wheel.lacks(there)]
        gone = {"vllm.LLM.stop": (), "vllm.LLM.step": ("c",), "vllm.v2.Pool": ()}
        assert [*wheel.lacks(gone)] == ["vllm.LLM.stop", "vllm.LLM.step(c)", "vllm.v2.Pool"]
        assert wheel.find("vllm.v1.core.Pool.FULL") is not None
        assert wheel.attributes() == {"total", "__init__"}
