"""What deploy/ holds fits the package: files exist, flags are known, figures are exposed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from relquery.serve.metrics import Metrics
from tests.cli.flags import check_flags
from tests.deploy.dockerfile import DEPLOY, ROOT, read, with_bases
from tests.programs import needed

STAGES = read()
SERVED = ("cpu", "cuda")
_FIGURE = re.compile(r"\brelquery_\w+")
_OPTION = re.compile(r"^--?[a-z]")


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return found


def unit() -> str:
    return (DEPLOY / "relquery.service").read_text(encoding="utf-8")


def test_what_the_dockerfile_copies_is_there_and_is_sent_to_docker() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    sent = {line[1:] for line in ignored.splitlines() if line.startswith("!")}
    copied = {source for step in STAGES["base"].all("COPY") for source in step.words[:-1]}
    assert copied
    assert all((ROOT / source).exists() for source in copied)
    assert {source.removeprefix("./") for source in copied} == sent


def test_the_extras_that_the_dockerfile_installs_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = {
        name: set(re.findall(r"'(?:\.|relquery)\[([\w,]+)\]'", text)[0].split(","))
        for name in ("build", "build-cuda")
        if (text := " ".join(step.text for step in STAGES[name].all("RUN")))
    }
    assert asked["build"] <= set(extras)
    assert asked["build-cuda"] == {"torch"}, "only GPUs need it"
    assert STAGES["cuda"].all("COPY")[0].words[0] == "--from=build-cuda"


@pytest.mark.parametrize("name", SERVED)
def test_the_flags_of_an_image_are_accepted_and_it_ends_as_the_user_that_serves(name: str) -> None:
    steps = with_bases(STAGES, name)
    (entry,) = [step.words for step in steps if step.word == "ENTRYPOINT"]
    (usual,) = [step.words for step in steps if step.word == "CMD"]
    assert entry[0] == "relquery"
    check_flags([*entry[1:], *usual])
    assert [step.text for step in steps if step.word == "USER"][-1] == "relquery"


def test_flags_and_paths_of_the_compose_file_are_right() -> None:
    found = compose()
    server = found["services"]["relquery"]
    entry = STAGES["cpu"].one("ENTRYPOINT").words
    usual = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in server["command"]]
    check_flags([*entry[1:], *usual])
    assert (DEPLOY / server["build"]["context"]).resolve() == ROOT
    assert (ROOT / server["build"]["dockerfile"]) == DEPLOY / "Dockerfile"
    for name in ("compose.yaml", "compose.gpu.yaml"):
        assert compose(name)["services"]["relquery"]["build"]["target"] in SERVED
    for service in found["services"].values():
        for source in (volume.partition(":")[0] for volume in service["volumes"]):
            is_path = source.startswith(".")
            assert (DEPLOY / source).is_dir() if is_path else source in found["volumes"], source
        assert set(service.get("depends_on", ())) <= set(found["services"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    made = " ".join(step.text for step in STAGES["cpu"].all("RUN")).split()
    assert {volume.split(":")[1] for volume in server["volumes"]} <= set(made)


def test_prometheus_scrapes_the_port_of_the_service() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (scraped,) = config["scrape_configs"]
    host, _, port = scraped["static_configs"][0]["targets"][0].partition(":")
    assert host in compose()["services"]
    assert port == STAGES["cpu"].one("EXPOSE").text
    assert [(DEPLOY / "prometheus" / name).exists() for name in config["rule_files"]] == [True]


def test_flags_and_accounts_of_the_systemd_unit_are_right() -> None:
    service = dict(re.findall(r"^(\w+)=(.*)$", unit(), re.MULTILINE))
    command = shlex.split(service["ExecStart"])
    (options,) = re.findall(r'^Environment="OPTIONS=(.*)"$', unit(), re.MULTILINE)
    assert command[-1] == "$OPTIONS"
    check_flags([*command[1:-1], *shlex.split(options)])
    state = command[command.index("--state") + 1]
    assert state.startswith(f"/var/lib/{service['StateDirectory']}/")
    assert float(service["TimeoutStopSec"]) > 30 + 5  # the usual --grace, and last words


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """With a program and a user of this machine."""
    needed("systemd-analyze")
    text = re.sub(r"/opt/relquery/bin/relquery", shutil.which("true") or "", unit())
    path = tmp_path / "relquery.service"
    path.write_text(text.replace("User=relquery", "User=root"), encoding="utf-8")
    command = ("systemd-analyze", "verify", "--man=no", str(path))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "relquery.service" not in ran.stderr, ran.stderr
    assert ran.returncode == 0, ran.stderr


def test_the_commands_in_comments_are_accepted() -> None:
    """What the files tell their readers to type."""
    names = ("relquery.service", "compose.yaml", "prometheus/prometheus.yml")
    text = "".join((DEPLOY / name).read_text(encoding="utf-8") for name in names)
    lines = [line.replace("NAME", "me") for line in text.splitlines() if line.startswith("#")]
    found = re.findall(r"relquery (keys [^`&>\n]+)", "\n".join(lines))
    assert len(found) >= 3
    for command in found:
        check_flags(shlex.split(command))


def exposed() -> set[str]:
    """The names of all series on /metrics, once all figures have been counted."""
    page = Metrics("shortest").page(0, 0, None, 1).decode()
    found = set(re.findall(r"^# TYPE (\w+) \w+$", page, re.MULTILINE))
    histograms = re.findall(r"^# TYPE (\w+) histogram$", page, re.MULTILINE)
    return found | {name + end for name in histograms for end in ("_bucket", "_sum", "_count")}


def dashboards() -> list[Path]:
    return sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))


@pytest.mark.parametrize(
    "path", [*dashboards(), DEPLOY / "prometheus" / "rules.yml"], ids=lambda path: path.name
)
def test_what_is_shown_and_watched_is_exposed(path: Path) -> None:
    used = set(_FIGURE.findall(path.read_text(encoding="utf-8")))
    assert len(used) > 3
    assert used <= exposed()


def test_dashboards_name_the_provisioned_source() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    given = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())
    (source,) = given["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "relquery.yaml").read_text())["providers"]
    mounts = [each.split(":") for each in compose()["services"]["grafana"]["volumes"]]
    assert provider["options"]["path"] in [mount[1] for mount in mounts]
    for path in dashboards():
        text = path.read_text(encoding="utf-8")
        json.loads(text)
        assert set(re.findall(r'"uid": "(\w+)"', text)) <= {source["uid"], path.stem}
