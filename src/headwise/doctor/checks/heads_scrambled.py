"""Mark each vector of the q, k and v projections: a head must get one vector a time, and every time once."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import CONSEQUENCES, Heads, breaking_op, heads, row_of_vector
from headwise.doctor.probe import Probe


@check(
    id="HW204",
    title="Heads are cut across time instead of across features",
    why="A head sees a few neighbouring positions chopped into pieces, never the whole sequence.",
    fix="View [B, T, H, Dh] first and then transpose to [B, H, T, Dh]; never view straight to [B, H, T, Dh].",
    needs={"sites"},
    explains={*CONSEQUENCES, "heads-merged-wrong"},
    quick=True,
)
def heads_scrambled(probe: Probe) -> Iterator[Found | Tried]:
    known = [each for each in heads(probe) if any(bool((each.came(name) >= 0).any()) for name in "qkv")]
    if not known:
        raise NotApplicable("queries, keys and values come from no projection that could be marked")
    for each in known:
        for name in "qkv":
            seen = _scrambled(probe, each, name)
            if seen is None:
                continue
            value = {"q": each.site.q_value, "k": each.site.k_value, "v": each.site.v_value}[name]
            found = each.of[name][0]
            alike = {p.out: p for ps in each.of.values() for p in ps if p.count == found.count}
            starts = {out: p.vectors() for out, p in alike.items()}
            op = breaking_op(probe, starts, value, row_of_vector(probe, found))
            at = op.place if op is not None else each.site.place
            yield Found(
                f"the {({'q': 'queries', 'k': 'keys', 'v': 'values'})[name]} of one head {seen}",
                at=at,
                module=op.module if op is not None and op.module else each.site.module,
                related=(
                    *related(callers(op)[1:2] if op is not None else [], "called from here", at),
                    *related([each.site.place], "the attention of these heads", at),
                ),
            )
            return
    yield Tried(
        f"marked every projected vector of {len(known)} attention(s), and found each once in every head"
    )


def _scrambled(probe: Probe, each: Heads, name: str) -> str | None:
    """What one head got, in words, where it is neither every time once nor one time for all."""
    came, found = each.came(name), each.of[name]
    if not found or came.shape[1] < 2 or each.is_contracted:
        return None
    rows = probe.batch.rows
    whole = min(p.count // rows if p.count % rows == 0 else p.count for p in found)
    lines = came.transpose(1, 2).reshape(-1, came.shape[1])
    lines = lines[(lines >= 0).all(-1)]
    if lines.numel():
        ordered = lines.sort(-1).values
        different = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(-1)
        bad = (different > 1) & (different < came.shape[1]) & (different < whole)
        if bool(bad.any()):
            return f"come from {int(different[bad][0])} of {whole} positions, some several times over"
    if bool((came < 0).any()) or bool((came == came[:, :1]).all()):
        return None  # attention over features (every query reads all positions) is a design of its own
    vectors = came.reshape(-1, came.shape[-1]).sort(-1).values
    pieces = 1 + (vectors[:, 1:] != vectors[:, :-1]).sum(-1)
    worst = int(torch.max(pieces))
    return (
        f"are pieced together, one vector from {worst} positions" if worst >= 3 and len(found) == 1 else None
    )
