"""In a deep post-norm stack that does not learn as given, rehearse again with the rate rising from zero."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.checks.learning_rate_too_high import curves
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import DEEP, norm_after_add, optimizer_line, own, warmed

HIGH = 5e-3  # above it the rate itself is at fault


@check(
    id="HW703",
    title="A deep post-norm stack is trained without warm-up",
    why="At the start the gradients near the output are large: steps of full size throw the stack off.",
    fix="Let the rate rise linearly over the first hundreds of steps, or put the norm before each sub-layer.",
    needs={"loss", "optimizer", "finite", "sites"},
    explains={"cannot-memorise", "learning-rate-too-high"},
)
def no_warmup_post_norm(probe: Probe) -> Iterator[Found | Tried]:
    norms = max(norm_after_add(probe), key=len)
    if len(norms) < DEEP:
        raise NotApplicable(f"it is for deep post-norm stacks, and this has {len(norms)} norms after a sum")
    mine = own(probe)
    steps = len(mine.losses) - 1
    rates = mine.rates[: max(1, len(mine.rates) // 2)]
    if not rates or min(rates) < 0.5 * max(rates) or max(rates) > HIGH:
        yield Tried(f"the rate rises from {min(rates, default=0):.2g} to {max(rates, default=0):.2g}")
        return
    if mine.fell > 1 / 3:
        yield Tried(f"{steps} steps without warm-up took the loss from {mine.start:.2f} to {mine.end:.2f}")
        return
    warm = warmed(probe)
    if warm.best > 0.75 * mine.best:
        yield Tried(f"without warm-up the loss ends at {mine.end:.2f}, with it at {warm.end:.2f}")
        return
    place = optimizer_line(probe)
    yield Found(
        f"{len(norms)} norms stand after a residual sum and the rate is {rates[0]:.2g} from step one: "
        f"in {steps} steps the loss went from {mine.start:.2f} to {mine.end:.2f}; "
        f"with the rate rising from zero it went to {warm.end:.2f}",
        at=place,
        module=norms[0],
        related=tuple(related([constructed(probe, norms[0])], "the post-norm layer is made here", place)),
        picture=curves("Loss on one batch", {"as given": mine, "with warm-up": warm}),
    )
