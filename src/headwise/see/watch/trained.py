"""What of a model is trained now: its layers, their sizes, and the guard of their gradients."""

from __future__ import annotations

from torch import nn

from headwise.see.watch.layers import Layer, Sizes, layers_of
from headwise.see.watch.nonfinite import Guard


class Trained:
    """The layers of a model as they are now; known anew when other weights are trained."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._ids: set[int] | None = None
        self.layers: list[Layer] = []
        self.sizes = Sizes([])
        self.guard = Guard([])
        self.know()

    @property
    def is_known(self) -> bool:
        """Have all weights a size? Lazy ones do after their first pass."""
        return self._ids is not None

    def know(self) -> bool:
        """Look which weights are trained; were these others than before?"""
        ids = {id(p) for p in self._model.parameters() if p.requires_grad}
        if ids == self._ids or any(nn.parameter.is_lazy(p) for p in self._model.parameters()):
            return False
        self._ids = ids
        self.layers = layers_of(self._model)
        self.sizes = Sizes(self.layers)
        self.guard = Guard([p for layer in self.layers for _, p in layer.parameters])
        return True

    @property
    def names(self) -> list[str]:
        """The paths of the layers."""
        return [layer.name for layer in self.layers]
