"""What is unusual in what was measured, in plain words, with the doctor's check to ask next.

The bounds come from the doctor's own checks or are said with their source. What training does on purpose is
no fault: a gain that grows, a head that learns to look at one place, a rate that is small while it warms up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from headwise.doctor.check import Severity
from headwise.see.heads import SHARP
from headwise.see.watch.measure import AttentionSeen, NormSeen
from headwise.see.watch.nonfinite import NotFinite
from headwise.see.watch.sample import LayerSeen, Sample

NORM_LOW, NORM_HIGH = 0.5, 2.0  # of a LayerNorm's output; 0.8 to 1.2 is usual
LATE = 200  # steps, after which heads have parted from one another in every training of ours
DAMPED = 0.7  # the doctor's eps-wrong calls it an error when eps leaves less of the size
LARGE_EPS = 9e-4  # as the doctor's eps-wrong: no public model adds more to a variance
ONE_HOT = (
    0.98  # mean of the largest weight, as the doctor's attention-collapsed has it; fresh: see.heads.SHARP
)
FLAT_SCORES = 1e-5  # the same check's: the spread of a query's scores; the smallest healthy one is 1e-3
UNEVEN = 1000.0  # as the doctor's depth-unstable: gradients of like layers, the largest over the smallest
LEAST_DEPTH = 4
LEAP, CREEP = 0.1, 1e-5  # of its length that a step moves a layer; about 1e-3 is usual
EARLY = 20  # steps, in which small weights grow to their size: only a step longer than they is told
WILD = 20.0  # a gain beyond this was not learnt but blown up; trained public models stay below 10
SPIKE = 100.0  # times the median of the samples before

# the doctor's checks that are named here: their names are compared with the checks' own in the tests
CHECKS = {
    "HW111": "fully-masked-row-nan",
    "HW404": "norm-formula-wrong",
    "HW410": "eps-wrong",
    "HW412": "depth-unstable",
    "HW604": "parameters-not-in-optimizer",
    "HW605": "unused-parameters",
    "HW606": "gradient-cut",
    "HW607": "bad-init",
    "HW702": "learning-rate-too-high",
    "HW707": "attention-collapsed",
    "HW901": "first-nan",
    "HW902": "half-precision-overflow",
}


@dataclass(frozen=True)
class Unusual:
    """Something unusual: since which step, how grave, what was measured, and the check that looks into it.

    severity: "note" for what training may well do on purpose.
    """

    step: int
    severity: Severity
    what: str
    check: str
    file: str = ""
    line: int = 0

    @property
    def name(self) -> str:
        """The check's name."""
        return CHECKS[self.check]

    @property
    def advice(self) -> str:
        """How to go on."""
        return f"headwise doctor FILE --select {self.check} looks into it ({self.name})"

    def __str__(self) -> str:
        return f"step {self.step}: {self.what}; {self.advice}"


class Judge:
    """Hears the samples one after another, and tells each unusual thing once, when it has lasted."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._lasted: dict[str, int] = {}
        self._told: set[str] = set()
        self._gradients: list[float] = []
        self._losses: list[float] = []
        self._highest_rate = 0.0

    def hear(self, sample: Sample, missing: Sequence[str] = ()) -> list[Unusual]:
        """What is unusual from this sample on; missing: parameters with a gradient and in no optimizer."""
        if self._first is None:
            self._first = sample.step
        alike: dict[tuple[str, Severity, str], list[tuple[str, str]]] = {}
        now: set[str] = set()
        for key, samples, severity, what, check in self._all(sample, missing):
            now.add(key)
            self._lasted[key] = self._lasted.get(key, 0) + 1
            if self._lasted[key] >= samples and key not in self._told:
                self._told.add(key)
                kind, _, name = key.partition(" ")
                alike.setdefault((kind, severity, check), []).append((name, what))
        for key in set(self._lasted) - now:
            del self._lasted[key]
        if sample.gradient is not None and math.isfinite(sample.gradient):
            self._gradients = [*self._gradients[-19:], sample.gradient]
        if sample.loss is not None:
            self._losses = [*self._losses[:1], *self._losses[1:][-18:], sample.loss]
        self._highest_rate = max(self._highest_rate, sample.rate or 0.0)
        return [
            Unusual(sample.step, severity, _together(told), check)
            for (_, severity, check), told in alike.items()
        ]

    def _all(self, sample: Sample, missing: Sequence[str]) -> Iterator[_Told]:
        yield from _norms(sample)
        yield from self._attention(sample)
        yield from self._gradient(sample)
        yield from self._update(sample, missing)

    def _attention(self, sample: Sample) -> Iterator[_Told]:
        seen = {name: each for name, each in sample.attentions.items() if each.heads}
        if not seen:
            return
        is_fresh = sample.step == self._first and sample.step <= 1
        tops = {name: fmean(head.top for head in each.heads) for name, each in seen.items()}
        bound = SHARP if is_fresh else ONE_HOT
        sharp = [name for name, top in tops.items() if top > bound]
        flat = [name for name, each in seen.items() if each.spread < FLAT_SCORES and _has_choice(each)]
        if 2 * len(sharp) >= len(seen) and is_fresh:
            what = f"before training, each query of {_few(sharp)} looks at one key only: no gradient passes"
            yield "one-hot", 1, "warning", what, "HW707"
        elif len(sharp) == len(seen):
            what = "each query of every head looks at one key only (its weight is above 0.98)"
            yield "sharp", 3, "note", what, "HW707"
        if 2 * len(flat) >= len(seen) and sample.step != self._first:
            what = f"all scores of a query are equal in {_few(flat)}: attention is uniform and stays so"
            yield "flat", 2, "warning", what, "HW707"
        dead = [
            f"{name} head {number}"
            for name, each in seen.items()
            for number, head in enumerate(each.heads)
            if head.state == "dead"
        ]
        for name in dead:
            what = f"{name} looks at the same key whatever the query: it may do nothing"
            yield f"dead {name}", 3, "note", what, "HW707"
        uniform = [name for name, each in seen.items() if all(head.state == "uniform" for head in each.heads)]
        is_late = sample.step >= LATE
        if is_late and len(uniform) == len(seen) and not flat and _has_choice(*seen.values()):
            what = "after this many steps every head still looks at all keys alike (entropy above 99 %)"
            yield "uniform", 4, "note", what, "HW707"

    def _gradient(self, sample: Sample) -> Iterator[_Told]:
        for stack, layers in _stacks(sample).items():
            held = {name: g for name, layer in layers if (g := layer.gradient)}
            if len(held) >= LEAST_DEPTH and all(math.isfinite(g) for g in held.values()):
                low, high = (choose(held, key=lambda name: held[name]) for choose in (min, max))
                least, most = held[low], held[high]
                if most > UNEVEN * least:
                    what = (
                        f"the gradient of {high} is {most / least:,.0f} times as long as that of {low} "
                        f"({most:.1g} against {least:.1g})"
                    )
                    yield f"uneven {stack}", 2, "warning", what, "HW412"
        if sample.gradient == 0:
            yield "no gradient", 2, "warning", "every gradient is exactly 0", "HW606"
        elif sample.step != self._first:
            zero = [name for name, layer in sample.layers.items() if layer.gradient == 0]
            if zero:
                yield f"zero {zero[0]}", 3, "warning", f"the gradient of {_few(zero)} is exactly 0", "HW606"
        blind = [name for each in _stacks(sample).values() for name, layer in each if layer.gradient is None]
        if blind and sample.gradient:
            yield f"blind {blind[0]}", 3, "warning", f"no gradient reaches {_few(blind)}", "HW605"
        elif sample.without:
            what = f"no gradient reaches {_few(sample.without)}"
            yield f"without {sample.without[0]}", 3, "note", what, "HW605"
        known = self._gradients
        if len(known) >= 3 and sample.gradient is not None and sample.gradient > SPIKE * median(known) > 0:
            what = f"the gradient's length jumped to {sample.gradient:.3g}, from {median(known):.3g} before"
            yield "spike", 1, "note", what, "HW702"

    def _update(self, sample: Sample, missing: Sequence[str]) -> Iterator[_Told]:
        if missing:
            what = f"no optimizer that takes steps holds {_few(missing)}, though a gradient comes there"
            yield f"missing {missing[0]}", 2, "warning", what, "HW604"
        elif sample.still:
            what = f"the step did not move {_few(sample.still)}, though a gradient comes there"
            yield f"still {sample.still[0]}", 3, "note", what, "HW604"
        moved = {name: layer.update for name, layer in sample.layers.items() if layer.update is not None}
        bound = LEAP if sample.step > EARLY else 1.0
        far = [name for name, share in moved.items() if share > bound]
        if far:
            most = max(moved[name] for name in far)
            what = f"one step moves {_few(far)} by up to {most:.0%} of its length (0.1 % is usual)"
            yield "leap", 2 if sample.step > EARLY else 1, "warning", what, "HW702"
        is_full = sample.rate is not None and sample.rate >= 0.5 * self._highest_rate > 0
        near = [name for name, share in moved.items() if 0 < share < CREEP]
        if near and is_full and len(self._gradients) >= 3:
            what = f"a step moves {_few(near)} by less than 0.001 % of its length: it hardly learns"
            yield "creep", 3, "note", what, "HW702"
        yield from self._loss(sample, is_wild=bool(far))

    def _loss(self, sample: Sample, *, is_wild: bool) -> Iterator[_Told]:
        """A loss that has risen for good: an adversary's may; with long steps or gradients it is a fault."""
        recent = [*self._losses[1:], *([] if sample.loss is None else [sample.loss])][-3:]
        first = self._losses[0] if self._losses else 0.0
        if sample.loss is None or len(recent) < 3 or min(recent) <= 2 * max(first, 0) or fmean(recent) <= 1:
            return
        known = self._gradients
        is_long = bool(known) and (sample.gradient or 0.0) > 10 * median(known)
        what = f"the loss is {sample.loss:.3g} and began at {first:.3g}: "
        if is_wild or is_long:
            yield "diverges", 2, "warning", f"{what}training diverges", "HW702"
        else:
            yield "rises", 2, "note", f"{what}if it is to fall, training diverges", "HW702"


# what it is about ("norm blocks.0.ln"), samples it must last, severity, words, check
_Told = tuple[str, int, Severity, str, str]


def _together(told: list[tuple[str, str]]) -> str:
    """Things alike in one sentence: the first in full, the others by name."""
    others = [name for name, _ in told[1:]]
    return told[0][1] + (f"; the same at {_few(others)}" if others else "")


def _norms(sample: Sample) -> Iterator[_Told]:
    for name, norm in sample.norms.items():
        if not math.isfinite(norm.std) or NORM_LOW <= norm.std <= NORM_HIGH:
            continue
        told = f"norm {name}: output std {norm.std:.2g} (0.8 to 1.2 is usual)"
        if norm.gain > WILD:
            what = f"{told}, for its gain has grown to {norm.gain:.2g}"
            yield f"gain {name}", 1, "warning", what, "HW702"
        elif not norm.is_even:
            yield f"norm {name}", 1, "warning", f"{told}: it does not normalise what enters", "HW404"
        elif norm.share < DAMPED:
            yield from _damped(name, norm, told, is_late=sample.step >= LATE)
        else:
            what = f"{told}: it is its gain (rms {norm.gain:.2g}) and bias that make it so, as training may"
            yield f"gain {name}", 1, "note", what, "HW404"


def _damped(name: str, norm: NormSeen, told: str, *, is_late: bool) -> Iterator[_Told]:
    """Too little leaves a norm: by its eps, if that is large; else what enters is as small as a usual eps."""
    if norm.eps >= LARGE_EPS:
        what = f"{told}: its eps, {norm.eps:.1g}, is too large for an input of size {norm.entered:.2g}"
        yield f"eps {name}", 1, "warning", what, "HW410"
        return
    what = (
        f"{told}: what enters it is so small, {norm.entered:.1g}, that its eps, {norm.eps:.1g}, outweighs it"
    )
    yield f"small {name}", 1, "note", f"{what}; training should make it grow", "HW410"
    if is_late:
        yield f"blank {name}", 3, "warning", f"{what}, and training does not make it grow", "HW410"


def _has_choice(*seen: AttentionSeen) -> bool:
    """Has a query three keys or more to choose from? Else its head shows an entropy and no largest weight."""
    return all(any(head.top > 0 for head in each.heads) for each in seen)


def _stacks(sample: Sample) -> dict[str, list[tuple[str, LayerSeen]]]:
    found: dict[str, list[tuple[str, LayerSeen]]] = {}
    for name, layer in sample.layers.items():
        start = re.sub(r"\d+$", "", name)
        if start != name:
            found.setdefault(start, []).append((name, layer))
    return found


def _few(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def told_of(bad: NotFinite, *, is_half: bool) -> Unusual:
    """A number that is not finite, as something unusual."""
    is_masked = bad.operation in {"_softmax", "_safe_softmax"} and bad.phase == "forward"
    check = "HW111" if is_masked else "HW902" if is_half else "HW901"
    where = f" at {bad.where}" if bad.file else ""
    phase = {
        "forward": "in the forward pass", "backward": "on the way back", "loss": "in the loss",
        "weights": "in the weights",
    }.get(bad.phase, "somewhere")  # fmt: skip
    what = f"a gradient became NaN or infinite: {phase}{where}, {bad.told}"
    return Unusual(bad.step, "error", what, check, bad.file, bad.line)
