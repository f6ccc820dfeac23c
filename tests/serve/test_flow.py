"""What a server counts as open goes when its reader leaves, and when its job breaks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from relquery.prompt import Answer, Finish
from relquery.serve.flow import Flow
from relquery.serve.operation.tally import Counted


class Quiet:
    """Nobody's Sink."""

    def piece(self, *_: Any) -> None: ...
    def add(self, *_: Any) -> None: ...
    def end(self, *_: Any) -> None: ...


def test_a_reader_that_leaves_in_the_midst_cancels_what_is_open_once() -> None:
    for answered, dropped in ((0, 1), (1, 1), (2, 0)):
        told: list[Flow] = []
        flow = Flow(2, told.append)
        flow.shares = [SimpleNamespace(), SimpleNamespace()]
        for at in range(answered):
            flow.add(at, Answer("a", Finish.STOP))
            flow.end(None)
        flow.close()
        flow.leave()
        assert told == [flow] * dropped


def test_prompts_of_a_job_that_breaks_are_no_longer_open() -> None:
    class Serving:
        clock, closed = None, False

        def submit(self, submission: Any, sink: Any) -> bool:
            sink.add(0, Answer("a", Finish.STOP))
            sink.end(None, RuntimeError("broken"))
            return True

    quiet: Any = SimpleNamespace(
        answered=lambda *_: None, ended=lambda *_: None, prompts=0, tenant="", add=lambda *_: None
    )
    asker: Any = SimpleNamespace(account=quiet, tenant="")
    opened: list[int] = []
    counted = Counted(Serving(), quiet, asker, opened.append)  # type: ignore[arg-type]
    submission: Any = SimpleNamespace(prompts=["a", "b", "c"])
    counted.submit(submission, Quiet())
    assert opened == [3, -1, -2]
