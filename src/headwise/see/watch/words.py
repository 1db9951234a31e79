"""What a watch has seen, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwise.doctor.places import fold, visible
from headwise.see.watch.sample import Sample

if TYPE_CHECKING:
    from headwise.see.watch.watcher import Watch

WIDTH = 100
RANK = {"error": 0, "warning": 1, "note": 2}


def summary(watch: Watch) -> str:
    """A few lines: how long was watched, what is unusual, the latest numbers, what could not be seen."""
    lines = [_head(watch)]
    for each in sorted(watch.findings, key=lambda each: RANK[each.severity]):
        first, *rest = fold(visible(f"{each.severity}: {each}"), WIDTH - 2)
        lines += [first, *(f"  {line}" for line in rest)]
    if watch.history:
        lines += [line for text in latest(watch.history[-1]) for line in fold(visible(text), WIDTH)]
    lines += [line for note in watch.notes for line in fold(visible(f"note: {note}"), WIDTH)]
    return "\n".join(lines)


def _head(watch: Watch) -> str:
    steps, samples = watch.step, len(watch.history)
    grave = [each for each in watch.findings if each.severity != "note"]
    found = f"{len(grave)} unusual" if grave else "nothing unusual"
    return f"{steps} steps, {samples} measured: {found}"


def latest(sample: Sample) -> Iterator[str]:
    """The numbers of a sample, each kind in a line."""
    told = [f"step {sample.step}"]
    if sample.loss is not None:
        told.append(f"loss {sample.loss:.4g}")
    if sample.gradient is not None:
        told.append(f"gradient {sample.gradient:.3g}")
    if sample.rate is not None:
        told.append(f"rate {sample.rate:.3g}")
    yield "  ".join(told)
    if sample.norms:
        yield f"norms: output std {_range([n.std for n in sample.norms.values()])} (0.8 to 1.2 is usual)"
    seen = list(sample.attentions.values())
    if seen:
        q, k, v = (_range([getattr(each, letter) for each in seen]) for letter in ("q", "k", "v"))
        yield f"std of queries {q}, keys {k}, values {v}"
        heads = [head for each in seen for head in each.heads]
        if heads:
            shares = _range([head.entropy for head in heads])
            states = [head.state for head in heads]
            counted = ", ".join(
                f"{states.count(s)} {s}" for s in ("dead", "uniform", "one-hot") if s in states
            )
            yield f"heads: entropy {shares} of the most possible" + (f"; {counted}" if counted else "")
        ends = [each.projection for each in seen if each.projection is not None and each.projection[0] > 0]
        if ends:
            yield f"output projections: std out over std in {_range([out / into for into, out in ends])}"
    moved = [layer.update for layer in sample.layers.values() if layer.update is not None]
    if moved:
        yield f"a step moves layers by {_range(moved)} of their length (about 0.001 is usual)"


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g}"
