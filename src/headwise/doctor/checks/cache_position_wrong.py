"""Watch generate: the new token of a cached step must get the position that it has in the whole text."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.cached import compared
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.probe import Probe


@check(
    id="HW310",
    title="With the cache the new token gets the wrong position",
    why="Training is right and generation is not: each new word is read as if it stood elsewhere in the "
    "text.",
    fix="Start counting at the number of tokens in the cache: arange(past, past + T).",
    needs={"generate", "tokens", "decoder", "finite"},
    explains={"cache-mismatch"},
)
def cache_position_wrong(probe: Probe) -> Iterator[Found | Tried]:
    told = compared(probe)
    if told.steps == 0:
        raise NotApplicable("generate uses no cache: each step is fed the whole text")
    wrong = told.mismatch
    if wrong is None or wrong.kind != "position":
        yield Tried(f"compared {told.steps} cached steps with the uncached pass")
        return
    yield Found(
        wrong.evidence,
        at=wrong.at,
        module=wrong.module,
        related=tuple(related(wrong.others, "the positions are used here", wrong.at)),
    )
