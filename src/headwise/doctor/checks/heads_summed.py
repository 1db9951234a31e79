"""Move one head at a time: each must move columns of its own of what the output projection reads."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Place, Severity, Tried, check
from headwise.doctor.heads import CONSEQUENCES, Heads, head_count, heads
from headwise.doctor.merging import Merged, merged, shares
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op


@check(
    id="HW206",
    title="Heads are added up instead of put side by side",
    why="All heads share the columns of one: what each of them read cannot be told apart any more.",
    fix="Concatenate the heads ([B, T, H, Dh] viewed as [B, T, H * Dh]) before the output projection.",
    needs={"sites"},
    explains={*CONSEQUENCES, "softmax-wrong-dim", "output-projection-missing", "heads-merged-wrong"},
    quick=True,
)
def heads_summed(probe: Probe) -> Iterator[Found | Tried]:
    asked = 0
    for each in heads(probe):
        if each.is_contracted:
            site = each.site
            yield _found(
                each,
                site.mix,
                f"the product with the values sums over {site.shape[2]} keys of all heads at once",
                None,
            )
            return
    for group in merged(probe):
        count, end = group.count(probe), group.end
        if count < 2 or end is None or not group.members[0].of["q"]:
            continue
        asked += 1
        value, axis = end
        table = shares(probe, group, value, axis)
        if table.shape[0] < 2 or not bool((table.amin(0) > 0.25).all()) or _shares_values(probe, group):
            continue
        projection = group.members[0].of["q"][0]
        whole = projection.x.shape[projection.axis] <= group.site.v_at.shape[-1]
        op = _adding(group, value.index)
        severity = "note" if whole else None  # some designs average heads as wide as the model
        yield _found(
            group.members[0],
            op,
            f"each of {count} heads moves all {value.shape[axis]} columns alike",
            severity,
        )
        return
    if not asked:
        raise NotApplicable("no attention of several heads was recognised")
    yield Tried(f"moved each head of {asked} attention(s) alone, and found columns that only it moves")


def _found(each: Heads, op: Op, what: str, severity: Severity | None) -> Found:
    at: Place | None = op.place
    return Found(
        f"{what}: head outputs of width {each.site.v_at.shape[-1]} are added up, not put side by side",
        at=at,
        module=op.module or each.site.module,
        related=(
            *related([each.site.mix.place], "the heads come from here", at),
            *related(callers(op)[1:2], "called from here", at),
        ),
        severity=severity,
    )


def _adding(group: Merged, before: int) -> Op:
    """The operation that adds heads up: the first reduction or sum behind their values."""
    seen = {each.site.mix.out for each in group.members}
    todo = [each.site.mix.out for each in group.members]
    sums: list[Op] = []
    while todo:
        for op in todo.pop().users:
            if op.name in {"sum", "mean", "add", "add_"} or not (op.moves or op.pointwise):
                sums.append(op)
                continue
            for out in op.outputs:
                if out.index <= before and out not in seen:
                    seen.add(out)
                    todo.append(out)
    return min(sums, key=lambda op: op.index) if sums else group.site.mix


def _shares_values(probe: Probe, group: Merged) -> bool:
    """Have all heads the same values (an average of heads is then an average of their weights)?"""
    v = group.site.v
    several = head_count(probe, group.site) > 1
    return several and len({tuple(each) for each in _rounded(v)}) <= probe.batch.rows


def _rounded(v: Tensor) -> list[list[float]]:
    """A few numbers of each slice, to tell slices apart."""
    wide = v.double().flatten(1)
    return [[round(float(x), 6) for x in (row.sum(), row.square().sum(), row[0])] for row in wide]
