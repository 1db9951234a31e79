"""Look at a model on a few rows of a batch, in a pass of its own beside the one that trains."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.trace import plain_kernels, recording
from headwise.see.watch.copied import CannotCopy, copied, same_classes
from headwise.see.watch.measure import Gauge, Seen, rms
from headwise.see.watch.plan import Plan, SiteTap, Tap, learn, with_heads
from headwise.see.watch.quiet import quiet
from headwise.see.watch.smaller import Cut, agrees, cut_along, mapped, tensors
from headwise.see.watch.taps import Taps

MOST_PLANS = 8  # kinds of passes learnt before a model that runs another way each time is given up


@dataclass
class _Known:
    """A plan, and along which axis the batch is cut (None: not at all)."""

    plan: Plan
    axis: int | None
    is_short: bool


class Observer:
    """Looks at one model; layers: paths of the modules whose results are measured.

    notes: what could not be seen, in words.
    """

    def __init__(self, model: nn.Module, layers: Iterable[str]) -> None:
        self.model = model
        self.notes: list[str] = []
        self._layers = tuple(layers)
        self._known: dict[Any, _Known] = {}
        self._learnt = 0
        self._parameters = dict(model.named_parameters())

    def know(self, layers: Iterable[str]) -> None:
        """The layers are now these, and what was learnt is learnt again."""
        self._layers = tuple(layers)
        self._known.clear()
        self._parameters = dict(self.model.named_parameters())

    def look(self, run: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Seen | None:
        """What a call of the model shows, on a few rows of its arguments; None where nothing can be seen.

        The model and every random state are afterwards as they were. Nothing raises but KeyboardInterrupt and
        the like: a look must not end somebody's training.
        """
        if self._learnt > MOST_PLANS or any(nn.parameter.is_lazy(p) for p in self._parameters.values()):
            return None
        try:
            return self._look(run, arguments)
        except Exception as error:
            self._note(f"the model could not be looked at: {type(error).__name__}: {str(error)[:200]}")
            self._learnt += 1
            return None

    def _look(self, run: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Seen:
        kind = _kind(run, arguments)
        for _ in range(2):
            known = self._known.get(kind)
            if known is None:
                self._learnt += 1
                known = self._known[kind] = self._learn(run, arguments)
            cut = cut_along(arguments, known.axis, is_short=known.is_short)
            gauge = Gauge(known.plan)
            if not self._tapped(run, arguments, cut, known.plan, gauge.calls()):
                with torch.no_grad():
                    return gauge.read(self._gain)
            del self._known[kind]
        self._note("the model runs other operations from pass to pass: only some of its passes were seen")
        return Seen()

    @contextmanager
    def _twin(
        self, run: Callable[..., Any], arguments: Any, smaller: Callable[[Any], Any]
    ) -> Generator[tuple[nn.Module, Callable[[], Any], Any]]:
        """A copy of the model, a pass of the copy with smaller arguments, and these.

        What has no copy runs itself, and what it is known to hold is put back.
        """
        small = smaller(arguments)
        try:
            model, ran, given = copied(self.model, run, small)
        except CannotCopy as error:
            if self._has_iterators():
                raise
            self._note(f"the model is looked at itself, not a copy of it ({error})")
            model, ran, given = self.model, run, small
        with same_classes(model), quiet(model):
            yield model, lambda: ran(*given[0], **given[1]), given

    def _has_iterators(self) -> bool:
        """Does the model hold what can be neither copied nor put back?"""
        return any(
            isinstance(value, Iterator) for module in self.model.modules() for value in vars(module).values()
        )

    def _tapped(
        self,
        run: Callable[..., Any],
        arguments: Any,
        smaller: Callable[[Any], Any],
        plan: Plan,
        see: dict[Tap, Callable[[Tensor], None]],
    ) -> bool:
        """One pass in which taps are looked at; was it another pass than the plan's?"""
        with self._twin(run, arguments, smaller) as (_, once, _), plain_kernels(), Taps(plan, see) as taps:
            once()
        return taps.is_lost

    def _learn(self, run: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> _Known:
        axis = self._axis(run, arguments)
        for is_short in (True, False):
            cut = cut_along(arguments, axis, is_short=is_short)
            if is_short and not cut.length:
                continue
            try:
                with (
                    self._twin(run, arguments, cut) as (model, once, given),
                    recording(model, tensors(given)) as record,
                ):
                    once()
            except Exception:
                if is_short:
                    continue
                raise
            plan = learn(record, model, self._layers)
            del record, model, once, given
            known = _Known(plan, axis, is_short)
            if is_short:
                self._note(f"only the first {cut.length} positions of each row are looked at")
            if axis is not None:
                self._find_heads(run, arguments, known, cut)
            else:
                self._note("rows of the batch could not be told apart: heads are not shown one by one")
            return known
        raise AssertionError("the whole batch is always tried")

    def _axis(self, run: Callable[..., Any], arguments: Any) -> int | None:
        """Along which axis the rows of the batch lie."""
        whole = self._plain(run, arguments, Cut(None))
        ran: list[int] = []
        for axis in (0, 1):
            cut = cut_along(arguments, axis, is_short=False)
            if cut.axis is None:
                continue
            try:
                part = self._plain(run, arguments, cut)
            except Exception:
                continue
            ran.append(axis)
            if agrees(cut, whole, part):
                return axis
        return ran[0] if ran else None  # a loss alone, or noise: the first axis that can be cut

    def _plain(self, run: Callable[..., Any], arguments: Any, smaller: Callable[[Any], Any]) -> Any:
        with self._twin(run, arguments, smaller) as (_, once, _):
            return mapped_results(once())

    def _find_heads(self, run: Callable[..., Any], arguments: Any, known: _Known, cut: Cut) -> None:
        passes: list[dict[Tap, Tensor]] = []
        for is_again in (False, True):
            held: dict[Tap, Tensor] = {}
            calls = {site.weights: _held_by(held, site.weights) for site in known.plan.sites}
            try:
                lost = self._tapped(run, arguments, partial(cut, is_again=is_again), known.plan, calls)
            except Exception:
                return
            if lost:
                return
            passes.append(held)
        rows = len(cut.rows())

        def told(site: SiteTap) -> SiteTap:
            one, other = passes[0][site.weights], passes[1][site.weights]
            return replace(site, axes=with_heads(site.axes, one, other, rows))

        known.plan.sites = tuple(told(site) for site in known.plan.sites)

    def _gain(self, names: tuple[str, ...]) -> Tensor:
        """The product of the rms of these parameters, 1 without any."""
        total = torch.ones(())
        for name in names:
            parameter = self._parameters.get(name)
            if parameter is not None:
                total = total.to(parameter.device) * rms(parameter.detach())
        return total

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def mapped_results(made: Any) -> Any:
    """The tensors of a result, copied: what made them is about to be put back."""
    found = tensors(made) or tensors(getattr(made, "__dict__", {}))
    return mapped(list(found), lambda tensor: tensor.detach().clone())


def _held_by(held: dict[Tap, Tensor], tap: Tap) -> Callable[[Tensor], None]:
    def call(tensor: Tensor) -> None:
        held[tap] = tensor.clone()

    return call


def _kind(run: Callable[..., Any], arguments: Any) -> Any:
    """What tells kinds of calls apart: what is called, and with tensors of which kinds under which names."""
    place = id(getattr(run, "__self__", run)), getattr(run, "__name__", "")
    return place, tuple(arguments[1]), tuple((t.dim(), t.dtype) for t in tensors(arguments))
