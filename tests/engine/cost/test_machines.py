"""Cost models come by name or from a file, which is checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relquery.config import EngineConfig
from relquery.engine.cost.accelerators import SERVED
from relquery.engine.cost.fit import Fit
from relquery.engine.cost.job_time import JobTime, JobTimeFit
from relquery.engine.cost.linear import LinearCost
from relquery.engine.cost.machines import find_machine, with_cache, write_machine
from relquery.errors import ConfigError

FIT = Fit(LinearCost(1e-3, 0.1, 2e-3, 0.2, 1e-6), 40, 0.99, 0.97)


def test_a_written_cost_model_is_read_back(tmp_path: Path) -> None:
    limits = EngineConfig(max_num_seqs=9, cache_tokens=4_096)
    write_machine(tmp_path / "laptop.json", "demo", FIT, limits)
    found = find_machine(str(tmp_path / "laptop.json"))
    assert found.cost == FIT.cost
    assert (found.limits.max_num_seqs, found.limits.cache_tokens) == (9, 4_096)
    assert with_cache(found, 64).limits.cache_tokens == 64
    assert with_cache(found, None) is found


def test_a_prompts_time_is_read_back_where_it_was_fitted(tmp_path: Path) -> None:
    path, job_time = tmp_path / "laptop.json", JobTime(-0.1, 1e-4, 9e-5, 1e-8)
    write_machine(path, "demo", FIT, EngineConfig())
    assert find_machine(str(path)).job_time is None
    write_machine(path, "demo", FIT, EngineConfig(), JobTimeFit(job_time, (), 0.9, 0.99))
    assert find_machine(str(path)).job_time == job_time
    assert with_cache(find_machine(str(path)), 64).job_time == job_time
    for part, name in (("job_time", "attention"), ("cost", "decode_slope")):
        content = json.loads(path.read_text())
        content[part][name] = -1
        path.with_stem(name).write_text(json.dumps(content))
        with pytest.raises(ConfigError, match="negative"):
            find_machine(str(path.with_stem(name)))


def test_known_machines_have_names() -> None:
    assert find_machine("a100-opt13b") is SERVED["a100-opt13b"]
    with pytest.raises(ConfigError, match="Did you mean 'a100-opt13b'"):
        find_machine("a100-opt13")


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ["", "{}", "[]", '{"cost": {}, "limits": {}}', "7"]:
        path.write_text(text)
        with pytest.raises(ConfigError, match="is not a cost model"):
            find_machine(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        find_machine(str(tmp_path / "absent.json"))
