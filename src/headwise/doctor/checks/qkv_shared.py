"""Are queries and keys (and values) one projection of one input, up to rotation and scale?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import heads, in_library, is_one
from headwise.doctor.probe import Probe


@check(
    id="HW210",
    title="Queries, keys and values are one projection",
    why="Scores are symmetrical and each position looks at itself most: no direction can be learned.",
    fix="Give queries, keys and values a linear layer each (or one three times as wide, cut in three).",
    needs={"sites"},
    explains={"value-is-key", "weights-accidentally-shared", "attention-collapsed", "unused-parameters"},
    quick=True,
)
def qkv_shared(probe: Probe) -> Iterator[Found | Tried]:
    known = [each for each in heads(probe) if each.of["q"] and each.of["k"] and not each.is_contracted]
    if not known:
        raise NotApplicable("queries or keys come from no projection")
    for each in known:
        if not is_one(probe, each, "q", "k"):
            continue
        site = each.site
        all_three = is_one(probe, each, "k", "v")
        op = each.of["k"][0].op
        what = "queries, keys and values" if all_three else "queries and keys (values have their own)"
        severity = None if all_three else "warning"  # shared queries and keys are a published design
        yield Found(
            f"{what} are the same numbers, from one weight of shape {list(each.of['q'][0].weight.shape)}",
            at=op.place,
            module=op.module or site.module,
            related=tuple(
                related([each.of["q"][0].op.place, site.product.place], "they meet here", op.place)
            ),
            severity="note" if in_library(op) else severity,
        )
        return
    yield Tried(f"compared queries with keys in {len(known)} attention(s)")
