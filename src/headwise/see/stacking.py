"""From the attentions of one pass to stacks: which are the encoder's, which lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from headwise.doctor.adapt import Adapted
from headwise.doctor.sites import Site, is_product
from headwise.doctor.trace import Recording, Value
from headwise.see.lookups import reached_from
from headwise.see.one_row import Map, RowPass
from headwise.see.stacks import Layer, Stack, StackKind

# What the keys are, what the queries are; of a model with queries that are learnt, "target" is "query".
AXES: dict[StackKind, tuple[str, str]] = {
    "self": ("token: read", "token: reading"),
    "encoder": ("source: read", "source: reading"),
    "decoder": ("target: read", "target: reading"),
    "cross": ("source: read", "target: reading"),
}


# Called with a stream's name, how many tokens it has here, whether they stand in order, and what their first
# queries or keys are.
Naming = Callable[[str, int, bool, Value], tuple[str, ...]]


@dataclass(frozen=True)
class Kinds:
    """The kind of each attention; asks, answers: the names of the inputs that decoder and encoder read.

    turned: cross-attentions the other way, from what answers to what asks.
    """

    kinds: list[StackKind]
    asks: str = "made"
    answers: str = ""
    turned: frozenset[int] = frozenset()


@dataclass
class _Group:
    """Attentions side by side, one layer: none reads what another gives, and what they give is joined."""

    kind: StackKind
    stream: int
    is_turned: bool
    maps: list[Map]
    own: int
    reads: int

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.maps[0].weights.shape[1:]
        return rows, columns


def stacks_of(found: RowPass, kinds: Kinds, names: Naming) -> tuple[Stack, ...]:
    """The attentions of a pass as stacks of layers: one for each kind, stream, number of tokens and tower.

    Law: of two layers of a stack, the later reads what the one before it gives.
    """
    towers: dict[tuple[StackKind, int, bool, tuple[int, int]], list[list[_Group]]] = {}
    for group in _side_by_side(found, kinds, _below(found.record, [each.site for each in found.maps])):
        alike = towers.setdefault((group.kind, group.stream, group.is_turned, group.shape), [])
        tower = next((each for each in alike if each[-1].own & group.reads), None)
        if tower is None:
            alike.append([group])
        else:
            tower.append(group)
    stacks = [_stack(found, kinds, names, tower) for alike in towers.values() for tower in alike]
    order: tuple[StackKind, ...] = ("encoder", "decoder", "cross", "self")
    return tuple(sorted(stacks, key=lambda stack: order.index(stack.kind)))


def _stack(found: RowPass, kinds: Kinds, names: Naming, layers: Sequence[_Group]) -> Stack:
    first = layers[0]
    kind, (rows, columns) = first.kind, first.shape
    is_in_order = all(each.is_in_order for group in layers for each in group.maps)
    own = next((each.name for each in found.adapted.streams if each.leaf == first.stream), "")
    asks = {"encoder": kinds.answers, "self": own}.get(kind, kinds.asks)
    answers = {"decoder": kinds.asks, "self": own}.get(kind, kinds.answers)
    read, reading = AXES[kind]
    if first.is_turned:
        asks, answers = answers, asks
        read, reading = "target: read", "source: reading"
    if len(found.adapted.streams) < 2 and found.adapted.kind != "encoder-decoder":
        read, reading = read.replace("target", "query"), reading.replace("target", "query")
    site = first.maps[0].site
    queries, keys = site.q_value, site.k_value
    if kind == "decoder":  # what a cross-attention asks with tells learnt queries from ids
        crossing = (each.site for each, k in zip(found.maps, kinds.kinds, strict=True) if k == "cross")
        queries = keys = next((each.q_value for each in crossing if each.shape[1] == rows), queries)
    return Stack(
        kind,
        tuple(_layer(group.maps) for group in layers),
        names(asks, rows, is_in_order, queries),
        names(answers, columns, is_in_order, keys),
        (read, reading),
    )


def _layer(maps: Sequence[Map]) -> Layer:
    weights = torch.cat([each.weights for each in maps])
    keep = torch.cat([each.keep for each in maps])
    if bool((keep == keep[:1]).all()):
        keep = keep[:1]
    place = maps[0].site.place
    name = maps[0].site.module
    if len(maps) > 1:  # heads with a module each: what their paths begin with
        name = _beginning([each.site.module for each in maps])
    return Layer(name, weights, keep, place.file if place else "", place.line if place else 0)


def _beginning(paths: Sequence[str]) -> str:
    parts = [path.split(".") for path in paths]
    shared = 0
    while all(len(each) > shared and each[shared] == parts[0][shared] for each in parts):
        shared += 1
    return ".".join(parts[0][:shared])


def _below(record: Recording, sites: Sequence[Site]) -> dict[Value, int]:
    """For each value a bit for each attention whose result it is computed from."""
    return reached_from(record, {site.mix.out: 1 << place for place, site in enumerate(sites)})


def kinds_of(found: RowPass) -> Kinds:
    """The kind of each attention: by its two inputs, where there are two; else by who reads what of whom."""
    sites, adapted = [each.site for each in found.maps], found.adapted
    first = adapted.streams[0].name if adapted.streams else ""
    if len(adapted.streams) < 2:
        labels = next((place for place, leaf in enumerate(adapted.leaves) if leaf.role == "labels"), None)
        if labels is not None and adapted.kind == "encoder-decoder":  # the target is made of them
            return Kinds(_kinds_by_input(sites, labels), answers=first)
        return Kinds(_kinds_by_flow(sites, _below(found.record, sites)), answers=first)
    source, target = adapted.streams
    for asks, answers in ((target, source), (source, target)):
        kinds = _kinds_by_input(sites, asks.leaf)
        if "cross" in kinds:
            turned = {place for place, site in enumerate(sites) if _is_turned(site, asks.leaf, answers.leaf)}
            for place in turned:
                kinds[place] = "cross"
            return Kinds(kinds, asks.name, answers.name, frozenset(turned))
    is_told = adapted.kind == "encoder-decoder" and adapted.kind_from != "a second input"
    if is_told:
        return Kinds(_kinds_by_input(sites, target.leaf), target.name, source.name)
    return Kinds(["self"] * len(sites))


def _is_turned(site: Site, asks: int, answers: int) -> bool:
    """Does what answers ask here, of what asks elsewhere?"""
    q, k = site.q_value.sources, site.k_value.sources
    return bool(q >> answers & 1 and not q >> asks & 1 and k >> asks & 1 and not k >> answers & 1)


def _kinds_by_input(sites: Sequence[Site], target: int) -> list[StackKind]:
    def kind(site: Site) -> StackKind:
        if not site.q_value.sources >> target & 1:
            return "encoder"
        return "decoder" if site.k_value.sources >> target & 1 else "cross"

    return [kind(site) for site in sites]


def _kinds_by_flow(sites: Sequence[Site], below: Mapping[Value, int]) -> list[StackKind]:
    """One input alone: a cross-attention's keys come from attentions that its queries do not come from.

    So do those of queries that are learnt, and depend on no input. What such queries come from, or go on to,
    is a decoder; what their keys come from is an encoder.
    """
    reads = [(below.get(site.q_value, 0), below.get(site.k_value, 0)) for site in sites]
    is_cross = [not s.q_value.sources or q != k for s, (q, k) in zip(sites, reads, strict=True)]
    if not any(is_cross):
        return ["self"] * len(sites)
    crossing = sum(1 << place for place, crosses in enumerate(is_cross) if crosses)
    asked = answered = 0  # the attentions that a cross-attention's queries, and its keys, come from
    for (q, k), crosses in zip(reads, is_cross, strict=True):
        if crosses:
            asked, answered = asked | q, answered | k
    kinds: list[StackKind] = []
    for place, ((q, _), crosses) in enumerate(zip(reads, is_cross, strict=True)):
        is_decoder = bool(q & crossing) or bool(asked & ~answered & 1 << place)
        kinds.append("cross" if crosses else "decoder" if is_decoder else "encoder")
    return kinds


def _side_by_side(found: RowPass, kinds: Kinds, below: Mapping[Value, int]) -> list[_Group]:
    """Heads that are attentions of their own are one layer: of one kind and shape, with results joined."""
    groups: list[_Group] = []
    for place, (each, kind) in enumerate(zip(found.maps, kinds.kinds, strict=True)):
        site = each.site
        stream = _stream_of(found.adapted, site) if kind == "self" else 0
        reads = 0
        for value in (site.q_value, site.k_value, site.v_value):
            reads |= below.get(value, 0)
        new = _Group(kind, stream, place in kinds.turned, [each], 1 << place, reads)
        for group in groups:
            alike = (group.kind, group.stream, group.is_turned, group.shape)
            if alike != (new.kind, new.stream, new.is_turned, new.shape) or reads & group.own:
                continue
            if any(_are_joined(other, each) for other in group.maps):
                group.maps.append(each)
                group.own, group.reads = group.own | new.own, group.reads | reads
                break
        else:
            groups.append(new)
    return groups


def _are_joined(one: Map, other: Map) -> bool:
    """Is what they give concatenated or added before one projection, or heads' own projections of it?"""
    products = int(one.weights.size(0) == other.weights.size(0) == 1)
    return bool(_given(one.site.mix.out, products) & _given(other.site.mix.out, products))


def _given(value: Value, products: int) -> set[Value]:
    """What is made of a value, with so many projections on the way."""
    best = {value: products}
    todo = [value]
    while todo:
        held = todo.pop()
        for op in held.users:
            left = best[held] - (is_product(op) or op.name == "convolution")
            if left < 0:
                continue
            for out in op.outputs:
                if best.get(out, -1) < left:
                    best[out] = left
                    todo.append(out)
    return set(best)


def _stream_of(adapted: Adapted, site: Site) -> int:
    """Which of the streams an attention's queries come from, as its place among the inputs; -1 for none."""
    own = [stream.leaf for stream in adapted.streams if site.q_value.sources >> stream.leaf & 1]
    main = adapted.main
    return main.leaf if main is not None and main.leaf in own else own[0] if own else -1
