"""From the attentions of one pass to stacks: which are the encoder's, which lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from headwise.doctor.adapt import Adapted
from headwise.doctor.sites import Site
from headwise.doctor.trace import Recording, Value
from headwise.see.one_row import Map, RowPass
from headwise.see.stacks import Layer, Stack, StackKind

# What the keys are, what the queries are; of a model with queries that are learnt, "target" is "query".
AXES: dict[StackKind, tuple[str, str]] = {
    "self": ("token: read", "token: reading"),
    "encoder": ("source: read", "source: reading"),
    "decoder": ("target: read", "target: reading"),
    "cross": ("source: read", "target: reading"),
}


@dataclass(frozen=True)
class _Group:
    """Attentions side by side: none reads what another gives."""

    kind: StackKind
    stream: int
    maps: list[Map]

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.maps[0].weights.shape[1:]
        return rows, columns


def stacks_of(found: RowPass, names: Callable[[str, int, bool], tuple[str, ...]]) -> tuple[Stack, ...]:
    """The attentions of a pass as stacks of layers: one for each kind, stream and number of tokens.

    names: called with a stream's name, how many tokens it has here and whether they stand in order.
    """
    below = _below(found.record, [each.site for each in found.maps])
    kinds = _kinds(found, below)
    groups = _side_by_side(found, kinds.kinds, below)
    stacked: dict[tuple[StackKind, int, tuple[int, int]], list[_Group]] = {}
    for group in groups:
        stacked.setdefault((group.kind, group.stream, group.shape), []).append(group)
    stacks: list[Stack] = []
    for (kind, stream, (rows, columns)), layers in stacked.items():
        is_in_order = all(each.is_in_order for group in layers for each in group.maps)
        own = next((each.name for each in found.adapted.streams if each.leaf == stream), "")
        asks = {"encoder": kinds.answers, "self": own}.get(kind, kinds.asks)
        answers = {"decoder": kinds.asks, "self": own}.get(kind, kinds.answers)
        read, reading = AXES[kind]
        if len(found.adapted.streams) < 2 and found.adapted.kind != "encoder-decoder":
            read, reading = read.replace("target", "query"), reading.replace("target", "query")
        stacks.append(
            Stack(
                kind,
                tuple(_layer(group.maps) for group in layers),
                names(asks, rows, is_in_order),
                names(answers, columns, is_in_order),
                (read, reading),
            )
        )
    order: tuple[StackKind, ...] = ("encoder", "decoder", "cross", "self")
    return tuple(sorted(stacks, key=lambda stack: order.index(stack.kind)))


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
    own = {site.mix.out: 1 << place for place, site in enumerate(sites)}
    bits: dict[Value, int] = {}
    for op in record.ops:
        reached = 0
        for value in op.inputs:
            reached |= bits.get(value, 0)
        for value in op.outputs:
            bits[value] = reached | own.get(value, 0)
    return bits


@dataclass(frozen=True)
class _Kinds:
    """The kind of each attention; asks, answers: the names of the inputs that decoder and encoder read."""

    kinds: list[StackKind]
    asks: str = "made"
    answers: str = ""


def _kinds(found: RowPass, below: Mapping[Value, int]) -> _Kinds:
    """The kind of each attention: by its two inputs, where there are two; else by who reads what of whom."""
    sites, adapted = [each.site for each in found.maps], found.adapted
    first = adapted.streams[0].name if adapted.streams else ""
    if len(adapted.streams) < 2:
        labels = next((place for place, leaf in enumerate(adapted.leaves) if leaf.role == "labels"), None)
        if labels is not None and adapted.kind == "encoder-decoder":  # the target is made of them
            return _Kinds(_kinds_by_input(sites, labels), answers=first)
        return _Kinds(_kinds_by_flow(sites, below), answers=first)
    source, target = adapted.streams
    for asks, answers in ((target, source), (source, target)):
        kinds = _kinds_by_input(sites, asks.leaf)
        if "cross" in kinds:
            return _Kinds(kinds, asks.name, answers.name)
    is_told = adapted.kind == "encoder-decoder" and adapted.kind_from != "a second input"
    if is_told:
        return _Kinds(_kinds_by_input(sites, target.leaf), target.name, source.name)
    return _Kinds(["self"] * len(sites))


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


def _side_by_side(found: RowPass, kinds: Sequence[StackKind], below: Mapping[Value, int]) -> list[_Group]:
    """Heads that are attentions of their own are one layer: of one kind and shape, none below another."""
    groups: list[tuple[_Group, int]] = []
    for place, (each, kind) in enumerate(zip(found.maps, kinds, strict=True)):
        site = each.site
        stream = _stream_of(found.adapted, site) if kind == "self" else 0
        reads = 0
        for value in (site.q_value, site.k_value, site.v_value):
            reads |= below.get(value, 0)
        for at, (group, bits) in enumerate(groups):
            alike = group.kind == kind and group.stream == stream
            if alike and group.maps[0].weights.shape[1:] == each.weights.shape[1:] and not reads & bits:
                group.maps.append(each)
                groups[at] = group, bits | 1 << place
                break
        else:
            groups.append((_Group(kind, stream, [each]), 1 << place))
    return [group for group, _ in groups]


def _stream_of(adapted: Adapted, site: Site) -> int:
    """Which of the streams an attention's queries come from, as its place among the inputs; -1 for none."""
    own = [stream.leaf for stream in adapted.streams if site.q_value.sources >> stream.leaf & 1]
    main = adapted.main
    return main.leaf if main is not None and main.leaf in own else own[0] if own else -1
