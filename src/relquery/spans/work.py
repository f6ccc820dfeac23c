"""One query in progress: which generations can be sent now, their prompts, and the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from relquery.errors import QueryError
from relquery.ir.lower import Answered, Spans, lower
from relquery.ir.nodes import Bag, Fragment, Generate, Node, Retrieve, Text
from relquery.ir.paths import Parents, children_first, children_of, path_from, with_children
from relquery.ir.rules import Lookup
from relquery.prompt import Answer, Exchange, Nest, Prompt, Sampling
from relquery.spans.corpus import look_up_nothing


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation that was run."""

    where: str
    """Its place in the optimised tree: `generate/plus[2]`."""
    sampling: Sampling
    answer: Answer


@dataclass(frozen=True, slots=True)
class SpanReport:
    """The cost of a query."""

    generations: tuple[Generation, ...]
    """The generations in the order in which they ended."""
    seconds: float
    """Seconds from the start to the query's end; in a bulk run, from the start of the run."""
    notes: tuple[str, ...] = ()
    """Notes for a reader of the answer, e.g. that an inner answer was cut off."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, including inner exchanges each time they are read."""
        return sum(generation.answer.prompt_tokens for generation in self.generations)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose attention states came from the cache."""
        return sum(generation.answer.cached_tokens for generation in self.generations)

    @property
    def output_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(generation.answer.output_tokens for generation in self.generations)

    def __str__(self) -> str:
        cached = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        count = len(self.generations)
        return (
            f"{count} generation{'s' * (count != 1)}, {self.prompt_tokens:,} prompt tokens, "
            f"{self.cached_tokens:,} ({cached:.0%}) from the cache, {self.output_tokens:,} output "
            f"tokens, {self.seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True, repr=False)
class SpanResult:
    """A query's outcome."""

    texts: tuple[str, ...]
    """The answer; for a tree that is not a single generation, its texts and answers in order."""
    answer: Answer | None
    """The outermost generation's answer with its finish reason; None if there is none."""
    report: SpanReport
    error: str | None = None
    """Why there is no complete result; `texts` is then empty. Only in a bulk run; a single query
    raises."""

    @property
    def text(self) -> str:
        """The texts, one per line."""
        return "\n".join(self.texts)

    def __str__(self) -> str:
        return f"{self.text if self.error is None else self.error}\n({self.report})"

    def __repr__(self) -> str:
        shown = self.text if self.error is None else f"error: {self.error}"
        return f"<SpanResult {shown[:60]!r}: {self.report}>"


MAX_DRAWS = 100_000  # random draws and the nodes above them, counted once per place
_Asked = tuple[int, Sampling]


def unshare(node: Node) -> Node:
    """The same query with equal greedy generations merged and random draws kept apart.

    Each Generate object is executed once, however many places read it. A random generation
    (temperature above 0) is drawn again in each place where it is used, even if it is one node, as
    `repeat` makes it. With a seed, equal draws use that seed, the next one and so on. A generation
    that reads a draw then runs once per draw; all other equal generations run once.

    Raises QueryError for more than MAX_DRAWS nodes in such places.
    """
    return _Unsharing(node).copy(node)


class _Unsharing:
    """One tree whose random draws are told apart."""

    def __init__(self, root: Node) -> None:
        self._merged, self._seeds, self._count = _Merged(root), _Seeds(), 0

    def copy(self, node: Node) -> Node:
        """A node of its own if something is drawn in it, and the merged one if not."""
        if not self._merged.drawn[id(node)]:
            return self._merged.node[id(node)]
        children = []
        for child in children_of(node):
            children.append(self.copy(child))
        self._count += 1
        if self._count > MAX_DRAWS:
            raise QueryError(
                f"The query makes more than {MAX_DRAWS:,} random draws, counting nested repeats. "
                "Repeat less, or split it into several queries."
            )
        new = with_children(node, tuple(children))
        if isinstance(new, Generate) and new.sampling.temperature > 0:
            return self._seeds.give(new, self._merged.number[id(children_of(node)[0])])
        return new


class _Merged:
    """The distinct nodes of a tree, numbered so that equal ones have one number and one object.

    drawn: whether a node or one below it is drawn at random.
    """

    def __init__(self, root: Node) -> None:
        self.number: dict[int, int] = {}
        self.drawn: dict[int, bool] = {}
        self.node: dict[int, Node] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._nodes: list[Node] = []
        for node in children_first(root):
            self._add(node)

    def _add(self, node: Node) -> None:
        children = children_of(node)
        key = (type(node), node.own, tuple(self.number[id(child)] for child in children))
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._nodes):
            below = tuple(self.node[id(child)] for child in children)
            same = all(a is b for a, b in zip(below, children, strict=True))
            self._nodes.append(node if same else with_children(node, below))
        self.number[id(node)] = number
        self.node[id(node)] = self._nodes[number]
        self.drawn[id(node)] = any(self.drawn[id(child)] for child in children) or (
            isinstance(node, Generate) and node.sampling.temperature > 0
        )


class _Seeds:
    """Seeds for seeded draws, so that two draws of one question differ."""

    def __init__(self) -> None:
        self._next: dict[tuple[_Asked, int], int] = {}

    def give(self, node: Generate, input: int) -> Generate:
        """The generation with its own seed. input: the number of the node that it reads."""
        seed = node.sampling.seed
        if seed is None:  # the backend picks a new one
            return node
        asked = (input, replace(node.sampling, seed=None))
        free = seed
        while (asked, free) in self._next:
            free = self._next[asked, free]
        self._next[asked, free] = self._next[asked, seed] = free + 1
        if free == seed:
            return node
        return Generate(node.input, replace(node.sampling, seed=free))


MAX_DEPTH = 64  # of nested exchanges and nests
_Task = Generate | Retrieve


class QueryWork:
    """The generations of one optimised query, and the retrievals that wait for an answer.

    root: the current tree; each generation is a separate object (see `unshare`).
    total: the number of generations. hold_root: never send the outermost one.
    generations, notes: the finished generations, and remarks about them. error: why it failed.
    cancelled: whether because what it asked was cancelled, or its deadline passed.
    """

    def __init__(
        self, node: Node, find: Lookup = look_up_nothing, *, hold_root: bool = False
    ) -> None:
        self.root, self._find = unshare(node), find
        self.generations: list[Generation] = []
        self.notes: list[str] = []
        self.error: str | None = None
        self.cancelled = False
        self._known: dict[int, Answered | Node] = {}
        self._depths: dict[int, int] = {}  # by id of a prompt
        self._spans: Spans = {}
        self._parents: Parents = {}
        self._missing: dict[int, int] = {}
        self._readers: dict[int, list[_Task]] = {}
        self._tasks: list[_Task] = []
        self._scan(self.root)
        self._held = self.root if hold_root else None
        self.total = sum(isinstance(task, Generate) for task in self._tasks)
        self.total -= isinstance(self._held, Generate)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to send."""
        return self.error is not None or len(self.generations) == self.total

    @property
    def nested(self) -> bool:
        """Whether a generation reads another."""
        return any(self._readers.values())

    @property
    def generates(self) -> list[Generate]:
        """All generations, inner ones first."""
        return [task for task in self._tasks if isinstance(task, Generate)]

    def start(self) -> list[Generate]:
        """The generations that read no other, in the order of the tree."""
        return self._ready([task for task in self._tasks if not self._missing[id(task)]])

    def waits_for(self, task: Generate) -> int:
        """The number of generations and retrievals it reads that are still unknown."""
        return self._missing[id(task)]

    def prompt(self, task: Generate) -> Prompt:
        """The prompt, once `waits_for` is 0. Raises QueryError if it is empty."""
        lowered = lower(task, self._spans, self._known)
        if not lowered:
            raise QueryError(
                "the model has nothing to read: all answers and passages in its input are "
                "empty. Add text of your own, or check why they are empty."
            )
        return lowered

    def where(self, node: Node) -> str:
        """The node's place in the tree; the first one if there are several."""
        return path_from(self._parents, node)

    def take(self, task: Generate, prompt: Prompt, answer: Answer) -> list[Generate]:
        """Record an answer. Returns the generations that can be sent now."""
        self.generations.append(Generation(self.where(task), task.sampling, answer))
        depth = 1 + self._depth(prompt)
        if depth > MAX_DEPTH and answer.tokens is not None:
            answer = replace(answer, tokens=None)
            self.notes.append(
                f"{self.where(task)}: {MAX_DEPTH} generations are nested here. Outer generations "
                "read only the text of this answer, without its input."
            )
        self._depths[id(prompt)] = depth
        self._known[id(task)] = Answered(prompt, answer)
        return self._ready(self._release(task))

    def _depth(self, prompt: Prompt) -> int:
        """The depth of nested exchanges and nests in a prompt."""
        depth = 0
        for span in prompt:
            if isinstance(span.content, Exchange):
                depth = max(depth, self._depths[id(span.content.prompt)])
            elif isinstance(span.content, Nest):
                depth = max(depth, 1 + self._depth(span.content.spans))
        return depth

    def outcome(self) -> tuple[tuple[str, ...], Answer | None]:
        """The texts of the whole query, and the outermost answer if there is one."""
        texts = tuple(self._texts(self.root))
        root = self._known.get(id(self.root))
        return texts, root.answer if isinstance(root, Answered) else None

    def _scan(self, node: Node, reader: _Task | None = None) -> None:
        """Find the tasks, inner ones first, and the readers of each."""
        if isinstance(node, Generate | Retrieve):
            is_new = id(node) not in self._readers
            readers = self._readers.setdefault(id(node), [])
            if reader is not None:
                readers.append(reader)
                self._missing[id(reader)] += 1
            if not is_new:
                return
            self._missing[id(node)] = 0
            reader = node
        for index, child in enumerate(children_of(node)):
            self._parents.setdefault(id(child), (node, index))
            if not isinstance(child, Text):
                self._scan(child, reader)
        if isinstance(node, Generate | Retrieve):
            self._tasks.append(node)

    def _release(self, task: _Task) -> list[_Task]:
        ready = []
        for reader in self._readers[id(task)]:
            self._missing[id(reader)] -= 1
            if not self._missing[id(reader)]:
                ready.append(reader)
        return ready

    def _ready(self, tasks: list[_Task]) -> list[Generate]:
        """The generations in `tasks`, and those that waited for retrievals in `tasks`."""
        ready: list[Generate] = []
        todo = tasks[::-1]
        while todo:
            task = todo.pop()
            if isinstance(task, Generate):
                if task is not self._held:
                    ready.append(task)
            else:
                question = "\n".join(self._texts(task.query))
                texts = self._find(task.corpus, question, task.limit)
                self._known[id(task)] = Bag(tuple(map(Text, texts)), independent=True)
                todo += reversed(self._release(task))
        return ready

    def _texts(self, node: Node) -> Iterator[str]:
        """The texts below a node, with answers in place of generations."""
        text = self._known.get(id(node))
        if isinstance(text, Answered):
            yield text.answer.text or ""
        elif isinstance(node, Text | Fragment):
            yield node.content
        elif isinstance(node, Retrieve) and text is not None:
            yield from self._texts(text)
        else:
            for child in children_of(node):
                yield from self._texts(child)
