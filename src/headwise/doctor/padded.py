"""Padded rows to try: the user's own where only they have their masks, else ours, padded on the same side."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.doctor.batch import Batch
from headwise.doctor.check import NotApplicable
from headwise.doctor.padding import Padded
from headwise.doctor.probe import Probe


def padded(probe: Probe) -> Padded:
    """The padded pass that all checks of padding share. Raises NotApplicable where none can be made."""
    found = probe.memo("padded", lambda: _padded(probe))
    if isinstance(found, NotApplicable):
        raise found
    return found


def left_padded(probe: Probe) -> Padded | None:
    """The same with padding first, where the user's own rows are not padded so and one stream is read."""
    usual = padded(probe)
    if usual.left or len(probe.adapted.streams) != 1 or _foreign_masks(probe):
        return None
    return probe.memo("left padded", lambda: _try(probe, True))


def _padded(probe: Probe) -> Padded | NotApplicable:
    whole = Batch.given(probe.adapted)
    own = _pads(whole)
    left = any(
        bool(pad[:, 0].any() & ~pad[:, -1].all()) and not bool(pad[:, -1].any()) for pad in own.values()
    )
    if _foreign_masks(probe):
        if not own:
            return NotApplicable("no row of the batch is padded, and its masks cannot be made for other rows")
        return Padded(probe, probe.given, own, True, left)
    made = _try(probe, left)
    if made is None:
        if own:
            return Padded(probe, probe.given, own, True, left)
        return NotApplicable("no padded batch could be run")
    return made


def _try(probe: Probe, left: bool) -> Padded | None:
    batch = probe.batch
    for place, stream in enumerate(probe.adapted.streams):
        count = batch.length(stream)
        if count < 4 or not ((stream.is_ids and probe.pad_id is not None) or stream.keep_leaf is not None):
            continue
        lengths = [max(2, count - (0, 4, 2, 5, 3, 1, 6)[(row + place) % 7]) for row in range(batch.rows)]
        if batch.rows == 1:
            lengths = [count - 2]
        batch = batch.padded(stream, lengths, left=left)
    pads = _pads(batch)
    if not pads:
        return None
    try:
        run = probe.run(batch)
    except Exception:
        return None
    return Padded(probe, run, pads, bool(_pads(Batch.given(probe.adapted))), left)


def _pads(batch: Batch) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for stream in batch.adapted.streams:
        pad = batch.padding(stream)
        if pad is not None and pad.dim() == 2 and bool(pad.any()):
            found[stream.name] = pad
    return found


def _foreign_masks(probe: Probe) -> bool:
    """Are masks among the inputs that depend on the rows and do not simply mark a stream's padding?"""
    keep = {stream.keep_leaf for stream in probe.adapted.streams}
    batch = Batch.given(probe.adapted)
    for place, leaf in enumerate(probe.adapted.leaves):
        shape = batch.leaves[place].shape
        counts = batch.leaves[place]
        if leaf.role == "other" and counts.dim() == 1 and not counts.is_floating_point():
            for stream in probe.adapted.streams:
                pad = batch.padding(stream)
                if pad is not None and bool(pad.any()) and torch.equal(counts.long(), (~pad).sum(1)):
                    return True
        if leaf.role == "mask" and place not in keep and not (len(shape) == 2 and shape[0] == shape[1]):
            return True
    return False
