"""The one pass that is walked through: the user's own batch, in the model's own precision, in eval mode.

A pass whose tensors fit is recorded as it is. Of a large one, and of one with a single row, a pass over
another cut of the batch is recorded and the sizes of the whole are noted beside it: both run the same
operations, or the whole is recorded after all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch

from headwise.doctor.adapt import Adapted
from headwise.doctor.batch import Batch
from headwise.doctor.probe import Probe
from headwise.doctor.runner import Run
from headwise.doctor.sites import Site, attention_sites
from headwise.doctor.trace import Recording, plain_kernels
from headwise.doctor.untouched import default_dtype, seed_everything
from headwise.see.walk.sizes import Call, Sizes, Sizing, aligned

LARGE_BYTES = 96 * 2**20  # of all results together; recording more would hold it all, and indices beside it
MOST_BYTES = 4 * 2**30  # of a pass that is recorded as it is where no part of it will do
CUT_LENGTHS = (48, 33, 17)
CUT_ROWS = 2


class Once(Probe):
    """A probe that has run the user's batch once and asks for nothing else.

    is_part: what is recorded is a part of the batch (or its one row twice); `sizes` are the whole batch's.
    is_other: the whole runs other operations than a part and is too large to record: `sizes` are the part's.
    """

    is_part = False
    is_other = False

    def _start(self) -> None:
        self.dtype = self.own_dtype
        whole = Batch.given(self.adapted)
        self.order = None
        self.batch = whole
        calls = self._calls(whole)
        bytes = sum(call.allocated for call in calls or ())
        if calls and (bytes > LARGE_BYTES or whole.rows == 1):
            for part in _parts(whole, bytes > LARGE_BYTES):
                if self._recorded(part, calls):
                    return
        try:
            self.given = self.base = self.run(whole)
        except Exception as error:
            self.failure = error
            if self.failed_record is None:
                raise
            self.base = self.given = Run(whole, self.failed_record, None, torch.zeros(()))
        self.sizes = Sizes(self.base.record)

    def _calls(self, batch: Batch) -> list[Call] | None:
        """The sizes of a pass that nothing is kept of; None where it fails."""
        model = self.model
        model.train(False)
        seed_everything(0)
        dtype = self.dtype if self.dtype.is_floating_point else torch.float32
        try:
            with torch.no_grad(), default_dtype(dtype), self.state.kept():
                leaves = self._leaves(batch)
                with plain_kernels(), Sizing() as sizing:
                    self.adapted.call(model, leaves)
        except Exception:
            return None
        return sizing.calls

    def _recorded(self, part: Batch, calls: list[Call]) -> bool:
        """Record a part of the batch; False where it fails, or runs other operations than the whole."""
        try:
            run = self.run(part)
        except Exception:
            return False
        pairs = aligned(run.record, calls)
        if pairs is None and sum(call.allocated for call in calls) < MOST_BYTES:
            return False
        self.given = self.base = run
        self.sizes = Sizes(run.record, pairs)
        self.is_other = pairs is None
        self.is_part = True
        return True

    @property
    def record(self) -> Recording:
        return self.base.record

    @cached_property
    def sites(self) -> list[Site]:
        """Every attention of the recording, also of one that ends in a failure."""
        return attention_sites(self.record)


def _parts(whole: Batch, is_large: bool) -> Iterator[Batch]:
    """Other cuts of a batch to try: two rows, and of a large one fewer positions."""
    rows = [0, 0] if whole.rows == 1 else list(range(min(CUT_ROWS, whole.rows)))
    some = whole.take_rows(rows)
    streams = whole.adapted.streams
    if is_large and streams and all(whole.read(s).dim() in {2, 3} for s in streams):
        for length in CUT_LENGTHS:
            lengths = {s.name: min(whole.length(s), length - 7 * place) for place, s in enumerate(streams)}
            yield some.cut(lengths)
    yield some


def once(adapted: Adapted, device: str | None) -> Once:
    """Run the batch once. The model comes back as it was where this happens within `untouched`."""
    return Once(adapted, None, device)
