"""One query in progress: which generations can be sent now, and their prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relquery.errors import QueryError
from relquery.ir.lower import Answered, Spans, lower
from relquery.ir.nodes import Bag, Fragment, Generate, Node, Prepare, Retrieve, Text
from relquery.ir.paths import Parents, children_first, children_of, path_from, with_children
from relquery.ir.rules import Lookup
from relquery.prompt import Answer, Exchange, Nest, Prompt, Sampling
from relquery.spans.corpus import look_up_nothing
from relquery.spans.result import Generation

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
    merged = _Merged(node)
    seeds = _Seeds()
    count = 0
    path: list[tuple[Node, list[Node]]] = [(node, [])]
    while True:
        current, built = path[-1]
        children = children_of(current)
        while len(built) < len(children) and not merged.drawn[id(children[len(built)])]:
            built.append(merged.node[id(children[len(built)])])
        if len(built) < len(children):
            path.append((children[len(built)], []))
            continue
        path.pop()
        if merged.drawn[id(current)]:
            count += 1
            if count > MAX_DRAWS:
                raise QueryError(
                    f"The query makes more than {MAX_DRAWS:,} random draws, counting nested "
                    "repeats. Repeat less, or split it into several queries."
                )
            new = with_children(current, tuple(built))
            if isinstance(new, Generate) and new.sampling.temperature > 0:
                new = seeds.give(new, merged.number[id(children_of(current)[0])])
        else:
            new = merged.node[id(current)]
        if not path:
            return new
        path[-1][1].append(new)


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
    """Gives each seeded draw its own seed, so that two draws of one question differ."""

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


class Work:
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
        self._scan()
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

    def _scan(self) -> None:
        """Find the tasks, inner ones first, and the readers of each."""
        todo: list[tuple[Node, _Task | None]] = [(self.root, None)]
        while todo:
            node, reader = todo.pop()
            if isinstance(node, Generate | Retrieve):
                fresh = id(node) not in self._readers
                readers = self._readers.setdefault(id(node), [])
                if reader is not None:
                    readers.append(reader)
                    self._missing[id(reader)] += 1
                if not fresh:
                    continue
                self._tasks.append(node)
                self._missing[id(node)] = 0
                reader = node
            children = children_of(node)
            for index in range(len(children) - 1, -1, -1):
                self._parents[id(children[index])] = (node, index)
            # Popped from the right. A leaf sends nothing.
            todo += [(child, reader) for child in children if not isinstance(child, Text)]
        self._tasks.reverse()

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
        todo = [node]
        while todo:
            current = todo.pop()
            found = self._known.get(id(current))
            if isinstance(found, Answered):
                yield found.answer.text or ""
            elif isinstance(current, Text | Fragment):
                yield current.content
            elif isinstance(current, Prepare):
                todo.append(current.input)
            elif found is not None:
                todo.append(found)
            else:
                todo += reversed(children_of(current))
