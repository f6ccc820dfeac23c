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
from relquery.engine.cost import TRUSTED, Fit, JobTime, JobTimeFit, LinearCost
from relquery.engine.machines import write_machine
from relquery.errors import ConfigError

_WORDS = {
    "prefill_slope": "per prompt token",
    "prefill_intercept": "per step with prompts",
    "decode_slope": "per decoding request",
    "decode_intercept": "per step that decodes",
    "context_slope": "per cached token attended to",
}
_JOB_WORDS = {
    "fixed": "of any prompt",
    "per_token": "per token",
    "per_cached": "less per cached token",
    "attention": "per pair of tokens that attend",
}


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Measure batches of many sizes and fit the linear cost model that predicts their seconds.

    R² on batches of other sizes, which the model was not fitted to, shows how well it predicts.
    Keep the machine idle while it runs. --longest-prompt also fits a prompt's time to its length
    and cached tokens; policy srjf then uses that fit instead of the uncached tokens alone.

    [bold]Examples[/bold]

    relquery calibrate demo --output laptop.json

    relquery calibrate demo --longest-prompt 2000 --output laptop.json
    """

    model: str = argument("A model name or folder, as in `relquery sql`.")
    output: Path | None = option("Where to write it.", "--output", "-o", metavar="FILE.json")
    cache_tokens: int | None = option("Capacity of the KV cache in tokens.")
    longest_prompt: int | None = option(
        "Also time prompts of up to this many tokens, partly cached, for policy srjf.",
        metavar="TOKENS",
    )
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
            jct = None  # first, as it may be refused
            if (longest := self.longest_prompt) is not None:
                jct = backend.time_prompts(longest, seed=self.seed, progress=advance)
            fit = backend.calibrate(seed=self.seed, progress=advance)
        if self.output is not None:
            write_machine(self.output, self.model, fit, backend.config, jct)
        if self.as_json:
            prompts = {} if jct is None else {"prompts": asdict(jct)}
            typer.echo(to_json({"model": self.model, **asdict(fit), **prompts}))
        else:
            self._show(fit, jct)
        _warn(fit, jct)

    def _show(self, fit: Fit, jct: JobTimeFit | None) -> None:
        held_out = "" if fit.held_out is None else f"; {fit.held_out:.3f} on batches of other sizes"
        _print(
            f"Seconds of a step of {self.model}",
            _WORDS,
            fit.cost,
            f"R² {fit.r2:.3f} on the {fit.steps} batches fitted{held_out}",
        )
        if jct is not None:
            _print(
                f"Seconds of a prompt of {self.model}",
                _JOB_WORDS,
                jct.job_time,
                f"Pearson's r {jct.fitted:.3f} with the seconds of {len(jct.timed)} prompts; "
                f"{jct.proxy:.3f} of their uncached tokens alone",
            )


calibrate = command_of(Calibrate)


def _print(title: str, words: dict[str, str], fitted: LinearCost | JobTime, note: str) -> None:
    columns = {
        "": list(words.values()),
        "milliseconds": [f"{1e3 * getattr(fitted, name):.4g}" for name in words],
    }
    console = Console(soft_wrap=True)
    console.print(table(columns, title, None, ("",), lines=True))
    console.print(note, highlight=False)


def _warn(fit: Fit, jct: JobTimeFit | None) -> None:
    """Say where times are predicted badly."""
    if jct is not None and jct.fitted < TRUSTED:
        say(
            f"Prompt times are predicted badly (Pearson's r {jct.fitted:.2f}): something else was "
            "running, or the prompts are too short to time. Measure again on an idle machine, or "
            "without --longest-prompt."
        )
    told = fit.r2 if fit.held_out is None else min(fit.r2, fit.held_out)
    if told < TRUSTED:
        say(
            f"This cost model predicts badly (R² {told:.2f}): something else was running, or the "
            "steps are too short to time. Measure again on an idle machine."
        )
