"""`relquery calibrate`: measure what a model's steps cost on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from relquery.cli.terminal.interrupt import exits_when_interrupted
from relquery.cli.terminal.options import CacheTokens, Json
from relquery.cli.terminal.show import progress, say, to_json
from relquery.cli.terminal.tables import check_output
from relquery.engine.cost import TRUSTED, Fit
from relquery.engine.machines import write_machine
from relquery.errors import ConfigError

_WORDS = {
    "prefill_slope": "per prompt token",
    "prefill_intercept": "per step with prompts",
    "decode_slope": "per decoding request",
    "decode_intercept": "per step that decodes",
    "context_slope": "per cached token attended to",
}


def calibrate(
    model: Annotated[str, typer.Argument(help="A model name or folder, as in `relquery sql`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.json", help="Where to write it.")
    ] = None,
    cache_tokens: CacheTokens = None,
    seed: Annotated[int, typer.Option(help="Seed of the batches' random tokens.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure batches of many sizes and fit the linear cost model that predicts their seconds.

    R² on batches of other sizes, which the model was not fitted to, shows how well it predicts.
    Keep the machine idle while it runs.

    [bold]Examples[/bold]

    relquery calibrate demo --output laptop.json
    """
    from relquery.backends.local.open import load_backend

    if output is not None:
        check_output(output, [".json"])
    if model.startswith("openai:"):
        raise ConfigError("A provider's steps cannot be measured; calibrate a local model.")
    limits = {} if cache_tokens is None else {"cache_tokens": cache_tokens}
    backend = load_backend(model, **limits)
    with exits_when_interrupted(), progress() as advance:
        fit = backend.calibrate(seed=seed, progress=advance)
    if output is not None:
        write_machine(output, model, fit, backend.config)
    if as_json:
        typer.echo(to_json({"model": model, **asdict(fit)}))
    else:
        Console(soft_wrap=True).print(_table(model, fit))
    told = fit.r2 if fit.held_out is None else min(fit.r2, fit.held_out)
    if told < TRUSTED:
        say(
            f"This cost model predicts badly (R² {told:.2f}): something else was running, or the "
            "steps are too short to time. Measure again on an idle machine."
        )


def _table(model: str, fit: Fit) -> Table:
    held_out = "" if fit.held_out is None else f"; {fit.held_out:.3f} on batches of other sizes"
    caption = f"R² {fit.r2:.3f} on the {fit.steps} batches fitted{held_out}"
    title = f"Seconds of a step of {model}"
    view = Table(title=title, caption=caption, show_edge=False, pad_edge=False)
    view.add_column("")
    view.add_column("milliseconds", justify="right")
    for name, meaning in _WORDS.items():
        view.add_row(meaning, f"{1e3 * getattr(fit.cost, name):.4g}")
    return view
