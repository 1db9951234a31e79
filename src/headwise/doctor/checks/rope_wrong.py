"""Give every position the same token: scores of turned queries and keys may depend on the distance alone."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headwise.doctor.blame import related, watched
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.positions import Turned, holder, made_line, rotations, with_same_token
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.trace import Value
from headwise.doctor.turning import fault, matrices_of, partner_op

MOST = 0.02  # of the largest score: bfloat16 tables give 0.004, mismatched pairs 0.3 and more
SPREADERS = {"cat", "stack", "clone", "expand", "repeat", "index_select", "index", "repeat_interleave", "view"}


@check(
    id="HW306",
    title="The rotary positions do not tell the distance between two tokens",
    why="What two words mean to each other changes with the place of the pair in the text, and nothing learned "
    "at one place holds at another.",
    fix="Turn queries and keys, not values, by the same angles, and let the tables repeat as the pairs lie: "
    "cat((a, a)) with rotate_half, repeat_interleave(2) with neighbours.",
    needs={"stream", "rows", "sites", "finite"},
    explains={"cannot-memorise"},
    quick=True,
)
def rope_wrong(probe: Probe) -> Iterator[Found | Tried]:
    tried = 0
    for site in probe.sites:
        turns = rotations(probe, site)
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


def _values(probe: Probe, site: Site, turned: Turned, v: Tensor) -> Found | None:
    """Values that depend on the position, and are not turned back after they were mixed."""
    moved = float((v - v[:, :1]).abs().max() / v.abs().max().clamp(min=1e-30))
    if not turned.factors or moved < MOST or _turned_back(probe, site, turned):
        return None
    op = turned.factors[0][0]
    queries, keys = rotations(probe, site)[:2]
    known = {(frame.place.file, frame.place.line) for each in (queries, keys) for o, _ in each.factors for frame in o.frames}
    own = [frame.place for frame in op.frames if (frame.place.file, frame.place.line) not in known and not frame.library]
    place = own[0] if own else holder(op, site.product)
    return Found(
        f"with the same token at every position the values differ from place to place, by {moved:.0%}: they are "
        "turned as queries and keys are",
        at=place,
        module=site.module,
        related=tuple(related([op.place, *(frame.place for frame in op.frames)], "they are turned here", place)),
        fix="Turn queries and keys only; values are what is read, wherever it stands.",
    )


def _turned_back(probe: Probe, site: Site, turned: Turned) -> bool:
    """Do the mixed values meet factors by position again?"""
    tables = probe.base.record.ancestors([factor for _, factor in turned.factors])
    down = probe.base.record.descendants([site.mix.out])
    until = next((s.product.index for s in probe.sites if s.index > site.index), len(probe.base.record.ops))
    for op in probe.base.record.ops[site.mix.index : until]:
        if op.name in {"mul", "mul_"} and any(v in down for v in op.inputs):
            if any(v not in down and v.tensor.numel() > 1 and v in tables for v in op.inputs):
                return True
    return False


def _scores(probe: Probe, site: Site, turns: tuple[Turned, Turned, Turned], raw: Tensor) -> Found | None:
    scale = float(raw.abs().max().clamp(min=1e-30))
    off = float((raw[:, 1:, 1:] - raw[:, :-1, :-1]).abs().max()) / scale
    if off < MOST:
        return None
    queries, keys, _ = turns
    what, place, others = _blame(probe, site, queries, keys, raw)
    return Found(
        f"with the same token at every position, the score of a query and a key still depends on where the pair "
        f"stands, by {off:.0%} of the largest score, and not on its distance alone: {what}",
        at=place,
        module=site.module,
        related=tuple(related(others, "it is turned here", place)),
    )


def _blame(
    probe: Probe, site: Site, queries: Turned, keys: Turned, raw: Tensor
) -> tuple[str, Place | None, list[Place | None]]:
    """What is wrong with the turning, and the lines."""
    for one, other, names in ((queries, keys, "queries"), (keys, queries, "keys")):
        if not one.factors or other.factors:
            continue
        op = one.factors[0][0]
        if _given_both(probe, one, other):  # the helper got both, and turned one
            return f"only the {names} are turned", op.place, [holder(op, site.product)]
        return f"only the {names} are turned", holder(op, site.product), [op.place]
    op, factor = keys.factors[0]
    second = (keys.factors[1:] or keys.factors)[0][0]
    here = [op.place, second.place, holder(op, site.product)]
    for each, at in ((queries, site.q_at), (keys, site.k_at)):
        held = matrices_of(probe, each, at)
        wrong = fault(held) if held is not None else None
        if wrong is None:
            continue
        table = _table_line(probe, each.factors[0][1])
        partner = partner_op(each)
        if wrong.where == "partner" and partner is not None:
            return wrong.what, partner.place, [*here, table]
        if wrong.where == "product" and _one_table(probe, each):
            return wrong.what, each.factors[-1][0].place, [table, *here]
        return wrong.what, table, [*here, partner.place if partner is not None else None]
    flipped = raw.flip(-1)
    if float((flipped[:, 1:, 1:] - flipped[:, :-1, :-1]).abs().max()) < MOST * float(raw.abs().max()):
        return "queries and keys are turned in opposite directions", holder(op, site.product), here
    return "queries and keys are turned by different angles", _table_line(probe, factor), here


def _given_both(probe: Probe, one: Turned, other: Turned) -> bool:
    """Was the function that turns one of them handed the other as well?"""
    frames = one.factors[0][0].frames
    if len(frames) < 2:
        return False
    name = (frames[0].place.file, frames[0].place.function)
    family = probe.base.record.ancestors([other.operand], stop=set(other.starts))
    return any(
        (call.place.file, call.place.function) == name and any(v in family and v.sources for v in call.given.values())
        and not call.library
        for call in watched(probe)
    )  # fmt: skip


def _one_table(probe: Probe, turned: Turned) -> bool:
    """Are all factors taken from one wave (two cosines), though the other one was made?"""
    names = [{op.name for v in probe.base.record.ancestors([f]) if (op := v.op)} & {"sin", "cos"} for _, f in turned.factors]
    return all(len(held) == 1 for held in names) and len({next(iter(held)) for held in names}) == 1


def _table_line(probe: Probe, factor: Value) -> Place | None:
    """Where the angles were spread over the features: the last such line before the wave, else where it was made."""
    todo, seen = [factor], set[Value]()
    spread: list[Place] = []
    while todo:
        value = todo.pop(0)
        op = value.op
        if op is None or value in seen:
            continue
        seen.add(value)
        wide = op.outputs and op.inputs and op.out.tensor.numel() > op.inputs[0].tensor.numel()
        if op.place is not None and wide and op.name in SPREADERS and value.shape[-1:] != op.inputs[0].shape[-1:]:
            spread.append(op.place)
        todo.extend(op.inputs)
    return spread[0] if spread else made_line_of_table(probe, factor)


def made_line_of_table(probe: Probe, factor: Value) -> Place | None:
    from headwise.doctor.positions import making_steps, root

    steps = making_steps(probe, root(factor))
    for place, op in steps:
        if op.removeprefix("aten.").split(".")[0] in {"repeat_interleave", "cat", "stack", "repeat", "expand"}:
            return place
    return steps[0][0] if steps else made_line(probe, factor)
