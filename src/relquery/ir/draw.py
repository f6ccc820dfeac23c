"""Draws a tree: with lines in a terminal, or as a Mermaid diagram.

Large trees are cut: a node's children after the first few become one "… 997 more".
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field

from relquery.ir.nodes import (
    Bag,
    Chat,
    Fragment,
    Generate,
    Node,
    Prepare,
    Retrieve,
    Seq,
    Text,
)
from relquery.ir.paths import check_node, children_of, word
from relquery.prompt import Role

_NODES = 200  # default limit on the nodes drawn
_SYMBOLS: dict[type, str] = {
    Generate: "G",
    Prepare: "G¹",
    Chat: "C",
    Retrieve: "R",
    Fragment: "F",
    Seq: "⋈",
}
_ROLES = {Role.SYSTEM: "S", Role.USER: "U", Role.ASSISTANT: "A"}
# JSON does not escape these. Terminals interpret some; the others cannot be written to a file.
_NOT_SHOWN = re.compile("[\x7f-\x9f\ud800-\udfff]")
# A page has no form for these, not even escaped.
_NOT_IN_PAGES = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class _Drawn:
    """A node in a picture; without `node` it represents `hidden` nodes that are not drawn."""

    node: Node | None
    hidden: int = 0
    children: list[_Drawn] = field(default_factory=list)


def symbol(node: Node) -> str:
    """The node's operator in paper 002, Table 1; ⊎ is a bag whose children see each other."""
    if isinstance(node, Text):
        return _ROLES[node.role]
    if isinstance(node, Bag):
        return "+" if node.independent else "⊎"
    return _SYMBOLS[type(node)]


def draw(node: Node, *, width: int = 100, nodes: int = _NODES, siblings: int = 12) -> str:
    """The tree drawn with lines, one node per line, in the words of its text form.

    width: characters per line; longer text is cut and followed by its size. nodes, siblings: the
        maximum number drawn, in total and below one node.
    """
    lines: list[str] = []
    todo = [(_picture(node, nodes, siblings), "", "")]
    while todo:
        drawn, lead, below = todo.pop()
        room = max(width - len(lead), 20)
        lines.append(lead + _line(drawn, room))
        last = len(drawn.children) - 1
        for index in range(last, -1, -1):
            tee, bar = ("└── ", "    ") if index == last else ("├── ", "│   ")
            todo.append((drawn.children[index], below + tee, below + bar))
    return "\n".join(lines)


class Diagram(str):
    """Mermaid, which a notebook shows as the picture."""

    __slots__ = ()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/vnd.mermaid": str(self), "text/plain": str(self)}


def mermaid(node: Node, *, nodes: int = _NODES, siblings: int = 12) -> Diagram:
    """The tree as a Mermaid flowchart, with the paper's operators."""
    lines = ["flowchart TD"]
    root = _picture(node, nodes, siblings)
    numbers = {id(root): 0}
    todo = deque([root])
    while todo:
        drawn = todo.popleft()
        number = numbers[id(drawn)]
        lines.append(f'  n{number}["{_mermaid_text(_caption(drawn, 40))}"]')
        for child in drawn.children:
            numbers[id(child)] = len(numbers)
            lines.append(f"  n{number} --> n{numbers[id(child)]}")
        todo += drawn.children
    return Diagram("\n".join(lines))


def _picture(node: Node, nodes: int, siblings: int) -> _Drawn:
    """The part of the tree to draw: level by level, up to `nodes` nodes."""
    check_node(node)
    root = _Drawn(node)
    left = max(nodes, 1) - 1
    todo = deque([root])
    while todo:
        parent = todo.popleft()
        assert parent.node is not None
        children = children_of(parent.node)
        shown = len(children) if len(children) <= siblings else max(siblings - 1, 0)
        shown = min(shown, left)
        left -= shown
        parent.children = [_Drawn(child) for child in children[:shown]]
        todo += parent.children
        if shown < len(children):
            hidden = len(children) - shown
            parent.children.append(_Drawn(None, hidden))
    return root


def _line(drawn: _Drawn, room: int) -> str:
    node = drawn.node
    if node is None:
        return f"… {drawn.hidden:,} more"
    if isinstance(node, Text | Fragment):
        said = _cut(node.content, room - len(word(node)) - 1)
        return _NOT_SHOWN.sub("�", f"{word(node)} {said}")
    size = f" ({len(node.children):,} children)" if _is_cut(drawn) else ""
    head = _NOT_SHOWN.sub("�", node.head)
    room -= len(size)
    return (head if len(head) <= room else head[: room - 1] + "…") + size


def _is_cut(drawn: _Drawn) -> bool:
    return any(child.node is None for child in drawn.children)


def _cut(content: str, room: int) -> str:
    """Text as a JSON string; if it does not fit, it is cut and followed by its size."""
    # An escape takes up to six characters: beyond `room` characters nothing can be shown anyway.
    quoted = json.dumps(content[: room + 1], ensure_ascii=False)
    if len(content) <= room and len(quoted) <= room:
        return quoted
    size = f" ({len(content):,} characters)"
    kept = quoted[1 : max(room - len(size) - 2, 8)].rstrip('\\"')  # don't keep half an escape
    return f'"{kept}…"{size}'


def _caption(drawn: _Drawn, room: int) -> str:
    """The operator and what it says, e.g. `G max_tokens=16`."""
    if drawn.node is None:
        return _line(drawn, room)
    said = _line(drawn, room).partition(" ")[2]
    return f"{symbol(drawn.node)} {said}".rstrip()


def _mermaid_text(text: str) -> str:
    """Escaped for a quoted label: `#` begins an entity there, `<` a tag, a backtick Markdown."""
    return re.sub(r'["#<>&`\\]', lambda match: f"#{ord(match[0])};", _NOT_IN_PAGES.sub("�", text))
