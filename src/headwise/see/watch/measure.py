"""What is read off the tensors of a pass: a few numbers each, kept on their device until all are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.see.heads import FEWEST, FLAT, SHARP, State
from headwise.see.watch.plan import Axes, Plan, SiteTap, Tap

QUERIES = 64  # of each head, spread over the positions, are enough for its entropy
GAP = 500.0  # between the scores of keys that are seen and of those that -1e3 was added to
FORBIDDEN = -5e3  # a score below was put there by a mask; those that are computed stay far above


@dataclass(frozen=True)
class NormSeen:
    """A norm: std of what leaves it (gain and bias included), rms of its gain, std of what enters.

    is_even: what leaves it does not depend on the size of what enters, as it should be. eps: what it adds to
    the variance. Both std within a position are meant by "enters" (for an RMSNorm its rms).
    """

    std: float
    gain: float
    entered: float
    is_even: bool = True
    eps: float = 0.0

    @property
    def share(self) -> float:
        """How much of the unit size that it should give its eps leaves."""
        variance = self.entered**2
        return (variance / (variance + self.eps)) ** 0.5 if variance + self.eps > 0 else 1.0


@dataclass(frozen=True)
class HeadSeen:
    """A head over the keys that its queries may look at: entropy as a share of the most possible, 0 to 1;
    top: the largest weight of a query; one: the weight on the one key that gets most; all are means."""

    entropy: float
    top: float
    one: float

    @property
    def state(self) -> State:
        """As `see.heads` calls it: uniform, dead (every query the same key), one-hot, or nothing of these."""
        if self.entropy >= FLAT:
            return "uniform"
        if self.one >= SHARP:
            return "dead"
        return "one-hot" if self.top >= SHARP else ""


@dataclass(frozen=True)
class AttentionSeen:
    """An attention: std of queries, keys and values; spread of a query's scores (std, natural units of the
    softmax); its heads; std of what its output projection reads and gives (None where it has none)."""

    q: float
    k: float
    v: float
    spread: float
    heads: tuple[HeadSeen, ...]
    projection: tuple[float, float] | None = None


@dataclass
class Seen:
    """What one look at the model showed; activations: rms of the layers' results."""

    norms: dict[str, NormSeen] = field(default_factory=dict[str, NormSeen])
    attentions: dict[str, AttentionSeen] = field(default_factory=dict[str, AttentionSeen])
    activations: dict[str, float] = field(default_factory=dict[str, float])


class Gauge:
    """Calls for `Taps`, and the numbers that they left behind: read once, at the end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._held: dict[tuple[Any, ...], Tensor] = {}
        self._allowed: dict[str, Tensor] = {}

    def calls(self) -> dict[Tap, Callable[[Tensor], None]]:
        """What to do with which tap; one that is asked several things does all of them."""
        wanted: dict[Tap, list[Callable[[Tensor], None]]] = {}
        for norm in self._plan.norms:
            wanted.setdefault(norm.entered, []).append(
                self._keep(("norm", norm.name, "entered"), spread if norm.has_mean else rms)
            )
            wanted.setdefault(norm.out, []).append(self._keep(("norm", norm.name, "std"), std))
        for site in self._plan.sites:
            for name, tap in (("q", site.q), ("k", site.k), ("v", site.v)):
                wanted.setdefault(tap, []).append(self._keep(("site", site.name, name), std))
            for name, tap in zip(("in", "out"), site.projected or (), strict=False):
                wanted.setdefault(tap, []).append(self._keep(("site", site.name, name), std))
            wanted.setdefault(site.scores, []).append(self._scores(site))
            wanted.setdefault(site.weights, []).append(self._weights(site))
        for path, tap in self._plan.layers.items():
            wanted.setdefault(tap, []).append(self._keep(("layer", path, ""), rms))
        return {tap: _all(calls) for tap, calls in wanted.items()}

    def read(self, gains: Callable[[tuple[str, ...]], Tensor]) -> Seen:
        """All numbers, in one transfer from the device; gains: the rms of parameters, by their names."""
        for norm in self._plan.norms:
            self._held["norm", norm.name, "gain"] = gains(norm.gains)
        keys = list(self._held)
        sizes = [self._held[key].numel() for key in keys]
        flat = [self._held[key].reshape(-1).float() for key in keys]
        device = flat[0].device if flat else None
        numbers: list[float] = torch.cat([x.to(device) for x in flat]).tolist() if flat else []  # pyright: ignore
        values: dict[tuple[Any, ...], list[float]] = {}
        start = 0
        for key, size in zip(keys, sizes, strict=True):
            values[key] = numbers[start : start + size]
            start += size
        return self._seen(values)

    def _seen(self, values: dict[tuple[Any, ...], list[float]]) -> Seen:
        seen = Seen()
        for norm in self._plan.norms:
            name = norm.name
            std, gain, entered = (values["norm", name, what][0] for what in ("std", "gain", "entered"))
            seen.norms[name] = NormSeen(std, gain, entered, norm.is_even, norm.eps)
        for site in self._plan.sites:
            q, k, v, spread = (values["site", site.name, what][0] for what in ("q", "k", "v", "spread"))
            shares, tops, ones = (values["site", site.name, what] for what in ("share", "top", "one"))
            heads = tuple(HeadSeen(*three) for three in zip(shares, tops, ones, strict=True))
            ends = None
            if site.projected is not None:
                ends = values["site", site.name, "in"][0], values["site", site.name, "out"][0]
            q, k = q / abs(site.factors[0]), k / abs(site.factors[1])
            seen.attentions[site.name] = AttentionSeen(q, k, v, spread, heads, ends)
        for path in self._plan.layers:
            seen.activations[path] = values["layer", path, ""][0]
        return seen

    def _keep(self, key: tuple[Any, ...], of: Callable[[Tensor], Tensor]) -> Callable[[Tensor], None]:
        def call(tensor: Tensor) -> None:
            self._held[key] = of(tensor)

        return call

    def _scores(self, site: SiteTap) -> Callable[[Tensor], None]:
        def call(tensor: Tensor) -> None:
            scores = canonical(tensor, site.axes)
            allowed = visible(scores)
            self._allowed[site.name] = allowed
            held = scores.masked_fill(~allowed, 0.0)
            count = allowed.sum(-1).clamp(min=1)
            mean = held.sum(-1) / count
            variance = (held.square().sum(-1) / count - mean.square()).clamp(min=0)
            self._held["site", site.name, "spread"] = variance.sqrt().mean()

        return call

    def _weights(self, site: SiteTap) -> Callable[[Tensor], None]:
        def call(tensor: Tensor) -> None:
            weights = canonical(tensor, site.axes)
            share, top, one = head_numbers(weights, self._allowed[site.name])
            self._held["site", site.name, "share"] = share
            self._held["site", site.name, "top"] = top
            self._held["site", site.name, "one"] = one

        return call


def canonical(tensor: Tensor, axes: Axes) -> Float[Tensor, "B H Tq Tk"]:
    """Weights or scores as rows, heads, some of the queries, keys; in float32."""
    order = [axes.queries, axes.keys]
    rest = [d for d in range(tensor.dim()) if d not in order]
    if axes.heads is not None and not axes.folded:
        rest = [d for d in rest if d != axes.heads] + [axes.heads]
    moved = tensor.permute(*rest, *order)
    if axes.heads is None:
        moved = moved.reshape(-1, 1, *moved.shape[-2:])
    elif not axes.folded:
        moved = moved.reshape(-1, *moved.shape[-3:])
    else:
        shape = (-1, axes.num_heads) if axes.folded == "rows" else (axes.num_heads, -1)
        moved = moved.reshape(*shape, *moved.shape[-2:])
        moved = moved if axes.folded == "rows" else moved.transpose(0, 1)
    count = moved.size(2)
    if count > QUERIES:
        chosen = torch.arange(QUERIES, device=tensor.device) * (count - 1) // (QUERIES - 1)
        moved = moved.index_select(2, chosen)
    return moved.float()


def visible(scores: Float[Tensor, "B H Tq Tk"]) -> Tensor:
    """Which keys no mask hides: by a score that none computes, or by a gap that none leaves (of -1e3)."""
    allowed = scores > FORBIDDEN
    near = scores > scores.amax(-1, keepdim=True) - GAP
    least = scores.masked_fill(~near, torch.inf).amin(-1, keepdim=True)
    most = scores.masked_fill(near, -torch.inf).amax(-1, keepdim=True)
    is_apart = least - most > GAP
    return allowed & (near | ~is_apart)


def head_numbers(
    weights: Float[Tensor, "B H Tq Tk"], allowed: Tensor
) -> tuple[Float[Tensor, " H"], Float[Tensor, " H"], Float[Tensor, " H"]]:
    """By head: entropy as a share of the most possible, the largest weight, the weight on the favourite key.

    Means over the queries that have a choice: two keys or more for the entropy, FEWEST for the others; 0
    where no query has.
    """
    keys = allowed.sum(-1)  # [B, H, Tq]
    held = torch.where(allowed, weights, 0.0)  # a row of a mask that hides all may be NaN
    spread = held / held.sum(-1, keepdim=True).clamp(min=1e-30)
    entropy = -torch.xlogy(spread, spread).sum(-1)
    share = entropy / keys.clamp(min=2).float().log()

    def mean(values: Tensor, counted: Tensor) -> Tensor:
        return (values * counted).sum((0, -1)) / counted.sum((0, -1)).clamp(min=1)

    several = keys >= FEWEST
    rows = several.sum(-1).clamp(min=1)  # [B, H]
    by_key = (spread * several.unsqueeze(-1)).sum(-2) / rows.unsqueeze(-1)  # [B, H, Tk]
    favourite = by_key.amax(-1) * (several.sum(-1) > 1)
    return mean(share, keys >= 2), mean(spread.amax(-1), several), favourite.mean(0)


def std(tensor: Tensor) -> Tensor:
    """The standard deviation of all elements."""
    return tensor.float().std(correction=0)


def spread(tensor: Tensor) -> Tensor:
    """The standard deviation along the last axis, as the root of its mean square over all positions."""
    return tensor.float().var(-1, correction=0).mean().sqrt()


def rms(tensor: Tensor) -> Tensor:
    """The root of the mean square of all elements."""
    tensor = tensor.float() if tensor.dtype is torch.float64 else tensor  # it is not narrowed in the norm
    return torch.linalg.vector_norm(tensor, dtype=torch.float32) / max(tensor.numel(), 1) ** 0.5  # pyright: ignore


def _all(calls: list[Callable[[Tensor], None]]) -> Callable[[Tensor], None]:
    if len(calls) == 1:
        return calls[0]

    def call(tensor: Tensor) -> None:
        for each in calls:
            each(tensor)

    return call
