"""What the doctor is given: a model, a batch, and whatever else the user can tell about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["decoder", "encoder", "encoder-decoder"]
KINDS: tuple[Kind, ...] = ("decoder", "encoder", "encoder-decoder")
Layout = Literal["batch-first", "time-major"]


@dataclass(frozen=True)
class Subject:
    """A model and one example batch, with what the user can tell about them.

    model: the module, or any callable that holds modules.
    inputs: a tensor, a tuple of them, or a dict of keyword arguments. Token ids are integer [B, T].
    call: callable(model, *inputs) -> output, for forwards that want masks made for them.
    kind: "decoder" (causal), "encoder", "encoder-decoder"; where None, shifted targets, `generate` or a
        second input decide, and where nothing decides the checks that need it are not applicable.
    pad_id: the id that fills rows up, None where there is none.
    targets: what the loss compares the output with; loss: callable(output, targets) -> scalar. Where the
        inputs hold labels and the output a loss of them, both are found.
    optimizer: made with the model's parameters; a wrapper that holds one and has a `step` will do.
    generate: callable(model, prompt_ids, n_new) -> ids [B, T + n_new].
    train_step: callable(model, optimizer, batch) -> loss, the user's own step; batch is (inputs, targets).
    layout: "batch-first" or "time-major" ids; None: told from the data, batch-first where nothing tells.
    """

    model: Any
    inputs: Any
    call: Callable[..., Any] | None = None
    kind: Kind | None = None
    pad_id: int | None = None
    targets: Any = None
    loss: Callable[..., Any] | None = None
    optimizer: Any = None
    generate: Callable[..., Any] | None = None
    train_step: Callable[..., Any] | None = None
    layout: Layout | None = None
    name: str = ""
    notes: tuple[str, ...] = field(default=())
