"""A second device without one: tensors are marked; where marked ones meet others, CUDA would refuse.

What is marked says that its device is cpu:0, which is not cpu: a tensor made with device=x.device, or brought
to x, is marked as x is, and one made without a device is not.
"""

from __future__ import annotations

import traceback
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

AWAY = torch.device("cpu", 0)
_DEVICE = Tensor.device.__get__  # pyright: ignore
_COMPOSED = {"unravel_index"}  # torch's own Python: what it makes with device=x.device cannot be seen
_ACROSS = {"copy_", "_to_copy", "lift_fresh", "_copy_from", "set_"}  # these take operands of two devices


class PretendDevice:
    """Inside, what is given is on a device of its own; `met` tells where other tensors met those there."""

    def __init__(self, *given: nn.Module | Tensor) -> None:
        self.met: list[str] = []
        self.is_within_torch = False
        self._storages: dict[int, Any] = {}
        for each in given:
            for tensor in [each] if isinstance(each, Tensor) else [*each.parameters(), *each.buffers()]:
                self.mark(tensor)
        self._open = ExitStack()

    def mark(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage  # kept, so that no address comes twice

    def is_away(self, value: object) -> bool:
        return isinstance(value, Tensor) and value.untyped_storage()._cdata in self._storages

    def tell(self, what: str) -> None:
        lines = [f for f in traceback.extract_stack() if "/headwise/" in f.filename]
        where = (
            f"{lines[-1].filename.rpartition('/headwise/')[2]}:{lines[-1].lineno}" if lines else "elsewhere"
        )
        self.met.append(f"{what} at {where}")

    def __enter__(self) -> PretendDevice:
        self._open.enter_context(_Functions(self))
        self._open.enter_context(_Operations(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class _Functions(TorchFunctionMode):
    """What is asked for by name: the device of a tensor, a tensor on a device, a tensor brought to one."""

    def __init__(self, pretended: PretendDevice) -> None:
        super().__init__()
        self.pretended = pretended

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        mine = self.pretended
        if func == _DEVICE:
            return AWAY if mine.is_away(args[0]) else torch.device("cpu")
        mine.is_within_torch = name in _COMPOSED
        result = func(*args, **kwargs)
        mine.is_within_torch = False
        if name == "numpy" and mine.is_away(args[0]):
            mine.tell("numpy() of a tensor that is not on the CPU")
        if not isinstance(result, Tensor) or name in {"__get__", "__set__"}:
            return result
        if name in {"to", "cpu", "type_as"}:
            wanted = next(
                (a for a in (*args[1:], kwargs.get("device")) if isinstance(a, (torch.device, str, Tensor))),
                None,
            )
            if name == "cpu" or isinstance(wanted, (torch.device, str)):
                return self._on(result, name != "cpu" and torch.device(wanted) == AWAY)  # pyright: ignore
            return self._on(result, mine.is_away(wanted)) if isinstance(wanted, Tensor) else result
        if kwargs.get("device") is not None and torch.device(kwargs["device"]) == AWAY:
            if kwargs.get("generator") is not None:
                mine.tell(f"{name} from a generator of the CPU")
            mine.mark(result)
        return result

    def _on(self, tensor: Tensor, is_away: bool) -> Tensor:
        if self.pretended.is_away(tensor) == is_away:
            return tensor
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            moved = tensor.clone()
        if is_away:
            self.pretended.mark(moved)
        return moved


class _Operations(TorchDispatchMode):
    """Every operation: what comes of marked operands is marked, and no other tensor may be among them."""

    def __init__(self, pretended: PretendDevice) -> None:
        super().__init__()
        self.pretended = pretended

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mine = self.pretended
        name = func._schema.name.partition("::")[2]
        operands = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        away = [x for x in operands if mine.is_away(x)]
        here = [x for x in operands if not mine.is_away(x) and x.dim()]
        if name.startswith("index") and args and mine.is_away(args[0]) and "select" not in name:
            here = [x for x in here if not (len(args) > 1 and any(x is i for i in tree_leaves(args[1])))]
        if away and here and name not in _ACROSS and not mine.is_within_torch:
            mine.tell(f"{name} of {[list(x.shape) for x in operands]}")
        result = func(*args, **(kwargs or {}))
        if name == "copy_":
            return result
        if away:
            for out in tree_leaves(result):
                if isinstance(out, Tensor):
                    mine.mark(out)
        return result
