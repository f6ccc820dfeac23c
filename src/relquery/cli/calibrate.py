"""`relquery calibrate`: measure what a model's steps cost on this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console

from relquery.cli.command import argument, command_of, option
from relquery.cli.interrupt import exits_when_interrupted
from relquery.cli.tables import check_output
from relquery.cli.terminal import progress, say, table, to_json
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


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Measure batches of many sizes and fit the linear cost model that predicts their seconds.

    R² on batches of other sizes, which the model was not fitted to, shows how well it predicts.
    Keep the machine idle while it runs.

    [bold]Examples[/bold]

    relquery calibrate demo --output laptop.json
    """

    model: str = argument("A model name or folder, as in `relquery sql`.")
    output: Path | None = option("Where to write it.", "--output", "-o", metavar="FILE.json")
    cache_tokens: int | None = option("Capacity of the KV cache in tokens.")
    seed: int = option("Seed of the batches' random tokens.", default=0)
    as_json: bool = option("Print the result as JSON.", "--json", default=False)

    def __call__(self) -> None:
        """Run it."""
        from relquery.backends.local.open import load_backend

        if self.output is not None:
            check_output(self.output, [".json"])
        if self.model.startswith("openai:"):
            raise ConfigError("A provider's steps cannot be measured; calibrate a local model.")
        limits = {} if self.cache_tokens is None else {"cache_tokens": self.cache_tokens}
        backend = load_backend(self.model, **limits)
        with exits_when_interrupted(), progress() as advance:
            fit = backend.calibrate(seed=self.seed, progress=advance)
        if self.output is not None:
            write_machine(self.output, self.model, fit, backend.config)
        if self.as_json:
            typer.echo(to_json({"model": self.model, **asdict(fit)}))
        else:
            self._show(fit)
        _warn(fit)

    def _show(self, fit: Fit) -> None:
        held_out = "" if fit.held_out is None else f"; {fit.held_out:.3f} on batches of other sizes"
        columns = {
            "": list(_WORDS.values()),
            "milliseconds": [f"{1e3 * getattr(fit.cost, name):.4g}" for name in _WORDS],
        }
        console = Console(soft_wrap=True)
        title = f"Seconds of a step of {self.model}"
        console.print(table(columns, title, None, ("",), lines=True))
        note = f"R² {fit.r2:.3f} on the {fit.steps} batches fitted{held_out}"
        console.print(note, highlight=False)


calibrate = command_of(Calibrate)


def _warn(fit: Fit) -> None:
    """Say where times are predicted badly."""
    told = fit.r2 if fit.held_out is None else min(fit.r2, fit.held_out)
    if told < TRUSTED:
        say(
            f"This cost model predicts badly (R² {told:.2f}): something else was running, or the "
            "steps are too short to time. Measure again on an idle machine."
        )
