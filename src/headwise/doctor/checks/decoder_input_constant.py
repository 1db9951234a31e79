"""Read the decoder's input, and change it: a decoder must be given the words so far, and use them."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.batch import Batch
from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.losses import input_lines
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op


@check(
    id="HW507",
    title="The decoder is given the same token at every position",
    why="It cannot know what it has written so far: it learns one answer a position, whatever went before.",
    fix="Feed the target shifted right by one (teacher forcing), not a constant.",
    needs={"causal", "tokens"},
    quick=True,
)
def decoder_input_constant(probe: Probe) -> Iterator[Found | Tried]:
    main = probe.main
    assert main is not None
    given = Batch.given(probe.adapted)
    ids, pad = given.read(main), given.padding(main)
    constant = 0
    for row in range(len(ids)):
        real = ids[row] if pad is None else ids[row][~pad[row]]
        if pad is not None and len(real) <= 1:
            real = ids[row]
        constant += int(len(real) > 2 and bool((real == real[0]).all()))
    if len(ids) == 0 or constant < len(ids):
        yield from _unread(probe)
        return
    lines = input_lines(probe, main.leaf)
    place, others = (lines or [None])[0], lines[1:]
    yield Found(
        f"all {len(ids)} rows of the decoder's input are one token repeated over {ids.shape[1]} positions "
        f"({int(ids[0, 0])} in the first row)",
        at=place,
        related=tuple(related(others, "the decoder's input is made here", place)),
    )


def _unread(probe: Probe) -> Iterator[Found | Tried]:
    """Does the model read its decoder input beyond the first position at all?"""
    main = probe.main
    assert main is not None
    if probe.length < 3 or probe.lacks(frozenset({"finite", "sequence"})) is not None:
        yield Tried("read the rows of the decoder's input")
        return
    moved = probe.compare(probe.change_after(0))
    if bool(moved.logits.any()):
        yield Tried("read the decoder's input, and changed all of it but the first position")
        return
    leaf = next((v for v in probe.base.record.values if v.name == f"input {main.leaf}"), None)
    cuts: list[Op] = []
    if leaf is not None:
        cuts = [op for op in leaf.users if op.outputs and op.out.tensor.numel() < leaf.tensor.numel()]
    lines = callers(cuts[0]) if cuts else []
    yield Found(
        "changing every token of the decoder's input but the first of each row moves no output "
        f"(at any of {probe.length} positions)",
        at=lines[0] if lines else None,
        related=tuple(related(lines[1:2], "called from here")),
    )
