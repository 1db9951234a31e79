"""How to call a stranger's model: its inputs as leaves with roles, its output as logits, its claims."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.called import Called
from headwise.doctor.marks import SOURCE_NAMES, TARGET_NAMES, says, with_counts, with_mask
from headwise.doctor.subject import Kind, Layout, Subject
from headwise.errors import ConfigError

SIDE_NAMES = ("mask", "type_ids", "token_type", "position", "labels", "segment")


@dataclass(frozen=True)
class Leaf:
    """One tensor of the inputs.

    role: "ids", "floats", "mask" (may look / pad), "counts" (real tokens of each row), "labels" or "other".
    """

    name: str
    role: str


@dataclass(frozen=True)
class Stream:
    """A sequence the model reads: "source" and "target" of an encoder-decoder, else "tokens".

    keep_leaf: the input that marks its padding, if one does; keep_is: the value there of a real token.
    count_leaf: the input [B] that holds the number of real tokens of each row, if one does.
    """

    name: str
    leaf: int
    is_ids: bool
    keep_leaf: int | None = None
    keep_is: float = 1.0
    count_leaf: int | None = None


@dataclass(frozen=True)
class Adapted:
    """A subject that the probe can call: roles of its inputs, the kind it claims, how it was told.

    labels: the input that the model compares its output with itself, and does not read (see `own_loss`).
    """

    subject: Subject
    model: nn.Module
    leaves: tuple[Leaf, ...]
    streams: tuple[Stream, ...]
    kind: Kind | None
    kind_from: str
    layout: Layout
    notes: tuple[str, ...]
    whole: Subject | None = None
    labels: int | None = None

    @property
    def handed(self) -> Subject:
        """The subject as the user handed it over: `subject` may hold a part of its batch."""
        return self.whole or self.subject

    @property
    def main(self) -> Stream | None:
        """The stream the logits belong to: the target's where there are two, none that a decoder makes up."""
        if self.kind == "encoder-decoder" and len(self.streams) < 2:
            return None
        return self.streams[-1] if self.streams else None

    @property
    def source(self) -> Stream | None:
        return self.streams[0] if len(self.streams) == 2 else None

    def call(self, model: Any, leaves: tuple[Tensor, ...]) -> Any:
        """Run the model on these leaves, in the form in which the user gave them."""
        given = rebuild(self.subject.inputs, list(leaves))
        if isinstance(given, dict):
            named = cast("dict[str, Any]", given)
            return self.subject.call(model, **named) if self.subject.call else model(**named)
        args = tuple(given) if isinstance(given, (tuple, list)) else (given,)  # pyright: ignore
        return self.subject.call(model, *args) if self.subject.call else model(*args)

    @property
    def batch_axis(self) -> int:
        return 1 if self.layout == "time-major" else 0


def adapt(subject: Subject, *, known: Mapping[int, str] | None = None) -> Adapted:
    """Tell what each input is and what kind of model this claims to be.

    known: roles of inputs, by place, that are known better than their names and numbers tell.
    Raises ConfigError where there is nothing to call or no tensor to change.
    """
    model, notes = unwrap(subject.model)
    leaves = flatten(subject.inputs)
    if not leaves:
        raise ConfigError(
            f"inputs must hold at least one tensor: got {type(subject.inputs).__name__} without any; "
            "give the batch that the model is called with"
        )
    _check_whole(model, leaves)
    names = _names(subject, model, len(leaves))
    roles = tuple(Leaf(name, _role(name, leaf, leaves)) for name, leaf in zip(names, leaves, strict=True))
    known = known or {}
    roles = tuple(replace(leaf, role=known.get(i, leaf.role)) for i, leaf in enumerate(roles))
    streams = _streams(subject, roles, leaves)
    layout = subject.layout or _layout(subject, streams, leaves)
    kind, why = _kind(subject, model, streams, leaves, layout)
    if kind != "encoder-decoder" and len(streams) == 2:
        streams = (Stream("tokens", streams[0].leaf, streams[0].is_ids),)
    streams = tuple(with_mask(stream, subject, roles, leaves) for stream in streams)
    streams = with_counts(streams, subject, roles, leaves, layout)
    counts = {stream.count_leaf for stream in streams}
    roles = tuple(replace(leaf, role="counts") if i in counts else leaf for i, leaf in enumerate(roles))
    labels = next((i for i, role in known.items() if role == "labels"), None)
    return Adapted(subject, model, roles, streams, kind, why, layout, tuple(notes), labels=labels)


def unwrap(model: Any) -> tuple[nn.Module, list[str]]:
    """The module inside torch.compile and data-parallel wrappers, and what was taken off."""
    notes: list[str] = []
    while isinstance(model, nn.Module):
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in {"DataParallel", "DistributedDataParallel"}:
            inner = getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            break
        notes.append(
            f"examined the module inside {type(model).__name__}: wrappers do not change what it computes"
        )
        model = inner
    if isinstance(model, nn.Module):
        return model, notes
    if not callable(model):
        raise ConfigError(f"model must be a torch.nn.Module or a callable: got {type(model).__name__}")
    return Called(model), [
        *notes,
        "the model is a function: its parameters are those of the modules it closes over",
    ]


def flatten(tree: Any) -> list[Tensor]:
    """The tensors of a tuple, list or dict of inputs, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        return [leaf for each in cast("dict[str, Any]", tree).values() for leaf in flatten(each)]
    if isinstance(tree, (tuple, list)):
        return [leaf for each in cast("list[Any]", tree) for leaf in flatten(each)]
    if hasattr(tree, "data") and isinstance(getattr(tree, "data", None), dict):  # a BatchEncoding
        return flatten(tree.data)
    return []


def rebuild(tree: Any, leaves: list[Tensor]) -> Any:
    """The same structure with other tensors; `leaves` is used up."""
    if isinstance(tree, Tensor):
        return leaves.pop(0)
    if hasattr(tree, "data") and isinstance(getattr(tree, "data", None), dict) and not isinstance(tree, dict):
        tree = tree.data
    if isinstance(tree, dict):
        return {name: rebuild(each, leaves) for name, each in cast("dict[str, Any]", tree).items()}
    if isinstance(tree, (tuple, list)):
        return tuple(rebuild(each, leaves) for each in cast("list[Any]", tree))
    return tree


def logits_of(output: Any) -> Tensor | None:
    """The tensor of scores in whatever a model returns: .logits, the first of a tuple, the hidden state."""
    if isinstance(output, Tensor):
        return output
    for name in ("logits", "prediction_logits", "last_hidden_state"):
        known = cast("dict[str, Any]", output) if isinstance(output, dict) else dict[str, Any]()
        found = known.get(name, cast("object", getattr(output, name, None)))  # pyright: ignore
        if isinstance(found, Tensor):
            return found
    if isinstance(output, dict):
        output = list(cast("dict[str, Any]", output).values())
    if isinstance(output, (tuple, list)):
        many = [each for each in cast("list[Any]", output) if isinstance(each, Tensor)]
        wide = [each for each in many if each.dim() >= 2 and each.is_floating_point()]
        if wide:
            return wide[0]
        return next(
            (found for each in cast("list[Any]", output) if (found := logits_of(each)) is not None), None
        )
    return None


def twin(model: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
    """A copy of the model, and of its optimizer bound to the copy's parameters.

    The optimizer is copied attribute by attribute: Optimizer.__getstate__ drops what a subclass has added.
    """
    memo: dict[int, Any] = {id(t): t.detach().clone().requires_grad_() for t in _computed(model)}
    was = [(p, p.grad) for p in model.parameters()]
    for p, _ in was:
        p.grad = None
    try:
        other = copy.deepcopy(model, memo)
    finally:
        for p, grad in was:
            p.grad = grad
    return other, None if optimizer is None else _again(optimizer, memo)


def _again(optimizer: Any, memo: dict[int, Any]) -> Any:
    if not hasattr(optimizer, "__dict__"):
        return optimizer
    new = object.__new__(cast("type[Any]", type(optimizer)))
    memo[id(optimizer)] = new
    mine = cast("dict[str, Any]", vars(new))
    for name, held in cast("dict[str, Any]", vars(optimizer)).items():
        if isinstance(held, torch.optim.Optimizer):  # what it wraps
            mine[name] = _again(held, memo)
            continue
        if name == "step" and getattr(held, "_wrapped_by_lr_sched", False):
            continue  # a scheduler's wrapper steps the optimizer it was made for: the user's
        try:
            mine[name] = copy.deepcopy(held, memo)
        except (TypeError, RuntimeError, AttributeError):
            mine[name] = held
    return new


def _computed(model: nn.Module) -> list[Tensor]:
    """Results of autograd that modules keep (an attention map, a scaled parameter): deepcopy refuses them."""
    found: list[Tensor] = []
    for module in model.modules():
        for value in vars(module).values():
            each = cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]
            found.extend(t for t in each if isinstance(t, Tensor) and not t.is_leaf)
    return found


def _names(subject: Subject, model: nn.Module, count: int) -> list[str]:
    given = subject.inputs
    if (
        hasattr(given, "data")
        and isinstance(getattr(given, "data", None), dict)
        and not isinstance(given, dict)
    ):
        given = given.data
    if isinstance(given, dict):
        names = [
            name if i == 0 else f"{name}.{i}"
            for name, each in cast("dict[str, Any]", given).items()
            for i, _ in enumerate(flatten(each))
        ]
        return names
    function = subject.call or (model.function if isinstance(model, Called) else model.forward)
    try:
        parameters = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
        ]
    except (TypeError, ValueError):
        parameters = []
    if subject.call:
        parameters = parameters[1:]
    flat = [flatten(each) for each in given] if isinstance(given, (tuple, list)) else [[given]]  # pyright: ignore
    names: list[str] = []
    for place, each in enumerate(flat):
        name = parameters[place] if place < len(parameters) else f"input{place}"
        names.extend(name if i == 0 else f"{name}.{i}" for i, _ in enumerate(each))
    return names[:count] + [f"input{i}" for i in range(len(names), count)]


def _role(name: str, leaf: Tensor, leaves: list[Tensor]) -> str:
    low = name.lower()
    if "label" in low:
        return "labels"
    if "mask" in low or leaf.dtype == torch.bool:
        return "mask"
    if any(part in low for part in SIDE_NAMES):
        return "other"
    if leaf.is_floating_point():
        if leaf.dim() >= 2 and leaf.numel() and leaf.min() < -1e3:
            two = bool(((leaf == leaf.min()) | (leaf == leaf.max())).all())
            if two:
                return "mask"
        return "floats" if leaf.dim() >= 2 else "other"
    if leaf.dim() != 2:
        return "ids" if leaf.dim() == 3 or (leaf.dim() == 1 and len(leaves) == 1) else "other"
    if says(low, SOURCE_NAMES) or says(low, TARGET_NAMES):
        return "ids"
    wide = any(other.dim() == 2 and not other.is_floating_point() and other.max() > 1 for other in leaves)
    return "mask" if wide and leaf.numel() and leaf.min() >= 0 and leaf.max() <= 1 else "ids"


def _streams(subject: Subject, roles: tuple[Leaf, ...], leaves: list[Tensor]) -> tuple[Stream, ...]:
    ids = [i for i, leaf in enumerate(roles) if leaf.role == "ids"]
    floats = [i for i, leaf in enumerate(roles) if leaf.role == "floats"]
    both = sorted(ids + floats)
    if len(both) >= 2 and (subject.kind in {None, "encoder-decoder"}):
        first, second = both[0], both[1]
        if says(roles[first].name, TARGET_NAMES) and not says(roles[second].name, TARGET_NAMES):
            first, second = second, first
        return (Stream("source", first, first in ids), Stream("target", second, second in ids))
    if both:
        chosen = ids[0] if ids else floats[0]
        return (Stream("tokens", chosen, chosen in ids),)
    return ()


def _layout(subject: Subject, streams: tuple[Stream, ...], leaves: list[Tensor]) -> Layout:
    """Time-major only where the data say so: targets shifted, or padding gathered, along axis 0 but not 1."""
    if not streams or not streams[-1].is_ids:
        return "batch-first"
    ids = leaves[streams[-1].leaf]
    targets = subject.targets
    if len(streams) == 2 and all(stream.is_ids for stream in streams):
        source = leaves[streams[0].leaf]  # a batch has as many rows of one as of the other
        if source.dim() == ids.dim() == 2 and source.shape[0] != ids.shape[0]:
            return "time-major" if source.shape[1] == ids.shape[1] else "batch-first"
    if ids.dim() != 2 or min(ids.shape) < 2:
        return "batch-first"
    if isinstance(targets, Tensor) and targets.shape == ids.shape:
        along = [shift_share(ids, targets, 1, axis) for axis in (0, 1)]
        if along[0] > 0.9 and along[1] < 0.5:
            return "time-major"
        if along[1] > 0.9:
            return "batch-first"
    if subject.pad_id is not None:
        trailing = [_trails(ids if axis else ids.T, subject.pad_id) for axis in (0, 1)]
        if trailing[0] and not trailing[1]:
            return "time-major"
    return "batch-first"


def _trails(ids: Tensor, pad: int) -> bool:
    """Does padding only ever follow, never precede, along axis 1 (and does some row have it)?"""
    is_pad = ids == pad
    return (
        bool(is_pad.any()) and bool((is_pad[:, 1:] >= is_pad[:, :-1]).all()) and bool((~is_pad[:, 0]).all())
    )


def shift_share(ids: Tensor, targets: Tensor, shift: int, axis: int = 1) -> float:
    """The share of labels equal to the input token `shift` places on (labels below 0 are not counted)."""
    length = ids.shape[axis]
    if length <= shift:
        return 0.0
    label = targets.narrow(axis, 0, length - shift)
    token = ids.narrow(axis, shift, length - shift)
    counted = label >= 0
    return float((label == token)[counted].float().mean()) if bool(counted.any()) else 0.0


def _kind(
    subject: Subject, model: nn.Module, streams: tuple[Stream, ...], leaves: list[Tensor], layout: Layout
) -> tuple[Kind | None, str]:
    if subject.kind is not None:
        return subject.kind, "given"
    if len(streams) == 2:
        return "encoder-decoder", "a second input"
    claim = getattr(model, "config", None)
    if getattr(claim, "is_encoder_decoder", False) is True:
        return "encoder-decoder", "its configuration"
    if subject.generate is not None:
        return "decoder", "generate was given"
    targets = subject.targets
    if streams and streams[0].is_ids and isinstance(targets, Tensor):
        ids = leaves[streams[0].leaf]
        if (
            targets.shape == ids.shape
            and shift_share(ids, targets, 1, 0 if layout == "time-major" else 1) > 0.9
        ):
            return "decoder", "the targets are the next tokens"
    if type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        return "decoder", "its class name"
    return None, "nothing decides"


def _check_whole(model: nn.Module, leaves: list[Tensor]) -> None:
    """Refuse what no pass can be made with.

    Errors: ConfigError for an empty batch, and for parameters that hold no numbers yet.
    """
    if any(leaf.numel() == 0 for leaf in leaves):
        shapes = ", ".join(str(list(leaf.shape)) for leaf in leaves)
        raise ConfigError(f"the batch must hold at least one row and one position: got inputs of {shapes}")
    for name, parameter in model.named_parameters():
        if parameter.is_meta or isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(
                f"the model must be built: got {name} without numbers (lazy, or on the meta device); "
                "run one batch through it, or load it, first"
            )
