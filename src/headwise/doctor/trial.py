"""One call of a model: which tables its inputs index, and how they reach torch's attention."""

# pyright: reportUnknownMemberType=false
# torch leaves hooks without a type
from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_LOOKUPS = ("aten.embedding.default", "aten.index.Tensor", "aten.index_select.default")


@dataclass
class Trial:
    """What one call did.

    vocabularies: index of an input -> entries of the smallest table that it looks up itself (where none, that
    something computed from it looks up).
    is_batch_second: torch's attention took [batch, time] for [time, batch].
    """

    inputs: Any
    error: Exception | None = None
    vocabularies: dict[int, int] = field(default_factory=dict[int, int])
    is_batch_second: bool = False


def try_call(model: nn.Module, inputs: Any) -> Trial:
    """Call the model in evaluation mode without gradients; its mode and the random state come back."""
    trial = Trial(inputs)
    tensors = tensors_of(inputs)
    watch = _Watch(tensors)
    with _evaluating(model), torch.random.fork_rng(devices=[]), torch.no_grad(), ExitStack() as hooks:
        _watch_attention(model, tensors[0], trial, hooks)
        try:
            with watch:
                model(**inputs) if isinstance(inputs, dict) else model(*inputs)
        except Exception as error:
            trial.error = error
    trial.vocabularies = watch.derived | watch.direct
    return trial


def tensors_of(inputs: Any) -> list[Tensor]:
    """The tensors of a tuple, or of a dict of keyword arguments."""
    return list(cast("dict[str, Tensor]", inputs).values()) if isinstance(inputs, dict) else list(inputs)


class _Watch(TorchDispatchMode):
    """Follows whole numbers from the inputs to the tables that they index."""

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()
        self.direct: dict[int, int] = {}
        self.derived: dict[int, int] = {}
        self._direct = {tensor.untyped_storage()._cdata: i for i, tensor in enumerate(inputs)}  # pyright: ignore[reportPrivateUsage]
        self._derived: dict[int, int] = {}
        self._alive: list[Tensor] = []  # so that no address is used twice

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its whole compiler, for seconds, to keep it off this mode

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        operands = [t for arg in args for t in (arg if isinstance(arg, list | tuple) else [arg])]  # pyright: ignore[reportUnknownVariableType]
        numbers = [
            t for t in cast("list[object]", operands) if isinstance(t, Tensor) and not t.is_floating_point()
        ]
        looked_up = str(func) in _LOOKUPS and isinstance(args[0], Tensor) and args[0].is_floating_point()
        for number in numbers:
            address = number.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
            for sources, found in ((self._direct, self.direct), (self._derived, self.derived)):
                if address in sources and looked_up:
                    size = int(args[0].size(0))
                    found[sources[address]] = min(size, found.get(sources[address], size))
            source = self._direct.get(address, self._derived.get(address))
            if source is not None and isinstance(result, Tensor) and not result.is_floating_point():
                produced = result.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
                if produced not in self._direct:
                    self._derived.setdefault(produced, source)
                    self._alive.append(result)
        return result


def _watch_attention(model: nn.Module, first: Tensor, trial: Trial, hooks: ExitStack) -> None:
    """Tell whether torch's time-major attention gets [batch, time] as it was handed over."""

    def look(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        query = args[0] if args else named.get("query")
        if isinstance(query, Tensor) and query.dim() == 3 and first.dim() in (2, 3):
            trial.is_batch_second |= query.shape[0] == first.shape[0] != query.shape[1]

    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention) and not module.batch_first:
            hooks.callback(module.register_forward_pre_hook(look, with_kwargs=True).remove)


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
