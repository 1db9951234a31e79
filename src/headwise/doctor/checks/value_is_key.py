"""Are values and keys one projection of one input, while queries have their own?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import branch, heads, in_library, is_one
from headwise.doctor.probe import Probe


@check(
    id="HW211",
    title="The values are the keys",
    why="What makes a position easy to find is all it can hand on; the values' own weights are never used.",
    fix="Take the values from their own projection (the third part of a fused one, or a layer of their own).",
    severity="warning",
    needs={"sites"},
    explains={"unused-parameters"},
    quick=True,
)
def value_is_key(probe: Probe) -> Iterator[Found | Tried]:
    known = [each for each in heads(probe) if each.of["k"] and each.of["v"] and not each.is_contracted]
    if not known:
        raise NotApplicable("keys or values come from no projection")
    for each in known:
        if not is_one(probe, each, "k", "v") or is_one(probe, each, "q", "k"):
            continue
        shared = each.of["k"][0].out is each.of["v"][0].out
        op = each.of["v"][0].op
        if shared:
            op = branch(probe, each, "v", "qk") or op
            if op.place in {each.site.product.place, each.site.mix.place}:  # keys and values are one tensor
                op = branch(probe, each, "v", "q") or op
        yield Found(
            f"keys and values are the same numbers, from one weight {list(each.of['v'][0].weight.shape)}; "
            "queries have their own",
            at=op.place,
            module=op.module or each.site.module,
            related=(
                *related([each.of["k"][0].op.place], "the projection of the keys", op.place),
                *related([each.site.mix.place], "the values are mixed here", op.place),
            ),
            severity="note" if in_library(op) else None,
        )
        return
    yield Tried(f"compared keys with values in {len(known)} attention(s)")
