"""Watch generate: a step with a cache must give the scores that the whole text gives without one."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.cached import compared
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.probe import Probe


@check(
    id="HW801",
    title="Decoding with the cache gives other scores than without it",
    why="Training never uses the cache, so nothing repairs it: generation is worse than the loss promises.",
    fix="Join the old keys and values before the new ones, along the axis of time, and let the new token see "
    "them all.",
    needs={"generate", "tokens", "decoder", "finite"},
)
def cache_mismatch(probe: Probe) -> Iterator[Found | Tried]:
    told = compared(probe)
    wrong = told.mismatch
    if told.steps == 0 and wrong is None:
        yield Tried("generate feeds the whole text at every step: there is no cache to be wrong")
        return
    if wrong is None or wrong.kind != "cache":
        yield Tried(f"compared {told.steps} cached steps with the uncached pass")
        return
    yield Found(
        wrong.evidence,
        at=wrong.at,
        module=wrong.module,
        related=tuple(related(wrong.others, "it takes part in the cached step", wrong.at)),
    )
