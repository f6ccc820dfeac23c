"""What a prompt asks of the parts of a schema or of a module: imports, and text around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relquery.markup.read.imports import Import, New, PromptPart


@dataclass(frozen=True, slots=True)
class Asked:
    """Imports by module name, and new text by where it stands.

    first: before the first import. after: after each import, up to the next. last: after the last
    import, or all of it if there is none.
    """

    imports: Mapping[str, Import] = field(default_factory=dict)
    first: Sequence[New] = ()
    after: Mapping[str, Sequence[New]] = field(default_factory=dict)
    last: Sequence[New] = ()

    @classmethod
    def of(cls, parts: Sequence[PromptPart]) -> Asked:
        """From what stands in a prompt or in an imported module."""
        imports: dict[str, Import] = {}
        groups: list[list[New]] = [[]]
        for part in parts:
            match part:
                case Import(module):
                    imports[module.name] = part
                    groups.append([])
                case New():
                    groups[-1].append(part)
        if not imports:
            return cls(last=groups[0])
        between = dict(zip(imports, groups[1:-1], strict=False))
        return cls(imports, groups[0], between, groups[-1])

    def before(self, name: str) -> Sequence[New]:
        """New text that stands right before an import: before the first one."""
        return self.first if next(iter(self.imports), None) == name else ()
