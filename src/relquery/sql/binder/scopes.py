"""Which WITH entries a part of a statement sees, and the next SELECT to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relquery.errors import UnsupportedQueryError
from relquery.sql.binder.call import calls_directly, calls_in, has_call
from relquery.sql.parser.tree import Entry, Node, Query, Recursive, Select, Table


def next_select(tree: Node) -> Select | None:
    """The SELECT to run next: nothing inside or before it has calls.

    Raises UnsupportedQueryError for a call in a recursive WITH entry.
    """
    selects: list[Select] = []
    for call in calls_in(tree):
        check_not_recursive(call)
        select = call.ancestor(Select)
        assert select is not None
        if not any(select is known for known in selects):
            selects.append(select)
    if not selects:
        return None
    for select in selects:
        inner = (found for found in select.find_all(Select) if found is not select)
        if not any(map(calls_directly, inner)) and not any(map(has_call, visible_entries(select))):
            return select
    raise UnsupportedQueryError(
        "An LLM call is in a WITH entry that changes rows. Run the change as a statement of its "
        "own."
    )


def visible_entries(node: Node) -> list[Entry]:
    """The WITH entries that a part of a statement can use, including its own, outermost first."""
    scopes: list[list[Entry]] = []
    inside: Node | None = None
    for one in (node, *node.ancestors()):
        if isinstance(one, Query) and one.entries:
            at = next((at for at, entry in enumerate(one.entries) if entry is inside), None)
            scopes.append(one.entries[:at])
        if isinstance(one, Entry):
            inside = one
    seen: dict[str, Entry] = {}
    for entries in reversed(scopes):
        for entry in entries:
            seen.pop(entry.name.lower(), None)
            seen[entry.name.lower()] = entry
    return list(seen.values())


def entry_of(table: Table) -> Entry | None:
    """The WITH entry that a table names."""
    if len(table.path) > 1:
        return None
    name = table.table.lower()
    entries = reversed(visible_entries(table))
    return next((entry for entry in entries if entry.name.lower() == name), None)


def is_recursive(entry: Entry) -> bool:
    """Whether an entry reads itself."""
    return isinstance(entry.query, Recursive)


def check_not_recursive(call: Node) -> None:
    """Raises UnsupportedQueryError for a call in a recursive WITH entry."""
    for one in call.ancestors():
        if isinstance(one, Recursive):
            raise UnsupportedQueryError(
                f"An LLM call is in the recursive WITH entry '{one.args['cte_name']}'. Run the "
                "recursion first and call LLM on its result."
            )


@dataclass(frozen=True, slots=True)
class Context:
    """The WITH entries that a query needs to run on its own."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, node: Node) -> Context:
        """What a part of a statement sees."""
        return cls(tuple(entry.copy() for entry in visible_entries(node)))

    def around(self, query: Query) -> Query:
        """A copy of a query with those of the entries that it reads."""
        alone = query.copy()
        needed = self.needed_by([alone])
        if needed:
            alone.entries = [*(entry.copy() for entry in needed), *alone.entries]
        return alone

    def needed_by(self, nodes: Iterable[Node]) -> list[Entry]:
        """The entries that some nodes read, or that such entries read."""
        wanted = {name for node in nodes for name in _named(node)}
        needed: list[Entry] = []
        for entry in reversed(self.entries):
            if entry.name.lower() in wanted:
                wanted |= _named(entry)
                needed.insert(0, entry)
        return needed


def _named(node: Node) -> set[str]:
    return {table.table.lower() for table in node.find_all(Table) if len(table.path) == 1}
