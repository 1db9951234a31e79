"""Change one token: no output at an earlier position may move."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import applied_at, leaking_op, origin, related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.mask_lines import not_of, own_line
from headwise.doctor.masks import causal_forms, prefixes
from headwise.doctor.probe import Probe


@check(
    id="HW101",
    title="A position can see the tokens after it",
    why="Training loss falls by copying the answer; generation has no future to copy.",
    fix="Before softmax, set scores above the diagonal to -inf, and let nothing else mix positions.",
    needs={"causal", "sequence", "finite"},
    explains={"padding-attended", "cache-mismatch", "left-padding-changes-answer"},
    quick=True,
)
def causal_leak(probe: Probe) -> Iterator[Found | Tried]:
    main, length = probe.main, probe.length
    assert main is not None
    worst, at = 0.0, -1
    for t in _leaky(probe, prefix(probe)):
        moved = probe.compare(probe.change_after(t))
        early = probe.rows_first(moved.logits_by)[:, : t + 1]
        if probe.rows_first(moved.logits)[:, : t + 1].any() and float(early.max()) > worst:
            worst, at = float(early.max()), t
    if at < 0 or worst <= probe.noise / 4:
        yield Tried(f"changed the tokens after each of {length - 1} positions in {probe.batch.rows} rows")
        return
    op = leaking_op(probe)
    site = next((site for site in probe.sites if op in {site.mix, site.softmax, site.product}), None)
    made = [line for _, mask in site.masks for line in origin(probe, mask)] if site is not None else []
    place = op.place if op else None
    if site is not None:
        leaking = [
            each for each, form in causal_forms(probe) if form not in {"causal", "excludes-self", "prefix"}
        ]
        place = own_line(site, not_of(probe.sites, [site, *leaking])) if not site.masks else applied_at(site)
        made = [*made, applied_at(site)]
    yield Found(
        f"changing the tokens after t={at} moved outputs up to t by {worst:.2g} (noise {probe.noise:.0e})",
        at=place,
        module=site.module if site is not None else (op.module if op else ""),
        related=tuple(related(made, "the mask is made or put on here", place)),
    )


def _leaky(probe: Probe, start: int) -> list[int]:
    """Positions whose outputs move with a later token; where there are too many for bits, some to try."""
    assert probe.main is not None
    if probe.length > 62:
        return [t - 1 for t in probe.positions(probe.main) if t > max(0, start - 1)]
    seen = probe.positions_seen(probe.main).get(probe.base.logits_value.index)
    if seen is None:
        return []
    bits = probe.rows_first(seen).flatten(2)
    wrong = [t for t in range(max(0, start - 1), probe.length - 1) if bool((bits[:, t] >> (t + 1)).any())]
    return wrong[:2]


def prefix(probe: Probe) -> int:
    """How many places at the start may see one another: those of a prefix-LM, where every mask says so."""
    forms = causal_forms(probe)
    if any(form not in {"causal", "prefix"} for _, form in forms):
        return 0
    return max((int(prefixes(site).max()) for site, _ in forms), default=0)
