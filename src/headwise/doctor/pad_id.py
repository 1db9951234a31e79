"""The pad id that is given must be a token id of the model: a slip would quietly take checks away."""

from __future__ import annotations

from headwise.doctor.probe import Probe
from headwise.errors import ConfigError


def check_pad_id(probe: Probe) -> None:
    """Refuse a pad id that the model has no row for: no padded batch could be run, and nobody would be told.

    An id outside the table may be right all the same (-1, which the model clamps): where it stands in the
    batch, or the model runs with it in any of its sequences, nothing is refused.
    Errors: ConfigError.
    """
    pad = probe.pad_id
    if pad is None or probe.failure is not None or 0 <= pad < (probe.vocab or 0):
        return
    batch = probe.given.batch
    streams = [stream for stream in probe.adapted.streams if stream.is_ids and batch.read(stream).numel()]
    if not streams or any(bool((batch.read(stream) == pad).any()) for stream in streams):
        return
    if any(batch.read(stream).is_cuda for stream in streams):
        if probe.vocab is None:  # an id out of range would end the process there, so none is tried
            return
        raise _refusal(probe, pad)
    for stream in streams:
        ids = batch.read(stream).clone()
        ids[(-1,) * ids.dim()] = pad
        try:
            probe.run(batch.write(stream, ids), record=False)
        except Exception:
            continue
        return
    raise _refusal(probe, pad)


def _refusal(probe: Probe, pad: int) -> ConfigError:
    known = f", 0 to {probe.vocab - 1}" if probe.vocab else ""
    return ConfigError(
        f"the pad id must be one of the model's token ids{known}: got {pad}; give the id that fills rows up "
        "(--pad-id, pad_id=...), or leave it out where none does"
    )
