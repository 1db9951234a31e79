"""What the masks of a whole batch hide, counted while it runs: of a large one only a part is recorded.

Each softmax over the last axis is looked at where it reads its scores, and nothing of them is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.doctor.sites import SOFTMAXES, Site
from headwise.see.walk.sizes import Call, Sizes, Sizing
from headwise.see.walk.ways import backward

DEEP = -1e3  # scores below were put there by a mask


@dataclass(frozen=True)
class Hides:
    """What one softmax's mask hides: in all matrices of queries and keys, and in each where all are alike.

    kind: as `words.pattern` says it, in every matrix; "" where they differ.
    """

    kind: str
    many: int
    total: int
    each: int | None
    pattern: bytes


class Looking(Sizing):
    """Sizing that also notes what each softmax's mask hides, by the number of its call."""

    def __init__(self) -> None:
        super().__init__()
        self.hides: dict[int, Hides] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        scores = args[0] if args and isinstance(args[0], Tensor) else None
        if scores is not None and scores.dim() >= 2 and scores.is_floating_point() and scores.numel():
            is_softmax = name in SOFTMAXES and len(args) > 1 and args[1] in {-1, scores.dim() - 1}
            if is_softmax or name == "exp":
                self.hides[len(self.calls)] = _hides(_deep(scores))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def by_call(self) -> dict[int, Hides]:
        """What was noted, by the identity of the call."""
        return {
            id(self.calls[place]): found for place, found in self.hides.items() if place < len(self.calls)
        }


def _deep(scores: Tensor) -> Tensor:
    return scores.detach() < DEEP


def _hides(mask: Tensor) -> Hides:
    from headwise.see.walk.words import pattern

    mask = mask.reshape(-1, *mask.shape[-2:])
    first = mask[:1]
    parts = [mask[at : at + 8] for at in range(0, len(mask), 8)]
    is_alike = all(bool((each == first).all()) for each in parts)
    kinds = {pattern([each]) for each in ([first] if is_alike else parts)}
    many = int(first.sum()) * len(mask) if is_alike else int(mask.sum())
    return Hides(
        kinds.pop() if len(kinds) == 1 else "",
        many,
        mask.numel(),
        int(first.sum()) if is_alike else None,
        digest(first if is_alike else mask),
    )


def of_sites(sites: Sequence[Site], sizes: Sizes, known: Mapping[int, Hides]) -> list[Hides] | None:
    """What the masks of these attentions hide in the whole batch; None where it was not seen.

    What the same look says of the part that was recorded must be what the part's masks are.
    """
    found: list[Hides] = []
    for site in sites:
        halts = [site.softmax]
        if site.softmax.name not in SOFTMAXES:
            _, halts = backward([site.weights_value], lambda op: op.name == "exp", {site.scores_value})
        calls = [sizes.of[op] for op in halts if op in sizes.of]
        seen = [known[id(call)] for call in calls if id(call) in known]
        if len(seen) != 1 or not bool((_deep(site.scores) == site.hidden).all()) or not _fits(site, calls[0]):
            return None
        found.append(seen[0])
    return found


def _fits(site: Site, call: Call) -> bool:
    """Has the softmax the queries and keys in its last two axes, in this order?"""
    value = site.softmax.inputs[0]
    rows, columns = value.shape[-2:]
    if not call.inputs or (rows, columns) != site.shape[1:]:
        return False
    flat = site.weights_at.reshape(-1, rows * columns) % (rows * columns)
    return bool((flat == torch.arange(rows * columns, device=flat.device)).all())


def digest(mask: Tensor) -> bytes:
    """A number for a pattern: the same for the same pairs hidden."""
    held = mask.detach().contiguous().view(torch.uint8).cpu().numpy()
    return hashlib.sha1(str(tuple(mask.shape[1:])).encode() + held.tobytes()).digest()
