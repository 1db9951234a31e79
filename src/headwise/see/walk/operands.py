"""Queries, keys and values on their way from projections to products: cut, split, rotated, repeated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwise.doctor.graph import Op, Value
from headwise.doctor.sub_layers import SubLayer
from headwise.see.walk import words
from headwise.see.walk.axes import Axes
from headwise.see.walk.layers import Layers
from headwise.see.walk.once import Once
from headwise.see.walk.steps import Claims, Draft
from headwise.see.walk.ways import (
    backward,
    end_of,
    factor_of,
    is_fold,
    only,
    stops_projecting,
    tail,
)

HEADS = {"B", "T", "S", "H", "Hk", "Dh"}


@dataclass(eq=False)
class Operand:
    """The queries, keys or values of all sites of an attention, on their way from projections to products."""

    name: str
    ends: list[Value]
    ways: list[Op]
    halts: list[Op]
    cuts: list[Value] = field(default_factory=lambda: [])
    heads: list[Value] = field(default_factory=lambda: [])


class Operands:
    """Claims what makes the queries, keys and values of one attention."""

    def __init__(self, claims: Claims, probe: Once, layers: Layers, axes: Axes, layer: SubLayer) -> None:
        self.claims, self.probe, self.axes, self.layer = claims, probe, axes, layer
        self.stops = set(layer.reads) | {each.sum.out for each in layers.all if each.sum is not None}
        self.sites = layer.sites
        self.start = min(site.product.index for site in self.sites)
        self._place = float(self.start)

    def _made(self) -> list[Operand]:
        """Claim all of it."""
        operands = [self._operand(name) for name in "QKV"]
        for operand in operands:
            self._cut(operand, operands[0])
        self._retag(operands)
        self._projections(operands)
        self._splits(operands)
        self._rotations(operands)
        self._repeats(operands[1:])
        return operands

    def _step(
        self, kind: str, name: str, ops: Iterable[Op], results: list[Value], operation: str = "",
        main: Op | None = None,
    ) -> Draft | None:  # fmt: skip
        """The next step, placed behind the one before whatever order the code has."""
        draft = self.claims.claim(kind, name, ops, results, operation, main=main, layer=self.layer)
        if draft is not None:
            draft.at = self._place = max(self._place + 1e-4, draft.at)
        return draft

    def _operand(self, name: str) -> Operand:
        ends = [{"Q": s.q_value, "K": s.k_value, "V": s.v_value}[name] for s in self.sites]
        ways, halts = backward(ends, stops_projecting, self.stops)
        return Operand(name, ends, ways, [op for op in halts if op not in self.claims.of])

    def _cut(self, operand: Operand, queries: Operand) -> None:
        """The values where a projection of several is cut apart, and those where the heads are."""
        bends = [op.index for op in operand.ways if self._bends(op) or _grows(op)]
        first = min(bends, default=1 << 60)
        tails = {part for op in operand.halts for part in tail(op)}
        moves = [op for op in operand.ways if is_fold(op) and op.name != "update" and op not in tails]
        before = [op for op in moves if op.index < first]
        after = [op for op in moves if op.index > first]
        ends = set(operand.ends)
        whole = sum(end.tensor.numel() for end in ends)
        for ops in (before, after):
            moving = [op for op in ops if op.out.shape != op.inputs[0].shape or self._is_written(op)]
            values = [out for op in moving for out in op.outputs if self._leads(out, operand)]
            alike = [v for v in values if self._is_split(v) and v.tensor.numel() <= whole]
            if whole < sum(end.tensor.numel() for end in set(queries.ends)):  # shared: a form of their own
                alike = [v for v in alike if v.op is not None and not self._is_inside(v.op)] or alike
            ranks = {len(v.shape) for v in queries.heads}
            alike = [v for v in alike if len(v.shape) in ranks] or alike
            if alike:
                best = max(self._score(v) for v in alike)
                top = [v for v in alike if self._score(v) == best]
                order = [self._order(v) for v in queries.heads[:1]]
                operand.heads = self._last([v for v in top if self._order(v) in order] or top, operand)
                break
        if any(len(self._readers(op)) > 1 for op in operand.halts):
            for op in before:
                out = next((o for o in op.outputs if self._leads(o, operand)), op.out)
                wide = [end_of(halt) for halt in operand.halts]
                if (
                    not self._is_split(out)
                    and wide and len(out.shape) == len(wide[0].shape)
                    and out.tensor.numel() * 2 <= wide[0].tensor.numel()
                    and whole % out.tensor.numel() == 0
                ):  # fmt: skip
                    operand.cuts = [out]

    def _is_written(self, op: Op) -> bool:
        """Is a move that changes no shape a step of the author's, and not what a product does inside?"""
        return op.name != "expand" and not self._is_inside(op)

    def _is_inside(self, op: Op) -> bool:
        return op.frames[:1] in [each.frames[:1] for s in self.sites for each in (s.product, s.mix)]

    def _readers(self, halt: Op) -> set[str]:
        """Which operands a projection gives."""
        found: set[str] = set()
        for name in "QKV":
            ends = [{"Q": s.q_value, "K": s.k_value, "V": s.v_value}[name] for s in self.sites]
            _, halts = backward(ends, stops_projecting, set(self.layer.reads))
            if halt in halts:
                found.add(name)
        return found

    def _order(self, value: Value) -> tuple[str, ...]:
        """In which order its axes come, whichever heads and positions they are."""
        names = (self.axes.called(axis) for axis in self.axes.label(value))
        alike = {"S": "T", "Hk": "H", "": "H"}
        return tuple("*".join(alike.get(name, name) for name in named) or "H" for named in names)

    def _last(self, values: list[Value], operand: Operand) -> list[Value]:
        """Of values on one way the last; of several ways (a projection for each head) the last of each."""
        if len(self.sites) == 1 or len(operand.halts) <= 1:
            return values[-1:]
        found: dict[Op, Value] = {}
        for value in values:
            _, halts = backward([value], stops_projecting)
            if halts:
                found[halts[-1]] = value
        return list(found.values())

    def _leads(self, value: Value, operand: Operand) -> bool:
        own = set(operand.ways)
        return value in operand.ends or any(op in own for op in value.users)

    def _bends(self, op: Op) -> bool:
        if op.moves or op.name == "update" or factor_of(op) is not None:
            return False
        return not self._is_own_bias(op)

    def _is_own_bias(self, op: Op) -> bool:
        others = [v for v in op.inputs if not v.sources]
        return op.name in {"add", "add_"} and bool(others) and all(v.trained for v in others)

    def _is_split(self, value: Value) -> bool:
        return any(self.axes.called(axis) == ["Dh"] for axis in self.axes.label(value))

    def _score(self, value: Value) -> int:
        """How many of batch, heads, positions and head width have an axis of their own."""
        known = [self.axes.called(axis) for axis in self.axes.label(value)]
        single = {named[0] for named in known if len(named) == 1 and named[0] in HEADS}
        return 2 * len(single) - len(known)

    def _nicest(self, values: list[Value]) -> Value:
        """The last of those values that keep most axes apart."""
        best = max(self._score(v) for v in values)
        return next(v for v in reversed(values) if self._score(v) == best)

    def _retag(self, operands: list[Operand]) -> None:
        """Norms between projection and product are the operands' own (QK-norm)."""
        for operand in operands:
            for op in operand.ways:
                draft = self.claims.of.get(op)
                if draft is not None and draft.kind == "norm" and draft.layer is None:
                    draft.layer, draft.inside = self.layer, True
                    draft.name = f"{draft.name} of {operand.name}"

    def _projections(self, operands: list[Operand]) -> None:
        """Rows such as `Q, K, V`, or `Q` and `K, V` where their shapes differ."""
        uses: dict[Op, str] = {}
        for operand in operands:
            for op in operand.halts:
                uses[op] = uses.get(op, "") + operand.name
        rows: dict[tuple[object, ...], list[Op]] = {}
        for op in sorted(uses, key=lambda op: op.index):
            fused = op.index if len(uses[op]) > 1 else -1
            rows.setdefault((fused, self._named(end_of(op)), words.weights(op)), []).append(op)
        first = min((op.index for op in uses), default=self.start)
        self._place = float(min(first, self.start)) - 1e-3
        ordered = sorted(rows.values(), key=lambda ops: "QKV".index(min(uses[ops[0]], key="QKV".index)))
        for ops in ordered:
            names = "".join(dict.fromkeys("".join(uses[op] for op in ops)))
            cuts = [v for o in operands if o.name in names for v in o.cuts]
            is_cut = len(ops) == 1 and len(cuts) == len(names) > 1 and len({v.shape for v in cuts}) == 1
            own = {part for op in ops for part in (op, *tail(op))}
            results = [end_of(op) for op in ops]
            several = f"{len(ops)} " if len(ops) > 1 else ""
            told = several + words.weights(ops[0])
            if is_cut:
                results = cuts
                for operand in operands:
                    if operand.cuts and operand.name in names:
                        own |= {
                            op for op in operand.ways
                            if op.moves and op.index <= max(v.op.index for v in cuts if v.op)
                            and not any(self._is_split(v) for v in op.outputs)
                        }  # fmt: skip
                told += f", cut in {len(cuts)}"
            self._step("projection", ", ".join(names), own, results, told, ops[-1])

    def _full(self, value: Value) -> tuple[int, ...]:
        call = self.probe.sizes.of.get(value.op) if value.op is not None else None
        return call.outputs[value.output].shape if call is not None else self.axes.whole(value)

    def _named(self, value: Value) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """A value's shape with the names of its axes: a source of the same length is no target."""
        return value.shape, self.axes.names(value, self._full(value))

    def _any_order(self, value: Value) -> list[tuple[str, int]]:
        shape, names = self._named(value)
        return sorted(zip(names, shape, strict=True))

    def _splits(self, operands: list[Operand]) -> None:
        rows: dict[object, list[Operand]] = {}
        for operand in operands:
            if operand.heads:
                rows.setdefault(self._named(operand.heads[0]), []).append(operand)
        kept: list[list[Operand]] = []
        for row in rows.values():  # keys may be made transposed: that is the same split
            axes = self._any_order(row[0].heads[0])
            known = next((r for r in kept if self._any_order(r[0].heads[0]) == axes), None)
            if known is None:
                kept.append(row)
            else:
                known.extend(row)
        for row in kept:
            own: set[Op] = set()
            for operand in row:
                for value in operand.heads:
                    ways, _ = backward([value], stops_projecting, set(self.layer.reads))
                    own |= {op for op in ways if is_fold(op) and op in operand.ways}
            names = ", ".join(operand.name for operand in row)
            name = (
                "split into heads" if len(row) == len([o for o in operands if o.heads]) else f"split {names}"
            )
            told = words.listed([op for op in own if op not in self.claims.of and op.name != "cat"])
            if len(self.sites) > 1 and told in {
                "transpose",
                "permute",
                "t",
            }:  # heads were never in one tensor
                name = f"turn {names}"
            results = [v for operand in row for v in operand.heads]
            self._step("split", name, own, results, told)

    def _rotations(self, operands: list[Operand]) -> None:
        """What bends queries, keys or values on the way: rotary positions as a rule."""
        rows: dict[bool, list[tuple[Operand, set[Op], Value]]] = {True: [], False: []}
        for operand in operands:
            bends = [op for op in operand.ways if self._bends(op) and op not in self.claims.of]
            if not bends:
                continue
            before = self._entered(operand, bends[0])
            later = [v for op in operand.ways if op.index >= bends[-1].index for v in op.outputs]
            after = next((v for v in later if v.shape == before.shape), later[0])
            last = after.op.index if after.op is not None else bends[-1].index
            between = [op for op in operand.ways if bends[0].index <= op.index <= last]
            own = {op for op in between if op not in self.claims.of}
            for op in reversed(operand.ways):
                is_start = op.moves and op.index < last and op not in self.claims.of
                if is_start and all(user in own for out in op.outputs for user in only(out)):
                    own.add(op)
            rows[_is_turn(before, after)].append((operand, own, after))
        for is_turn, row in rows.items():
            if not row:
                continue
            every = set[Op]().union(*(own for _, own, _ in row))
            told = words.listed([op for op in every if self._bends(op)])
            names = ", ".join(operand.name for operand, _, _ in row)
            results = [after for _, _, after in row]
            alike = len({v.shape for v in results}) == 1
            self._step(
                "rotation", f"{'rotate' if is_turn else 'change'} {names}", every,
                results if alike else results[:1], f"by position: {told}" if is_turn else told,
            )  # fmt: skip

    def _entered(self, operand: Operand, first: Op) -> Value:
        """The queries or keys before the first operation that bends them."""
        heads = [v for v in operand.heads if v.op is not None and v.op.index < first.index]
        ends = [end_of(op) for op in operand.halts]
        inputs = [v for v in first.inputs if v.sources]
        return (heads[-1:] or [v for v in ends if v.index < first.out.index][-1:] or inputs or [first.out])[0]

    def _repeats(self, operands: list[Operand]) -> None:
        """Keys and values of a group repeated for each of its heads."""
        own: set[Op] = set()
        results: list[Value] = []
        for operand in operands:
            grown = [
                op for op in operand.ways
                if op not in self.claims.of and _grows(op)
            ]  # fmt: skip
            if not grown:
                continue
            later = [o for o in operand.ways if is_fold(o) and o.index >= grown[0].index]
            rank = {len(v.shape) for v in operand.heads}
            alike = [
                op.out
                for op in later
                if len(op.out.shape) in rank and op.out.shape[:-1] != op.inputs[0].shape[:-1]
            ]
            nice = alike[0] if alike else self._nicest([op.out for op in later])
            own |= {op for op in later if nice.op is not None and op.index <= nice.op.index}
            before = [o for o in operand.ways if is_fold(o) and o.index < grown[0].index]
            own |= {op for op in before if op not in self.claims.of and all(u in own for u in only(op.out))}
            results.append(nice)
        if own:
            names = ", ".join(o.name for o in operands)
            self._step("split", f"repeat {names}", own, results, "for the heads that share them")


def _grows(op: Op) -> bool:
    """Does an operation repeat what it reads?"""
    return (
        op.moves and op.name not in {"cat", "stack"} and op.out.tensor.numel() > op.inputs[0].tensor.numel()
    )


def _is_turn(before: Value, after: Value) -> bool:
    """Do vectors keep their length, and not their direction (a rotation)?"""
    one, other = before.tensor.detach().double(), after.tensor.detach().double()
    if one.numel() != other.numel():
        return False
    size, turned = float(one.square().sum()), float(other.square().sum())
    return size > 0 and abs(turned / size - 1) < 1e-2
