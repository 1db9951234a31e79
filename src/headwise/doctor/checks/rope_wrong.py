"""Give every position the same token: scores of turned queries and keys may depend on the distance alone."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.misturned import MOST, blamed
from headwise.doctor.positions import holder
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.turning import Turned, rotations, with_same_token


@check(
    id="HW306",
    title="The rotary positions do not tell the distance between two tokens",
    why="What two words mean to each other changes with the place of the pair in the text, and nothing "
    "learned at one place holds at another.",
    fix="Turn queries and keys, not values, by the same angles, and let the tables repeat as the pairs lie: "
    "cat((a, a)) with rotate_half, repeat_interleave(2) with neighbours.",
    needs={"stream", "rows", "sites", "finite"},
    explains={"cannot-memorise", "positions-missing"},
    quick=True,
)
def rope_wrong(probe: Probe) -> Iterator[Found | Tried]:
    tried = 0
    for site in probe.sites:
        turns = rotations(probe, site)
        astray = _astray(site, turns[0])
        if astray is not None:
            yield astray
            return
        if not any(each.factors for each in turns) or not _is_told_in_one_line(probe, site):
            continue
        same = with_same_token(probe, site)
        if same is None:
            continue
        tried += 1
        q, k, v = same
        found = _values(probe, site, turns[2], v) or _scores(probe, site, turns, q @ k.mT)
        if found is not None:
            yield found
            return
    if not tried:
        raise NotApplicable("no queries or keys are turned by their position")
    yield Tried(f"{tried} layers: with the same token everywhere the scores depend on the distance alone")


def _is_told_in_one_line(probe: Probe, site: Site) -> bool:
    """Self-attention over the tokens of one text: images may be turned along two axes."""
    for stream in probe.adapted.streams:
        bit, length = 1 << stream.leaf, probe.batch.length(stream)
        if site.q_value.sources & bit and site.k_value.sources & bit and site.shape[1:] == (length, length):
            return stream.is_ids and length > 3
    return False


def _astray(site: Site, queries: Turned) -> Found | None:
    """Waves along the heads or the batch, and none along the text."""
    if not queries.astray or queries.factors:
        return None
    op, factor = queries.astray[0]
    place = holder(op, site.product)
    return Found(
        f"queries of shape {list(op.out.shape)} are turned by angles of shape {list(factor.shape)}: another "
        "one for each place on an axis that is not the text's, the same one for all positions",
        at=place,
        module=site.module,
        related=tuple(related([op.place], "they are turned here", place)),
    )


def _values(probe: Probe, site: Site, turned: Turned, v: Tensor) -> Found | None:
    """Values that depend on the position, and are not turned back after they were mixed."""
    moved = float((v - v[:, :1]).abs().max() / v.abs().max().clamp(min=1e-30))
    if not turned.factors or moved < MOST or _turned_back(probe, site, turned):
        return None
    op = turned.factors[0][0]
    queries, keys = rotations(probe, site)[:2]
    known = {
        (frame.place.file, frame.place.line)
        for each in (queries, keys)
        for o, _ in each.factors
        for frame in o.frames
    }
    own = [
        frame.place
        for frame in op.frames
        if (frame.place.file, frame.place.line) not in known and not frame.library
    ]
    place = own[0] if own else holder(op, site.product)
    return Found(
        f"with the same token at every position the values differ from place to place, by {moved:.0%}: they "
        "are turned as queries and keys are",
        at=place,
        module=site.module,
        related=tuple(
            related([op.place, *(frame.place for frame in op.frames)], "they are turned here", place)
        ),
        fix="Turn queries and keys only; values are what is read, wherever it stands.",
    )


def _turned_back(probe: Probe, site: Site, turned: Turned) -> bool:
    """Do the mixed values meet factors by position again?"""
    tables = probe.base.record.ancestors([factor for _, factor in turned.factors])
    down = probe.base.record.descendants([site.mix.out])
    until = next((s.product.index for s in probe.sites if s.index > site.index), len(probe.base.record.ops))
    for op in probe.base.record.ops[site.mix.index : until]:
        if (
            op.name in {"mul", "mul_"}
            and any(v in down for v in op.inputs)
            and any(v in tables for v in op.inputs)
        ):
            return True
    return False


def _scores(probe: Probe, site: Site, turns: tuple[Turned, Turned, Turned], raw: Tensor) -> Found | None:
    scale = float(raw.abs().max().clamp(min=1e-30))
    off = float((raw[:, 1:, 1:] - raw[:, :-1, :-1]).abs().max()) / scale
    if off < MOST:
        return None
    queries, keys, _ = turns
    what, place, others = blamed(probe, site, queries, keys, raw)
    return Found(
        "with the same token at every position, the score of a query and a key still depends on where the "
        f"pair stands, by {off:.0%} of the largest score, and not on its distance alone: {what}",
        at=place,
        module=site.module,
        related=tuple(related(others, "it is turned here", place)),
    )
