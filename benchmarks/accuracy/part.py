"""One small model over all tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from benchmarks import stock
from benchmarks.accuracy.asking import Answers, ask
from benchmarks.accuracy.comparison import Compared, compare
from benchmarks.accuracy.datasets import DATASETS, Dataset, read
from benchmarks.accuracy.variants import BASE, BASE_FORM, OF_ORDER, VARIANTS, Variant
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.templates import template
from relquery.connection import connect

WORDS = template("accuracy")
MODELS = Path(__file__).parents[2] / ".real-models"
QUICK_ROWS = 5


@dataclass(slots=True)
class ModelPart(Part):
    """The part of a model: its folder below MODELS has its name."""

    lists_reported: ClassVar[bool] = False
    found: dict[str, dict[str, Answers]] = field(default_factory=dict)
    """Of each variant, by table."""
    compared: dict[str, dict[str, Compared]] = field(default_factory=dict)
    """The same against the base; of all tables together under no name."""

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        folder = MODELS / self.name
        samples = dict(_samples(settings, say))
        if not folder.is_dir() or not samples:
            note = f"{folder.name} is absent: scripts/real-models {self.name}"
            if folder.is_dir():
                note = f"{settings.data} has none of the tables"
            yield Figure(f"{self.name}_answered", None, 1.0, note=note)
            return
        stock.set_threads(settings.threads)
        for variant, dataset in self._ask(folder, samples, say):
            yield self._figure(variant, dataset, settings.seed, say)
        for variant in VARIANTS[1:]:
            if variant.name in self.found:
                yield self._pooled(variant, settings.seed)
        yield from self._judged()

    def _ask(
        self, folder: Path, samples: Mapping[Dataset, pa.Table], say: Say
    ) -> Iterator[tuple[Variant, Dataset]]:
        """Each variant over each table, once it is asked; the base first."""
        for opened, variants in groupby(VARIANTS, lambda one: one.opened):
            some = list(variants)
            options = {"dtype": "float32", **opened}
            say(f"{self.name}: opening with {options}")
            with closing(
                connect(str(folder), form=BASE_FORM, ledger=None, progress=False, **options)
            ) as connection:
                for dataset, sample in samples.items():
                    for variant in some:
                        if variant.factor in OF_ORDER and not dataset.has_order:
                            continue
                        answers = ask(connection, dataset, sample, variant)
                        self.found.setdefault(variant.name, {})[dataset.name] = answers
                        yield variant, dataset

    def _figure(self, variant: Variant, dataset: Dataset, seed: int, say: Say) -> Figure:
        answers = self.found[variant.name][dataset.name]
        of_table = {dataset.name: answers}
        base = {dataset.name: self.found[BASE.name][dataset.name]}
        compared = compare(of_table, base, seed)
        self.compared.setdefault(variant.name, {})[dataset.name] = compared
        note = (
            f"{compared.right.points(is_difference=False)}% right of {compared.rows}, "
            f"{compared.right_more.points()} more than in the base, {compared.same:.0%} the same, "
            f"{compared.tokens:.0f} tokens a row"
        )
        say(f"{self.name}, {dataset.name}, {variant.name}: {note}")
        name = f"{self.name}_{dataset.name}_{variant.name}"
        return Figure(name, compared.right.value, None, note=note)

    def _pooled(self, variant: Variant, seed: int) -> Figure:
        of_tables = self.found[variant.name]
        base = {name: self.found[BASE.name][name] for name in of_tables}
        self.compared[variant.name][""] = compared = compare(of_tables, base, seed)
        note = f"{compared.right_more.points()} points over {compared.rows:,} rows"
        return Figure(f"{self.name}_{variant.name}", compared.right_more.value, None, note=note)

    def _judged(self) -> Iterator[Figure]:
        """What must hold of any sample."""
        asked = [table for tables in self.found.values() for table in tables.values()]
        rows = sum(len(answers.answered) for answers in asked)
        answered = sum(int(answers.answered.sum()) for answers in asked)
        note = f"share of {rows:,} calls that were answered with a label"
        yield Figure(f"{self.name}_answered", answered / rows, 1.0, note=note, any_size=True)
        sizes = {form: self._tokens_of_one_field(form) for form in ("json", "text")}
        if all(sizes.values()):
            note = ", ".join(f"{form} {size:.1f}" for form, size in sizes.items())
            note = f"tokens of text to those of JSON, a row of one field: {note}"
            name, ratio = f"{self.name}_text_tokens", sizes["text"] / sizes["json"]
            yield Figure(name, ratio, 1.0, at_least=False, note=note, any_size=True)

    def _tokens_of_one_field(self, form: str) -> float:
        answers = self.found[BASE.name if form == BASE_FORM else form]
        return sum(
            answers[dataset.name].tokens
            for dataset in DATASETS
            if dataset.name in answers and not dataset.has_order
        )

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if not self.compared:
            return
        yield WORDS.block(self.name)
        yield "### All tables\n"
        yield from table(
            (
                "changed",
                "rows",
                "right, points more",
                "AUC, points more",
                "same answers",
                "tokens a row",
            ),
            [
                (
                    variant.name,
                    f"{compared.rows:,}",
                    compared.right_more.points(),
                    "-" if compared.auc_more is None else compared.auc_more.points(),
                    f"{compared.same:.1%}",
                    f"{compared.tokens:.0f}",
                )
                for variant in VARIANTS[1:]
                if (compared := self.compared.get(variant.name, {}).get("")) is not None
            ],
        )
        for dataset in DATASETS:
            if dataset.name in self.found[BASE.name]:
                yield from self._of_table(dataset)

    def _of_table(self, dataset: Dataset) -> Iterator[str]:
        base = self.found[BASE.name][dataset.name]
        yield f"### {dataset.name}\n"
        fields = len(dataset.fields)
        yield WORDS.block(
            "table",
            question=dataset.question,
            rows=len(base.gold),
            fields="1 field" if fields == 1 else f"{fields} fields",
            yes=f"{base.gold.mean():.0%}",
            said=f"{base.said.mean():.0%}",
        )
        yield from table(
            (
                "variant",
                "right, %",
                "points more",
                "AUC, %",
                "points more",
                "same answers",
                "tokens a row",
            ),
            [self._row(variant, dataset) for variant in VARIANTS if self._has(variant, dataset)],
        )
        guarded = self.found.get("guard", {}).get(dataset.name)
        if guarded is not None and guarded.agreement is not None:
            kept = "sent all fields as written" if guarded.is_pinned else "kept our order"
            yield f"The guard found an agreement of {guarded.agreement:.2f}, and {kept}.\n"

    def _has(self, variant: Variant, dataset: Dataset) -> bool:
        return dataset.name in self.compared.get(variant.name, {})

    def _row(self, variant: Variant, dataset: Dataset) -> tuple[str, ...]:
        compared = self.compared[variant.name][dataset.name]
        is_base = variant is BASE
        return (
            variant.name,
            compared.right.points(is_difference=False),
            "" if is_base else compared.right_more.points(),
            "-" if compared.auc is None else compared.auc.points(is_difference=False),
            "" if is_base else "-" if compared.auc_more is None else compared.auc_more.points(),
            "" if is_base else f"{compared.same:.0%}",
            f"{compared.tokens:.0f}",
        )


class SmolLM2(ModelPart):
    """SmolLM2-135M, which follows instructions."""

    name, title = "smollm2", "SmolLM2-135M"


class Gemma3(ModelPart):
    """Gemma 3 270M, which was trained on text alone."""

    name, title = "gemma3", "Gemma 3 270M"


def _samples(settings: Settings, say: Say) -> Iterator[tuple[Dataset, pa.Table]]:
    for dataset in DATASETS:
        rows = QUICK_ROWS if settings.quick else dataset.rows
        sample = read(dataset, settings.data, rows, settings.seed)
        if sample is None:
            say(f"{settings.data / dataset.file} is absent: {dataset.name} is left out")
        else:
            yield dataset, sample
