"""Calls of a model from outside of it: of the whole, or of its parts one by one, as a loop makes them.

While a step is looked at every module has hooks; otherwise only those that a loop is known to call, to keep
what they were called with until the step is over: where its gradient is not finite it is run again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.see.watch.smaller import tensors

MOST_BYTES = 256 * 2**20  # of arguments and of gradients of results kept for one step; what is older goes
MOST_KEPT = 32  # calls of one step that are kept: rollouts make thousands without a step
MOST_GRADIENT = 16 * 2**20  # of one result's gradient


@dataclass(eq=False)
class Call:
    """One call: what ran, on what, from which random states; gradients: of its results, by their place."""

    run: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    random: list[Tensor]
    gradients: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    loss: Tensor | None = None
    bytes: int = 0  # what the arguments hold

    def __post_init__(self) -> None:
        self.bytes = sum(t.numel() * t.element_size() for t in tensors(self.arguments))

    @property
    def is_lost_on(self) -> bool:
        """Is `loss` what the way back began at? One of which the opposite is wanted is none."""
        if self.loss is None:
            return False
        return all(float(grad) > 0 for grad in self.gradients.values() if grad.dim() == 0)


class Calls:
    """Hears calls of a model that train it; `seen` are those of the step that is under way, in order.

    entered: called with each, before it runs, while `look` is on. failed: called with what goes wrong here.
    """

    def __init__(
        self,
        given: nn.Module,
        model: nn.Module,
        entered: Callable[[Call], None],
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self.failed = failed
        self._given, self._model, self._entered = given, model, entered
        self._permanent: dict[int, list[Any]] = {}
        self._window: list[Any] = []
        self._depth = 0
        self._is_paused = False
        self._is_on = False
        self._is_told = False
        self.is_looked_at = False
        self.is_kept = True
        self._held = 0
        self._is_in_evaluation = False
        self.seen: deque[Call] = deque()
        self.has_compiled = any(_is_compiled(module) for module in given.modules())

    def start(self) -> None:
        """Hear from now on; a model that is in evaluation mode now is heard in that mode too."""
        self._is_on = True
        self._is_in_evaluation = not self._model.training

    def open(self) -> None:
        """Hear every module until `close`."""
        self.is_looked_at = True
        if self._window or self._is_told:
            return
        # a hook within compiled code would have it compiled again
        every = (
            [self._given] if self.has_compiled else [*dict.fromkeys([self._given, *self._model.modules()])]
        )
        for module in every:
            if id(module) not in self._permanent and not _is_compiled_in_place(module):
                self._window += self._hook(module)

    def close(self) -> None:
        """Hear only those that are called from outside."""
        self.is_looked_at = False
        for handle in self._window:
            handle.remove()
        self._window = []

    def stop(self) -> None:
        """Hear nothing any more."""
        self._is_on = False
        self.close()
        for handles in self._permanent.values():
            for handle in handles:
                handle.remove()
        self._permanent = {}
        self._forget()

    def paused(self) -> _Paused:
        """Within, calls are not heard: they are the watch's own."""
        return _Paused(self)

    def around(self, run: Callable[..., Any], observed: Callable[..., Any]) -> Callable[..., Any]:
        """A function that calls `run`, heard as a call of the model, and from now on nothing else is.

        observed: what is looked at.
        """
        self._is_told = True

        def called(*args: Any, **kwargs: Any) -> Any:
            call = self._tried(self._enter, observed, args, kwargs) if torch.is_grad_enabled() else None
            self._depth += 1
            try:
                out = run(*args, **kwargs)
            finally:
                self._depth -= 1
            if call is not None:
                self._tried(self._left, call, out)
            return out

        return called

    def _tried(self, what: Callable[..., Any], *args: Any) -> Any:
        try:
            return what(*args)
        except Exception as error:
            self.failed(error)
            return None

    def _hook(self, module: nn.Module) -> list[Any]:
        hooks = _Hook(self, "_before"), _Hook(self, "_after")
        hooks[0].handle = module.register_forward_pre_hook(hooks[0], with_kwargs=True)
        hooks[1].handle = module.register_forward_hook(hooks[1], with_kwargs=True, always_call=True)
        return [hook.handle for hook in hooks]

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_paused:
            return
        self._depth += 1
        if self._depth == 1 and self._trains(module) and torch.is_grad_enabled():
            run = self._model if module is self._given else module
            is_heard = self._enter(run, args, kwargs) is not None
            # its fast path in evaluation asks for hooks
            if is_heard and not isinstance(module, nn.TransformerEncoderLayer):
                self._permanent.setdefault(id(module), [])  # hooks come after this step

    def _trains(self, module: nn.Module) -> bool:
        if module.training:
            self._is_in_evaluation = False  # from now on evaluation is what it says
        return module.training or self._is_in_evaluation

    def _after(self, module: nn.Module, args: Any, kwargs: Any, out: Any = None) -> None:
        if self._is_paused:
            return
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0 and self.seen and torch.is_grad_enabled():
            run = self._model if module is self._given else module
            if self.seen[-1].run is run:
                self._left(self.seen[-1], out)

    def settle(self) -> None:
        """After a step: forget its calls; modules found to be called from outside are heard from now on."""
        self._forget()
        self._depth = 0
        if any(not handles for handles in self._permanent.values()) and not self._window:
            known = {id(module): module for module in [self._given, *self._model.modules()]}
            for number, handles in self._permanent.items():
                if not handles and number in known:
                    handles += self._hook(known[number])

    def _enter(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        if self._is_paused or not self._is_on or torch.compiler.is_compiling():
            return None
        random: list[Tensor] = []
        if self.is_kept:
            random = [torch.get_rng_state()]
            if torch.cuda.is_initialized():
                random += torch.cuda.get_rng_state_all()
        call = Call(run, (args, kwargs), random)
        if self.is_looked_at:
            self._entered(call)
        self.seen.append(call)
        self._held += call.bytes
        while len(self.seen) > MOST_KEPT or (len(self.seen) > 1 and self._held > MOST_BYTES):
            self._held -= self.seen.popleft().bytes
        return call

    def _forget(self) -> None:
        self.seen.clear()
        self._held = 0

    def _left(self, call: Call, out: Any) -> None:
        """Keep the gradients of results that are not large, and a loss if that is among them."""
        if not self.is_kept or out is None:
            return
        found = tensors(out) or tensors(list(getattr(out, "__dict__", {}).values()))
        call.loss = _loss_in(out)
        for place, tensor in enumerate(found):
            if not tensor.requires_grad or tensor.is_leaf:
                continue  # a weight that is given back would keep the hook
            if tensor.numel() * tensor.element_size() <= MOST_GRADIENT:
                tensor.register_hook(_keep(call, place))  # pyright: ignore[reportUnknownMemberType]


def _loss_in(out: Any) -> Tensor | None:
    """What is called "loss" in a result, or is all of it: no other number need be one."""
    found = out if isinstance(out, Tensor) else None
    if found is None:
        found = (
            cast("dict[str, Any]", out).get("loss") if isinstance(out, dict) else getattr(out, "loss", None)
        )
    if isinstance(found, Tensor) and found.dim() == 0 and found.requires_grad:
        return found.detach()
    return None


def _keep(call: Call, place: int) -> Callable[[Tensor], None]:
    def hook(grad: Tensor) -> None:
        call.gradients[place] = grad

    return hook


class _Paused:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        self._was = self._calls._is_paused  # pyright: ignore[reportPrivateUsage]
        self._calls._is_paused = True  # pyright: ignore[reportPrivateUsage]

    def __exit__(self, *_: object) -> None:
        self._calls._is_paused = self._was  # pyright: ignore[reportPrivateUsage]


class _Hook:
    """A hook that a copy of the model (an average of weights, a file) does not take along.

    It goes when nobody holds the watch any more, and lets nothing that fails here end a training.
    """

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls, self._name = weakref.ref(calls), name
        self.__name__ = self.__qualname__ = name  # torch.jit and torch.export ask for it
        self.handle: Any = None

    def __call__(self, *args: Any) -> None:
        calls = self._calls()
        if calls is None:
            self.handle.remove()
            return
        try:
            getattr(calls, self._name)(*args)
        except Exception as error:
            calls.failed(error)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return nothing

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return no_hook, ()


def nothing(*_: object) -> None:
    """What stands in place of a hook in a copy of the model."""


def no_hook() -> Callable[..., None]:
    """What a hook becomes in a file."""
    return nothing


def _is_compiled(module: nn.Module) -> bool:
    return isinstance(getattr(module, "_orig_mod", None), nn.Module) or _is_compiled_in_place(module)


def _is_compiled_in_place(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None
