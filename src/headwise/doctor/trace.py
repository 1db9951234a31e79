"""One recording of a forward pass: every ATen operation with its operands, results and the user's line.

What is recorded is a graph (see `graph`). Here is what watches the pass: a dispatch mode sees the operations,
hooks know which module is running, and switches turn fused kernels into their products and softmax.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.doctor.frames import Frame, user_frames
from headwise.doctor.graph import (
    DROPOUTS,
    MOVES,
    PRODUCTS,
    Key,
    Op,
    Recording,
    Value,
    flat,
    key_of,
    pointer_of,
)

__all__ = [
    "DROPOUTS",
    "MOVES",
    "PRODUCTS",
    "Frame",
    "Op",
    "Recorder",
    "Recording",
    "Value",
    "key_of",
    "plain_kernels",
    "recording",
    "user_frames",
]


class Recorder(TorchDispatchMode):
    """Record everything that runs while it is active. Use through `recording`."""

    def __init__(
        self, leaves: Mapping[Key, str], inputs: Mapping[Key, int], paths: Mapping[int, str]
    ) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.record = Recording()
        self.record.settler = self._value
        self._leaves, self._inputs, self._paths = leaves, inputs, paths
        self._stored: dict[int, list[Value]] = {}
        self._version: dict[int, int] = {}
        self._writes: dict[int, list[Value]] = {}
        self._stack: list[tuple[str, int]] = []
        self._calls = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first recording imports the whole compiler, seconds for nothing

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        inputs: list[Value] = []

        def seen(tensor: Tensor) -> Value:
            value = self._value(tensor)
            inputs.append(value)
            return value

        kept = _swap_tensors(args, seen)
        named = _swap_tensors(kwargs, seen)
        written = self._written(func, args, kwargs)
        writes = -1
        if written is not None:
            self._freeze(written)
            holder = self._value(written)
            writes = inputs.index(holder) if holder in inputs else -1
        if name.endswith("_like") or name.startswith("new_"):
            inputs = []  # only the shape is read: no data flows
        op = Op(
            len(self.record.ops), func, name, kept, named, tuple(inputs), user_frames(), tuple(self._stack),
            writes=writes,
        )  # fmt: skip
        try:
            out = func(*args, **kwargs)
        except BaseException as error:
            self.record.ops.append(op)
            self.record.error = error
            raise
        self.record.ops.append(op)
        for value in inputs:
            value.users.append(op)
        sources = 0
        trained = False
        for value in inputs:
            sources |= value.sources
            trained = trained or value.trained
        if written is not None:
            pointer = pointer_of(written)
            self._version[pointer] = self._version.get(pointer, 0) + 1
        made: list[Value] = []
        for place, tensor in enumerate(flat(out)):
            value = self._new(tensor, op, place, sources, trained)
            made.append(value)
            if written is not None and pointer_of(tensor) == pointer_of(written):
                self._writes.setdefault(pointer_of(written), []).append(value)
        op.outputs = tuple(made)
        return out

    def _value(self, tensor: Tensor) -> Value:
        """The value this tensor is now: known, changed through a view since, or a leaf that is new."""
        key, pointer = key_of(tensor), pointer_of(tensor)
        version = self._version.get(pointer, 0)
        known = self.record.by_key.get(key)
        if known is not None and known[1] == version:
            known[0].needs_grad = known[0].needs_grad or tensor.requires_grad
            return known[0]
        stored = self._stored.get(pointer, [])
        if known is not None or stored:
            old = known[0] if known is not None else stored[-1]
            parents = (old, *self._writes.get(pointer, []))
            if known is None and not self._writes.get(pointer):  # an alias made without an operation (.data)
                parents = (old,)
            op = Op(
                len(self.record.ops), torch.ops.aten.alias.default, "update", parents, {}, parents,
                user_frames(), tuple(self._stack),
            )  # fmt: skip
            self.record.ops.append(op)
            sources = 0
            trained = False
            for parent in parents:
                parent.users.append(op)
                sources |= parent.sources
                trained = trained or parent.trained
            value = self._new(tensor, op, 0, sources, trained)
            op.outputs = (value,)
            return value
        value = self._new(tensor, None, 0, 0, False)
        value.name = self._leaves.get(key) or self._leaves.get(("storage", pointer), "")
        value.trained = value.name.startswith("parameter")
        if key in self._inputs:
            value.sources = 1 << self._inputs[key]
            value.name = f"input {self._inputs[key]}"
        return value

    def _new(self, tensor: Tensor, op: Op | None, output: int, sources: int, trained: bool) -> Value:
        record = self.record
        key = key_of(tensor)
        value = Value(len(record.values), tensor, key, op, output, "", sources, trained)
        value.needs_grad = tensor.requires_grad
        record.values.append(value)
        pointer = pointer_of(tensor)
        record.by_key[key] = (value, self._version.get(pointer, 0))
        self._stored.setdefault(pointer, []).append(value)
        return value

    def _written(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if not func._schema.is_mutable:
            return None
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[place] if place < len(args) else kwargs.get(argument.name)
                if isinstance(given, Tensor):
                    return given
        return None

    def _freeze(self, tensor: Tensor) -> None:
        """Before a write: let the older values of this memory keep what they hold."""
        for value in self._stored.get(pointer_of(tensor), []):
            if not value.frozen:
                value.tensor = value.tensor.detach().clone()
                value.frozen = True

    @contextmanager
    def modules(self) -> Generator[None]:
        """Know which module is running, through hooks that see every module call and go away again."""

        def enter(module: nn.Module, _args: Any) -> None:
            self._calls += 1
            self._stack.append((self._paths.get(id(module), ""), self._calls))

        def leave(_module: nn.Module, _args: Any, _out: Any) -> None:
            if self._stack:
                self._stack.pop()

        handles = [
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def recording(
    model: Any, inputs: Sequence[Tensor] = (), *, also: Mapping[str, Tensor] | None = None
) -> Generator[Recording]:
    """Record the operations of the block: `with recording(model, [ids]) as record: model(ids)`.

    Fused kernels are switched off, so that every way of writing attention shows its products and its softmax.
    """
    leaves: dict[Key, str] = {}
    paths: dict[int, str] = {}
    if isinstance(model, nn.Module):
        paths = {
            id(module): name
            for name, module in cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
        }
        for label, found in (("buffer", model.named_buffers()), ("parameter", model.named_parameters())):
            for name, tensor in found:
                leaves[key_of(tensor)] = f"{label} {name}"
                if tensor.numel():
                    leaves["storage", pointer_of(tensor)] = f"{label} {name}"
    for name, tensor in (also or {}).items():
        leaves[key_of(tensor)] = name
    recorder = Recorder(leaves, {key_of(tensor): place for place, tensor in enumerate(inputs)}, paths)
    try:
        with plain_kernels(), recorder.modules(), recorder:
            yield recorder.record
    finally:
        recorder.record.settler = None


@contextmanager
def plain_kernels() -> Generator[None]:
    """No fused attention: none of the encoder's fast path, scaled_dot_product_attention, flex_attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    _write_out_flex()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _write_out_flex() -> None:
    """Where flex_attention is in use: while recorded, it runs as products and softmax that a mode can see."""
    module: Any = sys.modules.get("torch._higher_order_ops.flex_attention")
    if module is None or Recorder in module.flex_attention.python_key_table:
        return

    def written_out(mode: Recorder, *args: Any, **kwargs: Any) -> Any:
        with mode, _Decomposed():
            return module.math_attention(*args, **kwargs)

    module.flex_attention.py_impl(Recorder)(written_out)


class _Decomposed(TorchDispatchMode):
    """Below autograd, as the insides of an operation are, torch no longer takes composed operations apart."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:
            out = func.decompose(*args, **kwargs)
        return func(*args, **kwargs) if out is NotImplemented else out


def _swap_tensors(tree: Any, to: Callable[[Tensor], Any]) -> Any:
    if isinstance(tree, Tensor):
        return to(tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_swap_tensors(each, to) for each in tree)  # pyright: ignore
    if isinstance(tree, dict):
        return {name: _swap_tensors(each, to) for name, each in tree.items()}  # pyright: ignore
    return tree
