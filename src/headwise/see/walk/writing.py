"""From one recorded pass to the walk: every draft written as a step, inputs first, costs beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from headwise.doctor.adapt import Adapted, flatten
from headwise.doctor.graph import Op, Value
from headwise.doctor.places import place, source, visible
from headwise.doctor.shapes_told import Operand, failure_of, frames_of, own_of
from headwise.doctor.sub_layers import SubLayer
from headwise.errors import ConfigError, HeadwiseError
from headwise.see.walk.axes import LEGEND, ORDER, Axes
from headwise.see.walk.costs import Parameters, flops_of, is_uncounted
from headwise.see.walk.fold import grouped, with_shares
from headwise.see.walk.labels import Axis
from headwise.see.walk.layers import Layers, layers_of
from headwise.see.walk.once import Once, once
from headwise.see.walk.steps import Claims, Draft, Part, Row, Step
from headwise.see.walk.telling import tell
from headwise.see.walk.walk import VERSION, Failed, Walk
from headwise.see.walk.whole_masks import digest


def written(adapted: Adapted, device: str | None, target: str, notes: Sequence[str]) -> Walk:
    """Run the batch once and tell it."""
    try:
        probe = once(adapted, device)
    except (HeadwiseError, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # forward may raise GeneratorExit, or what it likes
        raise _not_called(error) from error
    if probe.failure is None and not any(op.outputs for op in probe.record.ops):
        raise ConfigError(
            "the model must compute something on its batch: no operation ran"
            + (f", and no tensor of scores is in the output, {probe.gave}" if probe.gave else "")
            + "; give `call`, a function (model, *inputs) that calls it as your training does"
        )
    if probe.failure is not None and not any(op.outputs for op in probe.record.ops):
        raise _not_called(probe.failure) from probe.failure
    layers = layers_of(probe)
    axes = Axes(probe, layers)
    claims = tell(probe, layers, axes)
    writer = _Writer(probe, layers, axes, claims)
    rows = (*writer.inputs(), *with_shares(grouped(probe, layers, claims.drafts, writer.step)))
    most, where = probe.sizes.peak()
    peak = claims.of.get(where) if where is not None else None
    return Walk(
        version=VERSION,
        target=target,
        sizes={name: axes.sizes[name] for name in ORDER if name in axes.sizes},
        rows=tuple(rows),
        parameters=sum(p.numel() for p in adapted.model.parameters()),
        flops=sum(flops_of(op, call) for op, call in probe.sizes.of.items()),
        bytes=probe.sizes.allocated(probe.sizes.of),
        peak=most,
        peak_at=""
        if peak is None
        else f"{peak.name}" + (f" in {peak.main.module}" if peak.main and peak.main.module else ""),
        failed=_failed(probe, axes),
        notes=(*notes, *_notes(probe)),
    )


class _Writer:
    """Writes drafts as steps."""

    def __init__(self, probe: Once, layers: Layers, axes: Axes, claims: Claims) -> None:
        self.probe, self.layers, self.axes = probe, layers, axes
        self._parameters = Parameters(probe.record, claims.of)
        self._closed: dict[str, bool] = {}
        self._frozen = _frozen(probe)
        self._patterns: dict[SubLayer, bytes] = {}
        self._earlier = _earlier(claims.drafts, self._parameters)

    def inputs(self) -> list[Row]:
        """A row for each tensor that the model is given."""
        rows: list[Row] = []
        leaves = {v.name: v for v in self.probe.record.values if v.op is None and v.name.startswith("input ")}
        for place_, (leaf, tensor) in enumerate(
            zip(self.probe.adapted.leaves, flatten(self.probe.adapted.subject.inputs), strict=True)
        ):
            value, shape = leaves.get(f"input {place_}"), tuple(tensor.shape)
            names = self.axes.names(value, shape) if value is not None else tuple(map(str, shape))
            dtype = str(tensor.dtype).removeprefix("torch.")
            told = {"ids": "token ids", "floats": "numbers", "counts": "lengths"}.get(leaf.role, leaf.role)
            told = "" if told == "other" else told
            name, told = f"input {visible(leaf.name)}", f"{told}, {dtype}".removeprefix(", ")
            rows.append(Step(name, "input", told, shape, names, 1, dtype, (), 0, 0, 0, "", 0, "", "", ()))
        return rows

    def step(self, draft: Draft) -> Step:
        sizes = self.probe.sizes
        ops = sorted(draft.ops, key=lambda op: op.index)
        value = draft.results[0] if draft.results else None
        shape, axes, held = self._shown(value, draft.layer) if value is not None else ((), (), ())
        line = self._place(draft, ops)
        weights = frozenset(leaf.name.removeprefix("parameter ") for leaf in self._parameters.read_by(draft))
        return Step(
            name=visible(draft.name),
            kind=draft.kind,
            operation=visible(draft.operation) + self._trained(weights),
            shape=shape,
            axes=axes,
            count=max(1, len(draft.results)),
            dtype=str(value.tensor.dtype).removeprefix("torch.") if value is not None else "",
            held=held,
            params=self._parameters.of(draft),
            flops=sum(flops_of(op, sizes.of[op]) for op in ops if op in sizes.of),
            bytes=sizes.allocated(ops),
            file=line[0],
            line=line[1],
            code=source(*line) if line[0] else "",
            module=draft.main.module if draft.main is not None else "",
            parts=tuple(self._part(op) for op in ops if op in sizes.of or not self.probe.is_part),
            weights=weights,
            earlier=visible(self._earlier.get(draft, "")),
            pattern=self._pattern(draft),
        )

    def _trained(self, weights: frozenset[str]) -> str:
        """Of a model that trains a part of its parameters: whether a step's own are frozen."""
        frozen = weights & self._frozen
        if not frozen:
            return ""
        return ", frozen" if frozen == weights else ", frozen in part"

    def _pattern(self, draft: Draft) -> bytes:
        """Which pairs the masks of an attention hide: layers that hide as many need not hide the same."""
        layer = draft.layer
        if draft.kind != "softmax" or layer is None or not layer.sites:
            return b""
        if layer not in self._patterns:
            whole = self.probe.whole_masks(layer.sites)
            found = [digest(site.hidden) for site in layer.sites]
            self._patterns[layer] = b"".join([*found, *(each.pattern for each in whole or ())])
        return self._patterns[layer]

    def _part(self, op: Op) -> Part:
        call = self.probe.sizes.of.get(op)
        shape = self._full(op.out) if op.outputs else ()
        return Part(
            op.name,
            shape,
            self.axes.names(op.out, shape) if op.outputs else (),
            flops_of(op, call) if call is not None else 0,
            call.allocated if call is not None else 0,
            op.place.file if op.place else "",
            op.place.line if op.place else 0,
        )

    def _place(self, draft: Draft, ops: Sequence[Op]) -> tuple[str, int]:
        main = draft.main
        chosen = main.place if main is not None else None
        if chosen is None:
            chosen = next((op.place for op in ops if op.place is not None), None)
        return (chosen.file, chosen.line) if chosen is not None else ("", 0)

    def _full(self, value: Value) -> tuple[int, ...]:
        """A value's shape in the batch as given."""
        call = self.probe.sizes.of.get(value.op) if value.op is not None else None
        if call is not None:
            return call.outputs[value.output].shape
        return self.axes.whole(value)

    def _shown(
        self, value: Value, layer: SubLayer | None
    ) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
        """Shape and axes of a result, and the shape in memory where that is another order.

        In a module of torch's own, where no line of the user's can look, axes are told in the order that
        the user's tensors have about it.
        """
        shape = self._full(value)
        names = self.axes.names(value, shape)
        if layer is not None and 1 in shape and (len(shape) > 4 or self._is_flat(value)):
            return self._apart(value, shape)
        outer = layer.sum.out if layer is not None and layer.sum is not None else None
        if outer is None or value.op is None or not self._is_closed(value.op.module):
            return shape, names, ()
        label, order = self.axes.label(value), self.axes.label(outer)
        tokens = [axis for axis in order if self.axes.called(axis) in (["B"], ["T"], ["S"])]
        ranks = {axis[0] for axis in tokens}
        parts = [(atom,) for axis in label[:-1] for atom in axis]
        if len(tokens) != 2 or len(parts) != 2 or len(order) != 3:
            return shape, names, ()
        is_time = [self.axes.called(part) in (["T"], ["S"]) for part in parts]
        if not {part[0] for part in parts} & ranks or sum(is_time) != 1:
            return shape, names, ()
        batch_first = self.axes.called(tokens[0]) == ["B"]
        parts.sort(key=lambda part: (self.axes.called(part) != ["B"]) == batch_first)
        told = (*(self.axes.size(part[0]) for part in parts), *shape[-1:])
        axes = (*(self.axes.name(part, n) for part, n in zip(parts, told, strict=False)), *names[-1:])
        return told, axes, shape if told != shape else ()

    def _is_flat(self, value: Value) -> bool:
        """Are rows and positions laid in one axis?"""
        return any(len(axis) > 1 and "B" in self.axes.called(axis) for axis in self.axes.label(value))

    def _apart(
        self, value: Value, shape: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
        """Inside of an einsum: without its axes of size 1, rows and positions in axes of their own."""
        parts: list[Axis] = []
        for axis in self.axes.label(value):
            is_flat = "B" in self.axes.called(axis)
            parts.extend([(atom,) for atom in axis] if is_flat else [axis] if axis else [])
        told = tuple(math.prod(self.axes.size(atom) for atom in part) for part in parts)
        held = shape if told != shape else ()
        return told, tuple(self.axes.name(part, n) for part, n in zip(parts, told, strict=True)), held

    def _is_closed(self, path: str) -> bool:
        """Is this a module of torch's own that holds others (an attention), whose inside no user wrote?"""
        if path not in self._closed:
            try:
                module: nn.Module | None = self.probe.module_at(path)
            except AttributeError:
                module = None
            self._closed[path] = (
                module is not None
                and type(module).__module__.startswith("torch.nn")
                and next(module.children(), None) is not None
            )
        return self._closed[path]


def _frozen(probe: Once) -> frozenset[str]:
    """The parameters that are not trained, of a model that trains others."""
    named = dict(probe.user_model.named_parameters())
    frozen = frozenset(name for name, parameter in named.items() if not parameter.requires_grad)
    return frozen if len(frozen) < len(named) else frozenset()


def _earlier(drafts: Sequence[Draft], parameters: Parameters) -> dict[Draft, str]:
    """For each step that reads a parameter which one of the same name has read before: that one's module."""
    first: dict[tuple[str, str, Value], Draft] = {}
    found: dict[Draft, str] = {}
    for draft in sorted(drafts, key=lambda draft: draft.at):
        for leaf in sorted(parameters.read_by(draft), key=lambda leaf: leaf.index):
            known = first.setdefault((draft.kind, draft.name, leaf), draft)
            if known is not draft and known.main is not None:
                found.setdefault(draft, known.main.module or "an earlier step")
    return found


def _notes(probe: Once) -> list[str]:
    notes: list[str] = []
    if probe.gave:
        notes.append(f"no tensor of scores in the output, {probe.gave}")
    if probe.has_threads:
        notes.append("modules ran in another thread: what they computed there is not in this walk")
    uncounted = dict.fromkeys(op.name for op in probe.record.ops if is_uncounted(op))
    if uncounted:
        notes.append(f"no FLOPs are counted of {', '.join(uncounted)}: the total is without them")
    if any(site.softmax.name == "_safe_softmax" for site in probe.sites):
        notes.append(
            "scaled_dot_product_attention was taken apart to show it: where it runs as one kernel, scores "
            "and weights are never stored"
        )
    if any(isinstance(m, nn.TransformerEncoderLayer) for m in probe.adapted.model.modules()):
        notes.append(
            "torch's fast path for encoder layers was switched off: it would run each as one operation"
        )
    if probe.is_other:
        shapes = " and ".join(str(list(leaf.shape)) for leaf in probe.base.batch.leaves)
        notes.append(f"the batch is too large to record: what is shown is a part of it, inputs of {shapes}")
    elif probe.is_part:
        notes.append("sizes are those of the batch as given; what each step is was told on a part of it")
    return notes


def _operand(told: Operand, axes: Axes, op: Op | None) -> str:
    """An operand of what fails, with the names that its axes have in the graph; equal sizes name nothing."""
    todo, seen = list(op.inputs if op is not None else ()), set[Value]()
    names = ("",) * len(told.shape)
    while todo:
        value = todo.pop(0)
        if value in seen:
            continue
        seen.add(value)
        if value.shape == told.shape:
            found = axes.names(value, told.shape)
            names = tuple("" if name.isdigit() else LEGEND.get(name, name) for name in found)
            break
        if value.op is not None and value.op.moves:
            todo.extend(value.op.inputs)
    return str(replace(told, axes=names))


def _failed(probe: Once, axes: Axes) -> Failed | None:
    error = probe.failure
    if error is None:
        return None
    told = failure_of(probe)
    message = (str(error).strip().splitlines() or [""])[0]
    last = probe.record.ops[-1] if probe.record.ops else None
    own = own_of(frames_of(error))
    where = (
        told.place
        if told is not None and told.place is not None
        else own[-1].place
        if own
        else last.place
        if last is not None
        else None
    )
    return Failed(
        file=where.file if where is not None else "",
        line=where.line if where is not None else 0,
        code=visible(
            told.code if told is not None else source(where.file, where.line) if where is not None else ""
        ),
        module=told.module if told is not None else "",
        message=visible(f"{type(error).__name__}: {message}")[:300],
        operands=tuple(visible(_operand(each, axes, last)) for each in told.operands)
        if told is not None
        else (),
    )


def _not_called(error: BaseException) -> ConfigError:
    message = (str(error).strip().splitlines() or [""])[0][:300]
    return ConfigError(
        f"the model could not be called on its batch: {type(error).__name__}: {message}; "
        "give `call`, a function (model, *inputs) that calls it as your training does"
    )


def one_line(failed: Failed) -> str:
    """Where and why a pass failed, in one line."""
    where = f"{place(failed.file, failed.line)}: " if failed.file else ""
    return f"the pass fails at {where}{failed.message}"
