"""`relquery models`: which models run here, how fast they would be, and fetching them. `relquery
doctor`: what is installed here, and whether a model computes what it should."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from rich.console import Console

from relquery import native
from relquery.backends.local import forecast
from relquery.backends.local.forecast import QUICK, Forecast, Here, Speed
from relquery.backends.local.open import compare_with_stock
from relquery.cli.interrupt import exits_when_interrupted, interruptible
from relquery.cli.terminal import by_rows, errors_console, fits, say, table, to_json
from relquery.errors import ModelError

models = typer.Typer(
    help="""List models that run here, how fast they would be, and fetch them.

    Tokens a second are foretold: an answer reads all weights for each token, a prompt takes two
    operations for each weight and token. How many this machine's processor does in a second is
    measured first, with dtype bfloat16, or float32 for encoders; keep it idle meanwhile. Memory is
    that of the weights, the states of 4,096 tokens and Python.

    [bold]Examples[/bold]

    relquery models

    relquery models fetch Qwen/Qwen2.5-0.5B-Instruct:Q4_K_M

    relquery models fetch sentence-transformers/all-MiniLM-L6-v2
    """,
    rich_markup_mode="rich",
)


class WeightFormat(Enum):
    """The format in which models of text would have their weights."""

    FOUR_BITS = "Q4_K_M"
    BFLOAT16 = "bfloat16"


@models.callback(invoke_without_command=True)
def list_(
    ctx: typer.Context,
    weights: Annotated[
        WeightFormat, typer.Option(help="In which format models of text would be.")
    ] = WeightFormat.FOUR_BITS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    with interruptible(), errors_console().status("measuring this machine"):
        speeds = forecast.measure_speeds((weights.value, "float32"))
    listed = [forecast.foretell(each, weights.value, speeds) for each in forecast.catalogue()]
    chosen = [each for each in forecast.recommended(listed) if each is not None]
    here = forecast.found_here()
    if as_json:
        names = {each.name for each in here}
        document = {
            "speeds": {form: asdict(speed) for form, speed in speeds.items()},
            "models": [_as_json(each, each in chosen, name_of(each) in names) for each in listed],
            "here": [asdict(each) for each in here],
        }
        typer.echo(to_json(document))
        return
    titles = (_title("Text", weights.value, speeds), _title("Encoders", "float32", speeds))
    _print(titles, listed, chosen, here)


@models.command()
def fetch(
    name: Annotated[
        str, typer.Argument(help="A name on the hub, also with a format: NAME:Q4_K_M.")
    ],
) -> None:
    """Download a model, unless it is here. Ctrl-C loses nothing: run the same command again.

    [bold]Examples[/bold]

    relquery models fetch Qwen/Qwen2.5-0.5B-Instruct:Q4_K_M

    relquery models fetch sentence-transformers/all-MiniLM-L6-v2
    """
    with exits_when_interrupted(
        "Interrupted. What has come is kept; run the same command for the rest."
    ):
        path = forecast.fetch(name)
    is_encoder = any(each.name == path and each.is_encoder for each in forecast.catalogue())
    option = "--embedder" if is_encoder else "-m"
    say(f"{path} is here. Use it: relquery sql {option} {path} ...")


def _print(
    titles: tuple[str, str],
    listed: Sequence[Forecast],
    chosen: Sequence[Forecast],
    here: Sequence[Here],
) -> None:
    """The models of text and the encoders, what else is here, and why some are recommended."""
    console, names = Console(), {each.name for each in here}
    for title, is_encoder in zip(titles, (False, True), strict=True):
        rows = [each for each in listed if each.model.is_encoder is is_encoder]
        columns = by_rows(_cells(each, each in chosen, name_of(each) in names) for each in rows)
        if not fits(columns.items(), console.width, _WHOLE):
            columns = {name: some for name, some in columns.items() if name not in _LEFT_OUT}
            columns = {name.replace(", ", ",\n"): some for name, some in columns.items()}
        _say(console, title)
        console.print(table(columns, words=("model", "licence", ""), whole="model"))
        console.print()
    known = {name_of(each) for each in listed}
    for model in here:
        if model.name not in known:
            _say(console, f"Also here: {model.name} ({_gb(model.size)} GB, {model.where})")
    for each in chosen:
        _say(console, _reason(each, name_of(each) in names))


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def name_of(one: Forecast) -> str:
    """The name by which a model in a format is opened."""
    is_packed = one.form == WeightFormat.FOUR_BITS.value
    model = one.model
    return f"{model.gguf}:{one.form}" if is_packed else model.name


_WHOLE = 1_000
"""Columns of a terminal in which any value can be read whole."""
_LEFT_OUT = ("parameters", "context", "file, GB", "licence")
"""Columns that a terminal of 80 has no room for."""


def _cells(one: Forecast, is_chosen: bool, is_here: bool) -> dict[str, str]:
    model = one.model
    notes = ["recommended"] * is_chosen + ["here"] * is_here
    notes += ["thinks first"] * model.thinks + ["needs words before a text"] * model.needs_prefix
    notes += ["too large"] * (not one.fits)
    answers = one.answer_speed
    return {
        "model": model.name,
        "parameters": f"{model.shape.parameters / 1e6:,.0f} M",
        "context": f"{model.context:,}",
        "file, GB": _gb(one.size),
        "memory, GB": _gb(one.memory),
        "prompt, tokens/s": _rate(one.prompt_speed),
        **({} if answers is None else {"answer, tokens/s": _rate(answers)}),
        "licence": model.licence,
        "": ", ".join(notes),
    }


def _as_json(one: Forecast, is_chosen: bool, is_here: bool) -> dict[str, Any]:
    return {"opened_as": name_of(one), "recommended": is_chosen, "here": is_here, **asdict(one)}


def _reason(one: Forecast, is_here: bool) -> str:
    """Why a model is recommended, and what to do with it."""
    model, rule = one.model, "fits into half of the memory, may be used for anything"
    if one.answer_speed is None:
        why = f"the fastest that {rule} and needs no words before a text"
    elif one.answer_speed >= QUICK:
        why = f"the largest that {rule}, answers at once and gives {QUICK:.0f} tokens a second"
    else:
        why = (
            f"the smallest that {rule} and answers at once; none gives {QUICK:.0f} tokens a second"
        )
    form = f":{one.form}" if name_of(one) != model.name else ""
    remedy = "" if is_here else f" Fetch it: relquery models fetch {model.name}{form}"
    return f"Recommended: {model.name}, {why}.{remedy}"


def _title(kind: str, form: str, speeds: Mapping[str, Speed]) -> str:
    speed = speeds[form]
    return (
        f"{kind}, in {form} ({speed.weights / 1e9:.1f} billion weights are read here in a second, "
        f"and {speed.operations / 1e9:,.0f} billion operations done)"
    )


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f}"


def _rate(tokens: float) -> str:
    return f"{tokens:,.0f}" if tokens >= 10 else f"{tokens:.1f}"


def doctor(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A model of this machine to check.")
    ] = None,
) -> None:
    """Say what is installed here, and how far a model is from that of transformers.

    [bold]Example[/bold]

    relquery doctor -m Qwen/Qwen3-0.6B
    """
    for name, told in installation().items():
        typer.echo(f"{name:<13} {told}")
    if model is not None:
        check_model(model)


MOST_APART = 1e-3
"""Relative distance of log-probabilities in float32 that rounding explains."""
_PACKAGES = "duckdb", "torch", "transformers", "vllm"


def installation() -> Mapping[str, str]:
    """By name. Raises ConfigError if RELQUERY_TARGET names a target that is not here."""
    versions = {
        "relquery": version("relquery"),
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "processor": f"{os.cpu_count()} cores",
        "target": f"{native.target()} of {', '.join(native.targets())}",
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def check_model(name: str) -> None:
    """Print how far a model's logits are from those of transformers. Raises ModelError where they
    are further apart than rounding explains."""
    furthest = 0.0
    for each in compare_with_stock(name):
        told = f"off by {each.off:.0e}, {each.same} of {each.tokens} greedy tokens the same"
        typer.echo(f"{'compared':<13} {told}: {each.text}")
        furthest = max(furthest, each.off)
    if furthest > MOST_APART:
        raise ModelError(
            f"'{name}' computes something else here than in transformers: its log-probabilities "
            f"are off by {furthest:.0e}, and rounding explains {MOST_APART:.0e}. Report it with "
            "its config.json, and run the model on a server such as vLLM meanwhile."
        )
