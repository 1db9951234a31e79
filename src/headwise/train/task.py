"""What a run learns: all that the training loop needs to know of it, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headwise.checkpoint.build import Trainable

Watch = Literal["loss", "bleu", "accuracy"]


@runtime_checkable
class Validation(Protocol):
    """What a validation found; loss in nats a target."""

    @property
    def loss(self) -> float:
        """Nats a target, without label smoothing."""
        ...

    @property
    def samples(self) -> Sequence[str]:
        """Lines that show what the model does."""
        ...

    def metrics(self, prefix: str) -> dict[str, float]:
        """The numbers by name."""
        ...

    def summary(self) -> str:
        """One line."""
        ...

    def watched(self, name: Watch) -> float:
        """The number that has to improve, turned so that lower is better."""
        ...


@dataclass(frozen=True)
class Shown:
    """A few rows of a batch, as somebody who examines the model wants them.

    inputs: what the model is called with. targets: what it should say. loss: of its answer and the targets.
    """

    inputs: tuple[Any, ...]
    targets: Tensor
    loss: Callable[..., Tensor]
    kind: Literal["encoder-decoder", "encoder", "decoder"]
    pad_id: int | None


class Task(ABC):
    """One kind of learning: its data, its model, its loss, its validation.

    forward: the costly part of the model in training; the loop may put a compiled one in its place.
    """

    unit = "tok"  # what is counted: targets, in the progress line

    forward: Callable[..., Tensor]

    @abstractmethod
    def make_model(self) -> Trainable:
        """A model as it starts; draws from torch's random state. Called once."""

    @abstractmethod
    def summary(self) -> str:
        """One line: how much there is to learn from."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes with the data: a run goes on only with those it began with."""

    @abstractmethod
    def epoch(self, number: int) -> Sequence[npt.NDArray[np.int64]]:
        """The batches of an epoch, each an array of rows; the same for the same number."""

    @abstractmethod
    def batch(self, rows: npt.NDArray[np.int64]) -> Any:
        """These rows as tensors."""

    @abstractmethod
    def targets(self, batch: Any) -> int:
        """How many targets a batch has: the loss of a step is their mean."""

    @abstractmethod
    def loss(self, batch: Any, divisor: float) -> Tensor:
        """The summed loss of a batch over divisor, in nats; may draw from torch's random state."""

    @abstractmethod
    def validate(self) -> Validation:
        """Measure the model on data that it does not learn from, in evaluation mode, drawing nothing."""

    @abstractmethod
    def shown(self, rows: npt.NDArray[np.int64]) -> Shown:
        """A few rows for whoever examines the model before it learns."""
