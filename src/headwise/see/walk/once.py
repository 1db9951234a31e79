"""The one pass that is walked through: the user's own batch, in the model's own precision, in eval mode.

A pass whose tensors fit is recorded as it is. Of a large one, and of one with a single row, a pass over
another cut of the batch is recorded and the sizes of the whole are noted beside it: both run the same
operations, or the whole is recorded after all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from headwise.doctor.adapt import Adapted, Stream
from headwise.doctor.batch import Batch
from headwise.doctor.check import NotApplicable
from headwise.doctor.probe import Probe
from headwise.doctor.runner import Run
from headwise.doctor.sites import Site, attention_sites
from headwise.doctor.trace import Recording, plain_kernels
from headwise.doctor.untouched import default_dtype, seed_everything
from headwise.see.walk.sizes import Call, Sizes, aligned
from headwise.see.walk.whole_masks import Hides, Looking, of_sites

LARGE_BYTES = 96 * 2**20  # of all results together; recording more would hold it all, and indices beside it
MOST_BYTES = 4 * 2**30  # of a pass that is recorded as it is where no part of it will do
CUT_LENGTHS = (48, 33, 17)
CUT_ROWS = 2

_NOTHING = torch.zeros(())  # made here, so that it is no operation of any pass


class Once(Probe):
    """A probe that has run the user's batch once and asks for nothing else.

    is_part: what is recorded is a part of the batch (or its one row twice); `sizes` are the whole batch's.
    gave: what the model returned where that holds no scores. has_threads: did modules run in other threads?
    is_other: the whole runs other operations than a part and is too large to record: `sizes` are the part's.
    """

    gave = ""
    has_threads = False
    is_part = False
    _hides: Mapping[int, Hides] = MappingProxyType[int, Hides]({})
    is_other = False

    def _logits(self, output: Any) -> Tensor:
        """The scores of an output; where it holds none a zero, so that the walk is told all the same."""
        try:
            return super()._logits(output)
        except NotApplicable as error:
            self.gave = str(error).partition(", ")[2]
            return _NOTHING

    def _start(self) -> None:
        mine, seen = threading.get_ident(), set[int]()

        def enter(_module: nn.Module, _args: Any) -> None:
            seen.add(threading.get_ident())

        handle = register_module_forward_pre_hook(enter)
        try:
            self._begin()
        finally:
            handle.remove()
        self.has_threads = bool(seen - {mine})

    def _begin(self) -> None:
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
                with plain_kernels(), Looking() as sizing:
                    self.adapted.call(model, leaves)
        except Exception:
            return None
        self._hides = sizing.by_call()
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

    def whole_masks(self, sites: Sequence[Site]) -> list[Hides] | None:
        """What the masks of these attentions hide in the batch as given, where only a part is recorded."""
        return of_sites(sites, self.sizes, self._hides) if self.is_part and not self.is_other else None

    @cached_property
    def is_dual(self) -> bool:
        """Are there two inputs of which neither is looked at from the other: two towers, no decoder?"""
        streams = self.adapted.streams
        if len(streams) != 2 or self.failure is not None or self.adapted.subject.kind == "encoder-decoder":
            return False
        source, target = (1 << stream.leaf for stream in streams)
        return not any(
            site.q_value.sources & target and site.k_value.sources & source
            and not site.k_value.sources & target
            for site in self.sites
        )  # fmt: skip

    @property
    def source(self) -> Stream | None:
        """The encoder's stream, where a decoder looks at it."""
        is_run = "base" in self.__dict__  # before that nothing is known of what looks at what
        return None if is_run and self.is_dual else self.adapted.source

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
