"""Mark what each query read, by time: a vector that enters the output projection must hold one time only."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import CONSEQUENCES, Heads, breaking_op, head_count, row_of_vector
from headwise.doctor.merging import like_mixed, merged, read_from, times, times_in, vector_times, way_on
from headwise.doctor.probe import Probe


@check(
    id="HW205",
    title="Heads are put together across time instead of side by side",
    why="What one position read ends up at other positions, and a causal model hands the future on.",
    fix="Transpose [B, H, T, Dh] back to [B, T, H, Dh] before viewing it as [B, T, H * Dh].",
    needs={"sites"},
    explains={*CONSEQUENCES, "output-projection-missing"},
    quick=True,
)
def heads_merged_wrong(probe: Probe) -> Iterator[Found | Tried]:
    asked = 0
    for group in merged(probe):
        for each in group.members:
            if head_count(probe, each.site) < 2 or not _is_whole(each, probe.batch.rows):
                continue
            asked += 1
            way = way_on(each.site, read_from(each.of["q"]))
            for value, axis, marks in times_in(probe, each, way):
                held = vector_times(value, axis, marks)
                wrong = int((held > 1).sum())
                if not wrong:
                    continue
                start = each.site.mix.out
                rows = row_of_vector(probe, each.of["q"][0])
                op = breaking_op(probe, {start: like_mixed(each.site, times(each))}, value, rows)
                at = op.place if op is not None else each.site.mix.place
                yield Found(
                    f"after the heads are put together {wrong} of {len(held)} vectors hold what several "
                    f"positions read (up to {int(held.max())}), where each must hold its own",
                    at=at,
                    module=op.module if op is not None and op.module else each.site.module,
                    related=(
                        *related([each.site.mix.place], "the heads come from here", at),
                        *related(callers(op)[1:2] if op is not None else [], "called from here", at),
                    ),
                )
                return
    if not asked:
        raise NotApplicable(
            "no attention of several heads whose queries come from a projection that could be marked"
        )
    yield Tried(f"followed the heads of {asked} attention(s) onwards, and found one time in each vector")


def _is_whole(each: Heads, rows: int) -> bool:
    """Do a slice's queries come from different times of one projection (else the fault lies before)?"""
    if not each.is_known or each.is_contracted or len(each.of["q"]) != 1:
        return False
    lines = times(each).sort(-1).values
    different = 1 + (lines[:, 1:] != lines[:, :-1]).sum(-1)
    whole = each.of["q"][0].count // max(
        1, rows
    )  # heads folded into the queries' axis: each time once a head
    return bool(((different == lines.shape[1]) | (different >= whole)).all())
