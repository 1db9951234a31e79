"""One pass of a stranger's model over one row of its batch: every attention in it, head by head.

The model itself runs, in its own precision and in eval mode, and comes back as it was. The batch is cut to
the row, so that what is left over of an attention beside queries and keys is its heads, in the order of the
code; where a model does not run on one row, the slices that move with it and with no other row are taken.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.doctor.adapt import Adapted, twin
from headwise.doctor.available import check_device
from headwise.doctor.batch import Batch
from headwise.doctor.check import Place
from headwise.doctor.heads import projections
from headwise.doctor.places import place
from headwise.doctor.runner import differs
from headwise.doctor.sites import Site, attention_sites, is_product, softmaxes, unread
from headwise.doctor.state import State
from headwise.doctor.subject import Layout
from headwise.doctor.trace import Op, Recording, Value, recording
from headwise.doctor.untouched import seed_everything, untouched
from headwise.errors import ConfigError, HeadwiseError
from headwise.see.mixed import mixed
from headwise.see.windows import Gathered, gathered

REMEDY = "give `call`, a function (model, *inputs) that calls it as your training does"
NONE_FOUND = (
    "no attention found: no softmax of a product of queries and keys, multiplied with values, ran in this "
    "pass; linear attention, state-space layers, heads that are mixed before the softmax and kernels that "
    "are not PyTorch's have no weights to show"
)
UNREAD = (
    "heads that are mixed before the softmax, or keys laid out in diagonals, have no map of queries by keys"
)
FIXED = "queries that are learnt look at one another there before they read any input: always the same"


@dataclass(frozen=True, eq=False)
class Map:
    """What one attention gave for the row, in float32 on the CPU; the rest as in `Gathered` and `Mixed`."""

    site: Site
    weights: Float[Tensor, "H Tq Tk"]
    keep: Bool[Tensor, "H Tq Tk"]
    is_in_order: bool = True
    is_whole: bool = True
    changed: Place | None = None


@dataclass(frozen=True, eq=False)
class RowPass:
    """The recorded pass. batch: the row's own inputs; notes: what had to be taken for granted."""

    adapted: Adapted
    batch: Batch
    record: Recording
    maps: tuple[Map, ...]
    notes: tuple[str, ...]


def pass_over(adapted: Adapted, row: int, device: str | None = None) -> RowPass:
    """Run the model on the row `row` of its batch and collect its attentions, in the order in which they ran.

    Errors: ConfigError for a row or a device that is not there, a model that cannot be called, or one without
    attention.
    """
    if device is not None:
        check_device(device)
    with untouched(adapted.model), warnings.catch_warnings(), _uncompiled():
        warnings.simplefilter("ignore")
        if device is not None:
            model, _ = twin(adapted.model, None)
            adapted = replace(adapted, model=model.to(device))
        adapted.model.eval()
        found = _chosen(_Rows(adapted, row, device))
        other = unread(found.record, [each.site for each in found.maps])
        if other:
            found = replace(found, notes=(*found.notes, f"left out: {_told(other)}; {UNREAD}"))
        fixed = _fixed(found.record)
        if fixed:
            found = replace(found, notes=(*found.notes, f"left out: {_told(fixed)}; {FIXED}"))
        return found


def check_row(row: Any) -> None:
    """Errors: ConfigError for what counts no rows."""
    if isinstance(row, bool) or not isinstance(row, int):
        raise ConfigError(f"row must be a whole number, 0 the first: got {row!r}")


@contextmanager
def _uncompiled() -> Generator[None]:
    """What torch.compile has made runs as it was written; the compiler is not imported to be told so."""
    flex = "torch.nn.attention.flex_attention"  # called without the compiler it calls the compiler
    if flex not in sys.modules and "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@dataclass(frozen=True)
class _Rows:
    adapted: Adapted
    row: int
    device: str | None

    @property
    def whole(self) -> Batch:
        return Batch.given(self.adapted)

    @property
    def has_rows(self) -> bool:
        whole = self.whole
        return all(whole.leaves[stream.leaf].dim() > 1 for stream in self.adapted.streams)

    @property
    def own(self) -> Batch | None:
        """The batch of the row alone; None where the inputs have no such row."""
        if not self.has_rows or self.row >= self.whole.rows:
            return None
        return self.whole if self.whole.rows == 1 else self.whole.take_rows([self.row])

    @property
    def is_even(self) -> bool:
        """Have all sequences as many rows?"""
        whole = self.whole
        return len({whole.read(stream).shape[0] for stream in self.adapted.streams}) == 1

    def check_runs(self) -> None:
        """Errors: ConfigError, with what the model raised, where it does not run on its batch as given."""
        try:
            with torch.no_grad(), State(self.adapted.model).kept():
                seed_everything()
                _call(self.adapted, _leaves(self.whole, self.device))
        except HeadwiseError:
            raise
        except Exception as failure:
            raise _not_called(failure) from failure

    def turned(self) -> _Rows:
        """The same inputs, read with the other axis as the batch."""
        other: Layout = "time-major" if self.adapted.batch_axis == 0 else "batch-first"
        return replace(self, adapted=replace(self.adapted, layout=other))

    def record(self, batch: Batch) -> Recording:
        return _record(batch, self.device)


def _chosen(rows: _Rows) -> RowPass:
    """The first way of running one row that gives maps of more than one token.

    The inputs are read with their other axis as the rows only where they can be: all of them have it, and the
    model runs on its batch as it was given.
    """
    if rows.row < 0:
        raise _no_such_row(rows)
    batch = rows.own
    if batch is None:
        found, failure = None, None
    else:
        found, failure = _tried(rows, batch)
        if found is not None and rows.is_even and (not _is_point(found.maps) or _length(batch) == 1):
            return found
    turned = _turned_pass(rows)
    if turned is not None:
        return turned
    if found is not None and not _is_point(found.maps):  # an input that has no such rows ran whole
        return found
    if found is not None and rows.whole.rows == 1:  # nothing is told by reading it otherwise
        return replace(found, notes=(*found.notes, _point(rows)))
    return _of_whole(rows, failure)


def _tried(rows: _Rows, batch: Batch) -> tuple[RowPass | None, Exception | None]:
    """The pass over this part of the batch, None without maps or where the model does not run on it."""
    try:
        record = rows.record(batch)
    except HeadwiseError:
        raise
    except Exception as error:
        return None, error
    maps = _maps(record, None)
    return (RowPass(rows.adapted, batch, record, maps, ()) if maps else None), None


def _turned_pass(rows: _Rows) -> RowPass | None:
    way = rows.turned()
    if rows.adapted.subject.layout is not None or not way.is_even:
        return None
    batch = way.own
    if batch is None or _length(batch) == 1:
        return None
    rows.check_runs()
    found, _ = _tried(way, batch)
    if found is None or _is_point(found.maps):
        return None
    return replace(found, notes=(_turned(way),))


def _no_such_row(rows: _Rows) -> ConfigError:
    count = rows.whole.rows
    return ConfigError(
        f"row must be from 0 to {count - 1}: the batch has {count} row{'s' * (count != 1)}, got {rows.row}"
    )


def _not_called(failure: Exception) -> ConfigError:
    told = (str(failure).strip().splitlines() or [""])[0][:300]
    return ConfigError(
        f"the model could not be called on its batch: {type(failure).__name__}: {told}; {REMEDY}"
    )


def _point(rows: _Rows) -> str:
    axis = rows.adapted.batch_axis
    return (
        f"it looks along axis {axis} of its inputs, which has one position: for a batch of one row give it "
        "[T, 1], or build its attention with batch_first=True"
    )


def _turned(way: _Rows) -> str:
    axis = way.adapted.batch_axis
    return (
        f"it looks along axis {1 - axis} of its inputs, so axis {axis} was taken for the rows; where that is "
        "not meant, headwise doctor says why"
    )


def _is_point(maps: Sequence[Map]) -> bool:
    return all(each.site.shape[1:] == (1, 1) for each in maps)


def _length(batch: Batch) -> int:
    return max((batch.length(stream) for stream in batch.adapted.streams), default=1)


def _of_whole(rows: _Rows, error: Exception | None) -> RowPass:
    """The whole batch, where there is one row, none at all, or the model takes no other number of them."""
    batch = rows.whole
    if rows.row >= batch.rows:
        raise _no_such_row(rows)
    try:
        record = rows.record(batch)
    except HeadwiseError:
        raise
    except Exception as failure:
        raise _not_called(failure) from failure
    sites = attention_sites(record, with_learned=True)
    if not sites:
        raise ConfigError(_none_found(record))
    if batch.rows == 1 or not rows.has_rows or all(_is_alone(site) for site in sites):
        if rows.row > 0:
            raise ConfigError(f"row must be 0: the inputs hold one row and no others, got {rows.row}")
        return RowPass(rows.adapted, batch, record, _maps(record, None), ())
    note = "the model does not run on one row alone, so the whole batch ran" if error else ""
    own = _slices_of_row(rows, batch, record, sites)
    one = batch.take_rows([rows.row])
    return RowPass(rows.adapted, one, record, _maps(record, own), (note,) if note else ())


def _is_alone(site: Site) -> bool:
    """Did the projection make one vector for each query, so that the inputs hold one row without an axis?"""
    return any(made.count == site.shape[1] for made in projections(site.q_value))


def _none_found(record: Recording) -> str:
    other = unread(record, [])
    if not other:
        return NONE_FOUND
    return f"no attention found that can be shown: {_told(other)} ran, but {UNREAD}"


def _told(softmaxes: Sequence[Op]) -> str:
    found = next((op.place for op in softmaxes if op.place is not None), None)
    where = f" ({place(found.file, found.line)})" if found else ""
    return f"{len(softmaxes)} softmax{'es' * (len(softmaxes) != 1)}{where}"


def _slices_of_row(rows: _Rows, batch: Batch, record: Recording, sites: Sequence[Site]) -> list[Tensor]:
    """[N] for each site: True for the slices that move with the row, and with no other row.

    Errors: ConfigError where no slice does.
    """
    moved: list[list[Tensor]] = []
    for is_own in (True, False):
        changed = batch
        for stream in rows.adapted.streams:
            held = batch.read(stream)
            where = torch.zeros(
                held.shape[: 2 if held.dim() > 1 else 1], dtype=torch.bool, device=held.device
            )
            where[:] = not is_own
            where[rows.row] = is_own
            changed = changed.change(stream, where if held.dim() < 4 else where[:, 0], None)
        moved.append(_moved(record, rows.record(changed), sites))
    own = [mine & ~others for mine, others in zip(*moved, strict=True)]
    if not all(bool(each.any()) for each in own):
        raise ConfigError(
            f"row {rows.row} has no attention of its own: the model mixes the rows of a batch, or its layout "
            "is another; give layout='time-major', or the batch of that row alone"
        )
    return own


def _moved(before: Recording, after: Recording, sites: Sequence[Site]) -> list[Tensor]:
    found: list[Tensor] = []
    for site in sites:
        seen = torch.zeros(site.shape[0], dtype=torch.bool, device=site.q_at.device)
        for value, at in ((site.q_value, site.q_at), (site.k_value, site.k_at)):
            if value.index < len(after.values) and value.sources:
                other = after.values[value.index].tensor
                eps = torch.finfo(value.tensor.dtype).eps
                seen |= Site.take(differs(value.tensor, other, eps), at).flatten(1).any(1)
        found.append(seen)
    return found


def _fixed(record: Recording) -> list[Op]:
    """The softmaxes of products of parameters, which no input reaches, that weigh something in a product."""
    return [
        op
        for op, score, weight in softmaxes(record)
        if not score.sources and score.trained and weight.tensor.dim() >= 2 and _is_mixed(weight)
    ]


def _is_mixed(weight: Value) -> bool:
    """Does a product read it, behind moves and element-wise steps?"""
    todo, seen = [weight], {weight}
    while todo:
        value = todo.pop()
        for op in value.users:
            if is_product(op):
                return True
            if op.moves or op.pointwise:
                todo += [out for out in op.outputs if out not in seen]
                seen.update(op.outputs)
    return False


def _maps(record: Recording, own: Sequence[Tensor] | None) -> tuple[Map, ...]:
    """The maps of a recording; own: which slices of each attention are the row's (None: all)."""
    maps: list[Map] = []
    for number, site in enumerate(attention_sites(record, with_learned=True)):
        held = mixed(record, site)
        if own is None:
            found = gathered(record, site, held)
        else:
            found = Gathered(held.weights[own[number]], held.keep[own[number]])
        weights, keep = found.weights.detach().to("cpu", torch.float32), found.keep.cpu()
        # a query that may look nowhere has no weights, whatever the softmax of nothing gave
        weights = weights.masked_fill(~keep.any(-1, keepdim=True), 0.0)
        maps.append(Map(site, weights, keep, found.is_in_order, found.is_whole, held.changed))
    return tuple(maps)


def _record(batch: Batch, device: str | None) -> Recording:
    """One pass without gradients, in eval mode, from fixed random numbers; the inputs are copies.

    Errors: ConfigError where the model calls sys.exit.
    """
    adapted = batch.adapted
    leaves = _leaves(batch, device)
    seed_everything()
    with torch.no_grad(), State(adapted.model).kept(), recording(adapted.model, leaves) as record:
        _call(adapted, leaves)
    return record


def _leaves(batch: Batch, device: str | None) -> tuple[Tensor, ...]:
    return tuple((leaf.to(device) if device else leaf).clone() for leaf in batch.leaves)


def _call(adapted: Adapted, leaves: tuple[Tensor, ...]) -> None:
    try:
        adapted.call(adapted.model, leaves)
    except SystemExit as error:
        raise ConfigError(
            f"the model could not be called on its batch: it calls sys.exit({error.code!r}); {REMEDY}"
        ) from error
