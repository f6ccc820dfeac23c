"""BARGAIN's own package on a list of cases: python -m benchmarks.cascade.programs.bargain FILE

Reads cases as JSON: scores, answers, kind, target, failure, seeds, budgets. Prints, for each, the
calls asked and the answers given, by draw. A target for precision or recall has a budget of drawn
calls in BARGAIN; what is not decided then is asked, on all sides, so that calls are compared for
equal results. The budget is the one that asks least in total.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from BARGAIN import BARGAIN_A, BARGAIN_P, BARGAIN_PR, BARGAIN_R, Oracle, Proxy


class KnownProxy(Proxy):  # type: ignore[misc]
    """Scores that are known. data: yes or no, and how sure that is, by call."""

    def __init__(self, scores: Any) -> None:
        super().__init__(verbose=False)
        self.said, self.sure = scores >= 0.5, np.maximum(scores, 1 - scores)

    def get_preds_and_scores(self, indxs: Any, data_records: Any) -> Any:
        """Those of some calls."""
        return self.said[indxs].astype(int), self.sure[indxs]


class KnownOracle(Oracle):  # type: ignore[misc]
    """Answers that are known; it notes which are asked for."""

    def __init__(self, yes: Any) -> None:
        super().__init__(verbose=False)
        self.yes, self.asked = yes, np.zeros(len(yes), bool)

    def reset(self) -> None:
        """Nothing asked."""
        self.asked[:] = False

    def get_pred(self, data_records: Any, indxs: Any = None) -> Any:
        """The answers to some calls, 0 or 1."""
        self.asked[indxs] = True
        return self.yes[indxs].astype(int)

    def is_answer_correct(self, data_indxs: Any, data_records: Any, outputs: Any) -> Any:
        """Whether a proxy's answers are right."""
        return self.get_pred(data_records, data_indxs) == outputs

    def get_number_preds(self) -> int:
        """How many calls were asked."""
        return int(self.asked.sum())


def draw(case: dict[str, Any], seed: int, budget: int) -> tuple[int, list[bool]]:
    """(calls asked, answers) of one draw."""
    scores, yes = np.array(case["scores"]), np.array(case["yes"], bool)
    proxy, oracle, records = KnownProxy(scores), KnownOracle(yes), list(range(len(yes)))
    given = {"target": case["target"], "delta": case["failure"], "seed": seed}
    kind, said = case["kind"], np.zeros(len(yes), bool)
    if kind == "accuracy":
        chosen = BARGAIN_A(proxy, oracle, verbose=False, **given)
        said = np.array(chosen.process(records), bool)
    elif kind == "both":
        said[BARGAIN_PR(proxy, oracle, verbose=False, **given).process(records)] = True
    elif kind == "precision":
        said[BARGAIN_P(proxy, oracle, budget=budget, **given).process(records)] = True
        oracle.asked |= ~said
        said = np.where(oracle.asked, yes, said)
    else:
        said[BARGAIN_R(proxy, oracle, budget=budget, **given).process(records)] = True
        oracle.asked |= said
        said = said & yes
    return int(oracle.asked.sum()), said.tolist()


def main(path: Path) -> None:
    """Print the draws of all cases."""
    warnings.simplefilter("ignore")
    found = []
    for case in json.loads(path.read_text(encoding="utf-8")):
        by_budget = [
            [draw(case, seed, budget) for seed in range(case["draws"])]
            for budget in case["budgets"]
        ]
        found.append(min(by_budget, key=lambda draws: sum(calls for calls, _ in draws)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
