"""Padded rows to try: the user's own where only they have their masks, else ours, padded on the same side."""

from __future__ import annotations

from torch import Tensor

from headwise.doctor.batch import Batch, is_left
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
    streams = probe.adapted.streams
    if usual.left or len(streams) != 1 or _foreign_masks(probe):
        return None
    if streams[0].count_leaf is not None:  # counts say how many, not where: they are read from the left
        return None
    return probe.memo("left padded", lambda: _try(probe, frozenset({streams[0].name})))


def _padded(probe: Probe) -> Padded | NotApplicable:
    whole = Batch.given(probe.adapted)
    own = _pads(whole)
    left = frozenset(name for name, pad in own.items() if is_left(pad))
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


def _try(probe: Probe, left: frozenset[str]) -> Padded | None:
    """Each stream padded on its own side: a translator may read its source to the right and write to it."""
    batch = probe.batch
    for place, stream in enumerate(probe.adapted.streams):
        count = batch.length(stream)
        if count < 4 or not probe.can_pad(stream):
            continue
        lengths = [max(2, count - (0, 4, 2, 5, 3, 1, 6)[(row + place) % 7]) for row in range(batch.rows)]
        if batch.rows == 1:
            lengths = [count - 2]
        batch = batch.padded(stream, lengths, left=stream.name in left)
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
        if leaf.role == "mask" and place not in keep and not (len(shape) == 2 and shape[0] == shape[1]):
            return True
    return False
