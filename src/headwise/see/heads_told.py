"""Stacks as text: how spread every head's weights are, which have collapsed, and where their code is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from headwise.doctor.places import columns, fold, place, visible
from headwise.see.heads import Head, State, head_facts
from headwise.see.stacks import Layer, Stack, StackKind

MARKS: dict[State, str] = {"": " ", "uniform": "=", "one-hot": "!", "dead": "x"}
TITLES: dict[StackKind, str] = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "self": "Self-attention",
}
WIDTH, IN_A_ROW, MOST_TOLD = 100, 12, 12


def titles(stacks: Sequence[Stack]) -> list[str]:
    """What each stack is called; those of one kind are numbered."""
    kinds: list[StackKind] = [stack.kind for stack in stacks]
    return [
        TITLES[kind] + (f" {kinds[: place + 1].count(kind)}" if kinds.count(kind) > 1 else "")
        for place, kind in enumerate(kinds)
    ]


def percent(share: float) -> str:
    """A share in whole percent, rounded down: a head is called uniform from 99 on; NaN as it is."""
    return "NaN" if share != share else str(int(100 * share + 1e-4))


def told(title: str, stacks: Sequence[Stack], notes: Sequence[str] = ()) -> str:
    """Every stack's table, then what has collapsed, in words, then the notes."""
    lines = [visible(title)]
    for stack, name in zip(stacks, titles(stacks), strict=True):
        facts = [head_facts(layer, stack.keys, stack.kind) for layer in stack.layers]
        lines += ["", *_table(stack, name, facts), *collapsed(stack, facts)]
    marks = ", ".join(f"{mark} {state}" for state, mark in MARKS.items() if state)
    lines += ["", f"In the tables: entropy of each head in percent of the most possible; {marks}."]
    for note in notes:
        lines += fold(f"Note: {visible(note)}", WIDTH)
    return "\n".join(lines) + "\n"


def _table(stack: Stack, title: str, facts: Sequence[Sequence[Head]]) -> Iterator[str]:
    heads = max(len(each) for each in facts)
    many = f"{len(facts)} layer{'s' * (len(facts) != 1)} of {heads} head{'s' * (heads != 1)}"
    yield f"{title}: {many}, {len(stack.queries)} queries, {len(stack.keys)} keys"
    names = [f"layer {number + 1}" for number in range(len(facts))]
    places = [_where(layer) for layer in stack.layers]
    left, right = max(map(len, names)), max(map(columns, places))
    for start in range(0, heads, IN_A_ROW):
        shown = range(start, min(start + IN_A_ROW, heads))
        yield f"  {'head':<{left}}{''.join(f'{head + 1:>5} ' for head in shown)}".rstrip()
        for name, each, where in zip(names, facts, places, strict=True):
            cells = "".join(_cell(each[head]) if head < len(each) else " " * 6 for head in shown)
            yield f"  {name:<{left}}{cells} {where if right else ''}".rstrip()


def _cell(head: Head) -> str:
    return f"{percent(head.share):>5}{MARKS[head.state]}"


def _where(layer: Layer) -> str:
    if not layer.file:
        return visible(layer.name)
    line = place(layer.file, layer.line)
    line = line.rpartition(f"{os.sep}site-packages{os.sep}")[2]  # a library's own path says enough
    return f"{visible(layer.name)}  {line}" if layer.name else line


def collapsed(stack: Stack, facts: Sequence[Sequence[Head]], most: int = MOST_TOLD) -> Iterator[str]:
    """Each collapsed head of a stack in words, the first `most` of them; nothing where there is none."""
    found = [
        (layer, head, each)
        for layer, judged in enumerate(facts)
        for head, each in enumerate(judged)
        if each.state
    ]
    for layer, head, each in found[:most]:
        words = f"layer {layer + 1} head {head + 1} is {each.state}: {visible(each.note)}"
        for number, line in enumerate(fold(words, WIDTH - 4)):
            yield f"  {'  ' if number else ''}{line}"
    if len(found) > most:
        yield f"  and {len(found) - most} more"


def summary(stacks: Sequence[Stack], most: int = 4) -> Iterator[str]:
    """A line a stack, how spread its heads are and how many have collapsed; some of these in words."""
    for stack, name in zip(stacks, titles(stacks), strict=True):
        facts = [head_facts(layer, stack.keys, stack.kind) for layer in stack.layers]
        heads = [head for judged in facts for head in judged]
        shares = [head.share for head in heads if head.share == head.share]
        spread = (
            f"{percent(min(shares))} to {percent(max(shares))} % of the most possible" if shares else "NaN"
        )
        states = [head.state for head in heads if head.state]
        found = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        yield (
            f"{name}: {len(facts)} x {max(map(len, facts))} heads, entropy {spread}; "
            f"collapsed: {found or 'none'}"
        )
        yield from collapsed(stack, facts, most)
