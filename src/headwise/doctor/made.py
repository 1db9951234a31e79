"""What was constructed where: modules, optimizers and tensors, with the user's lines.

While the user's file runs, `Making` looks over the shoulder of `nn.Module.__init__` and its like, and of
every ATen operation. It keeps places, never data: a tensor is known by the address of its storage, which is
held weakly.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.doctor.check import Place
from headwise.doctor.written import assigned_at, whose

__all__ = ["Making", "assigned_at", "place_of"]

MOST_OPERATIONS = 200_000
_PRUNE_EVERY = 4_096  # operations; what has died by then is forgotten

Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


class Step(NamedTuple):
    """One operation that made a tensor, or wrote to it; `operands` are the steps that made what it read."""

    geometry: Geometry
    place: Place
    op: str
    operands: tuple[Step, ...]


class _Record(NamedTuple):
    """Of one object: the reference tells whether an id still means it."""

    holder: weakref.ref[Any]
    place: Place | None
    copied: Place | None = None


class _History(NamedTuple):
    """Of one storage: its address cannot be used again while the weak reference lives."""

    storage: StorageWeakRef
    steps: list[Step]


class Making:
    """Records, between enter and exit, where things are made; answers at any time after that.

    Everything it patched is as it was on exit, also after an exception. Memory is bounded: after
    MOST_OPERATIONS tensor operations no more are recorded (`is_full`).
    """

    def __init__(self) -> None:
        self._modules: dict[int, _Record] = {}
        self._optimizers: dict[int, _Record] = {}
        self._storages: dict[int, _History] = {}
        self._operations = 0
        self._open = ExitStack()

    @property
    def is_full(self) -> bool:
        """Whether operations came that are not recorded."""
        return self._operations > MOST_OPERATIONS

    def __enter__(self) -> Making:
        with ExitStack() as stack:
            patch = functools.partial(_patched, stack)
            patch(nn.Module, "__init__", self._on_module)
            patch(nn.Module, "__setstate__", self._on_copy)
            patch(torch.optim.Optimizer, "__init__", self._on_optimizer)
            stack.enter_context(_Watch(self._on_operation))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def module(self, module: nn.Module) -> Place | None:
        """The line that constructed this module; of a copy, the line that constructed its template."""
        record = _record(self._modules, module)
        return record.place if record else None

    def copied(self, module: nn.Module) -> Place | None:
        """The line that copied another module to make this one, None where it is no copy."""
        record = _record(self._modules, module)
        return record.copied if record else None

    def optimizer(self, optimizer: torch.optim.Optimizer) -> Place | None:
        """The line that constructed this optimizer."""
        record = _record(self._optimizers, optimizer)
        return record.place if record else None

    def tensor(self, tensor: Tensor) -> tuple[tuple[Place, str], ...]:
        """The operations that made this tensor, newest first, then those that wrote to the same storage.

        A view made from another place comes first: it is what was handed over.
        """
        return _once((step.place, step.op) for step in self._steps(tensor))

    def views(self, tensor: Tensor) -> tuple[tuple[Place, str], ...]:
        """Only the operations that gave a tensor of this very memory and geometry, newest first."""
        geometry = _geometry(tensor)
        return _once((step.place, step.op) for step in self._steps(tensor) if step.geometry == geometry)

    def ancestry(self, tensor: Tensor, most: int = 16) -> tuple[tuple[Place, str], ...]:
        """The operations that made the operands of those of `tensor`, and theirs in turn, nearest first."""
        mine = self._steps(tensor)
        seen = {id(step) for step in mine}
        found: list[tuple[Place, str]] = []
        level = mine
        while level and len(found) < most:
            following: list[Step] = []
            for step in level:
                for operand in step.operands:
                    if id(operand) not in seen:
                        seen.add(id(operand))
                        following.append(operand)
            own = {(step.place, step.op) for step in mine}
            found += [told for step in following if (told := (step.place, step.op)) not in own]
            level = following
        return _once(iter(found))[:most]

    def _steps(self, tensor: Tensor) -> list[Step]:
        address = _address(tensor)
        history = self._storages.get(address) if address is not None else None
        if history is None:
            return []
        newest = history.steps[::-1]
        geometry = _geometry(tensor)
        return [s for s in newest if s.geometry == geometry] + [s for s in newest if s.geometry != geometry]

    def _on_module(self, module: nn.Module, *_: object, **__: object) -> None:
        self._modules[id(module)] = _Record(weakref.ref(module), _constructed_at(module))

    def _on_copy(self, module: nn.Module, *_: object) -> None:
        template = _template_of(module)
        if template is not None:
            known = _record(self._modules, template)
            here = _innermost(inspect.currentframe())
            self._modules[id(module)] = _Record(weakref.ref(module), known.place if known else here, here)

    def _on_optimizer(self, optimizer: torch.optim.Optimizer, *_: object, **__: object) -> None:
        self._optimizers[id(optimizer)] = _Record(weakref.ref(optimizer), _constructed_at(optimizer))

    def _on_operation(self, op: str, operands: list[Tensor], results: list[Tensor]) -> None:
        self._operations += 1
        if self.is_full:
            return
        place = _innermost(inspect.currentframe())
        if place is None:
            return
        before = tuple(
            history.steps[-1]
            for operand in operands
            if (address := _address(operand)) is not None and (history := self._storages.get(address))
        )
        for result in results:
            address = _address(result)
            if address is None:
                continue
            history = self._storages.get(address)
            if history is None:
                history = _History(StorageWeakRef(result.untyped_storage()), [])
                self._storages[address] = history
            history.steps.append(Step(_geometry(result), place, op, before))
        if self._operations % _PRUNE_EVERY == 0:
            gone = [address for address, history in self._storages.items() if history.storage.expired()]
            for address in gone:
                del self._storages[address]


def place_of(making: Making | None, model: nn.Module, path: str) -> Place | None:
    """Where the module at this path was constructed: as recorded, else as the source says."""
    recorded = making.module(model.get_submodule(path)) if making is not None else None
    return recorded or (assigned_at(model, path) if path else None)


class _Watch(TorchDispatchMode):
    """Tells each operation's name, operands and results."""

    def __init__(self, tell: Callable[[str, list[Tensor], list[Tensor]], None]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._tell = tell

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its whole compiler, for seconds, to keep it off this mode

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        self._tell(str(func), _tensors((*args, *named.values())), _tensors((result,)))
        return result


def _patched(stack: ExitStack, owner: type, name: str, after: Callable[..., None]) -> None:
    """Let `after` see every call of a method with its arguments, until the stack is unwound."""
    original = vars(owner)[name]

    @functools.wraps(original)
    def method(self: Any, *args: Any, **named: Any) -> Any:
        result = original(self, *args, **named)
        after(self, *args, **named)
        return result

    setattr(owner, name, method)
    stack.callback(setattr, owner, name, original)


def _constructed_at(made: object) -> Place | None:
    """The user's line that called the class: beyond every frame that works on the object itself."""
    start = frame = inspect.currentframe()
    while frame is not None and not _is_ours(frame):
        code = frame.f_code
        if code.co_argcount and frame.f_locals.get(code.co_varnames[0]) is made and frame.f_back:
            start = frame.f_back
        frame = frame.f_back
    return _innermost(start)


def _innermost(frame: types.FrameType | None) -> Place | None:
    """The innermost frame of the user's own files, of a library's where no user's file takes part."""
    fallback: Place | None = None
    while frame is not None and not _is_ours(frame):
        code = frame.f_code
        owner = whose(code.co_filename)
        if owner == "user" or (owner == "library" and fallback is None):
            place = Place(code.co_filename, frame.f_lineno, code.co_qualname)
            if owner == "user":
                return place
            fallback = place
        frame = frame.f_back
    return fallback


def _is_ours(frame: types.FrameType) -> bool:
    """Whether the doctor called what runs here: who called the doctor made nothing of the model."""
    name = frame.f_code.co_filename
    return name != __file__ and whose(name) == "doctor"


def _template_of(module: nn.Module) -> nn.Module | None:
    """What copy.copy or copy.deepcopy is copying to make this module."""
    frame: types.FrameType | None = inspect.currentframe()
    rebuild = cast("types.FunctionType", vars(copy)["_reconstruct"]).__code__
    while frame is not None:
        if frame.f_code is rebuild:
            inside = frame.f_locals
            if inside.get("y") is module:
                return inside.get("x")
        frame = frame.f_back
    return None


def _record(records: dict[int, _Record], made: object) -> _Record | None:
    record = records.get(id(made))
    return record if record is not None and record.holder() is made else None


def _address(tensor: Tensor) -> int | None:
    """What tells a storage from others; None for tensors without one (sparse, or a wrapper)."""
    try:
        return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
    except (NotImplementedError, RuntimeError):
        return None


def _geometry(tensor: Tensor) -> Geometry:
    return int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride())


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    """The tensors among the values and in lists of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in cast("list[object]", value) if isinstance(item, Tensor)]
    return found


def _once(told: Iterator[tuple[Place, str]]) -> tuple[tuple[Place, str], ...]:
    return tuple(dict.fromkeys(told))
