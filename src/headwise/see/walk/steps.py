"""The steps of a walk as data, and the drafts that they are written from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headwise.doctor.graph import Op, Value
from headwise.doctor.sub_layers import SubLayer


@dataclass(frozen=True)
class Part:
    """One operation of torch's within a step."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    flops: int
    bytes: int
    file: str
    line: int


@dataclass(frozen=True)
class Step:
    """One step of the pass.

    kind: what it is to a reader: "input", "embedding", "projection", "split", "rotation", "scores", "mask",
        "bias", "softmax", "mix", "merge", "output", "norm", "up", "gate", "activation", "down", "add",
        "linear", "failure", or "other".
    shape, axes: of its result; count: how many results of that shape it has (Q, K, V).
    held: the shape in memory where that is another order: torch's own attention works time first.
    params: numbers trained that it reads. flops: of its products, two for each multiplication and addition.
    bytes: new memory for its results; a view takes none.
    weights: the names of the parameters that it reads; earlier: the module where a step of the same name has
        read one of them before, "" for none. pattern: of what its mask hides, a number. All three are for
        folding, and no part of the written forms.
    file, line: where the user (or a library) wrote it, "" and 0 where only torch did; code: what is there.
    """

    name: str
    kind: str
    operation: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    count: int
    dtype: str
    held: tuple[int, ...]
    params: int
    flops: int
    bytes: int
    file: str
    line: int
    code: str
    module: str
    parts: tuple[Part, ...]
    weights: frozenset[str] = frozenset()
    earlier: str = ""
    pattern: bytes = b""


@dataclass(frozen=True)
class Group:
    """Steps that belong together: a section, a block, an attention, a feed-forward layer.

    times: how often it comes, one after the other with the same steps, shapes and lines; modules: of each
    time the path of its module.
    """

    title: str
    kind: str
    times: int
    modules: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def steps(self) -> Iterator[Step]:
        """Its steps, each once however often the group comes."""
        return steps_of(self.rows)


Row = Step | Group


def steps_of(rows: Iterable[Row]) -> Iterator[Step]:
    """Every step of some rows, in order, those of a repeated group once."""
    for row in rows:
        if isinstance(row, Step):
            yield row
        else:
            yield from row.steps


@dataclass(eq=False)
class Draft:
    """A step being put together: the operations that are its own, and the values it is known by.

    main: the operation that says where it runs. at: its place in the order of the walk.
    """

    name: str
    kind: str
    operation: str
    ops: set[Op]
    results: list[Value]
    main: Op | None
    at: float
    layer: SubLayer | None = None
    inside: bool = False  # beneath the title of its sub-layer (an attention's scores), or beside it (its sum)


@dataclass(eq=False)
class Claims:
    """Which step each operation belongs to. Law: none belongs to two."""

    drafts: list[Draft] = field(default_factory=lambda: [])
    of: dict[Op, Draft] = field(default_factory=lambda: {})

    def claim(
        self,
        kind: str,
        name: str,
        ops: Iterable[Op],
        results: Iterable[Value],
        operation: str = "",
        *,
        main: Op | None = None,
        layer: SubLayer | None = None,
        inside: bool = True,
        at: float | None = None,
    ) -> Draft | None:
        """A step of those operations that no other has; None where nothing is left."""
        own = {op for op in ops if op not in self.of}
        if not own:
            return None
        chosen = main if main in own else max(own, key=lambda op: op.index)
        assert chosen is not None
        place = float(chosen.index) if at is None else at
        draft = Draft(
            name, kind, operation, own, list(results), chosen, place, layer, inside and layer is not None
        )
        self.drafts.append(draft)
        self.of.update(dict.fromkeys(own, draft))
        return draft

    def give(self, op: Op, draft: Draft) -> None:
        """One more operation for a step."""
        if op not in self.of:
            draft.ops.add(op)
            self.of[op] = draft
