"""Masks that were made or given and that no output depends on, and the function that let them fall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.batch import Batch
from headwise.doctor.blame import callers, line_in, made_places
from headwise.doctor.calls import Call, calls
from headwise.doctor.check import Place
from headwise.doctor.mask_lines import two_valued
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, attention_sites
from headwise.doctor.trace import Recording, Value, recording
from headwise.doctor.untouched import default_dtype, seed_everything


@dataclass(eq=False)
class Watched:
    """One pass in which every input is known to the recording, touched or not, and every call was watched."""

    record: Recording
    calls: list[Call]
    sites: list[Site]
    alive: set[Value]

    def unused(self, test: Callable[[Tensor], bool]) -> list[Value]:
        """Tensors that pass the test and on which the logits do not depend, the first made first."""
        values = self.record.values
        return [v for v in values if v not in self.alive and not v.trained and test(v.tensor)]

    def dropped_at(
        self, probe: Probe, masks: Sequence[Value], site: Site
    ) -> tuple[Place | None, list[Place]]:
        """The line that calls an attention without a mask, in the innermost function that was given it.

        Also the lines that made the mask. Where no function was given it, the one that made it is looked at.
        """
        first = masks[0]
        own = first.op.place if first.op is not None else None
        made = [own] if own is not None else made_places(probe, first)
        here = self.sites[site.index] if site.index < len(self.sites) else site
        start, held = here.product.index, set(masks)
        given = [
            call
            for call in self.calls
            if call.first <= start < call.last and any(value in held for value in call.given.values())
        ]
        given.sort(key=lambda call: -call.depth)
        for function in [*(call.place for call in given), *made]:
            line = line_in(here.softmax, function)
            if line is not None:
                return line, made
        lines = callers(here.softmax)
        return (lines[0] if lines else None), made


def watch(probe: Probe, batch: Batch) -> Watched:
    """Run a batch with eyes on every call of the user's functions."""
    model = probe.model.eval()
    leaves = probe._leaves(batch)  # pyright: ignore[reportPrivateUsage]
    seed_everything()
    with torch.no_grad(), default_dtype(probe.dtype), recording(model, leaves) as record:
        for leaf in leaves:
            torch.ops.aten.alias(leaf)  # from now on the recording knows it, read or not
        with calls(record) as found:
            output = probe.adapted.call(model, leaves)
    logits = record.value_of(probe._logits(output))  # pyright: ignore[reportPrivateUsage]
    alive = record.ancestors([logits]) if logits is not None else set(record.values)
    return Watched(record, found, attention_sites(record), alive)


def marks(pad: Tensor) -> Callable[[Tensor], bool]:
    """A test for masks of just this padding [B, T], in either layout and polarity, with any axes of one."""

    def test(tensor: Tensor) -> bool:
        small = tensor.squeeze()
        if tuple(small.shape) not in {tuple(pad.shape), tuple(pad.T.shape)} or not two_valued(tensor):
            return False
        low = small == small.min()
        return any(torch.equal(low, each) for way in (pad, pad.T) for each in (way, ~way))

    return test
