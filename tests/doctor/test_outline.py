"""Which class uses which, and which functions return a model, as the source says."""

from __future__ import annotations

import sys
import types
from pathlib import Path

from doctor import subject_files
from headwise.doctor.outline import Outline

SOURCE = """
from torch.nn import Linear


class Norm(nn.Module): ...
class Layer(nn.Module):
    def __init__(self):
        self.norm = make_norm()
def make_norm() -> nn.Module:
    return Norm()
class Base(nn.Module): ...
class Model(Base):
    def __init__(self):
        self.layers = layers(3)
def layers(n):
    return [Layer() for _ in range(n)]
class Loss(nn.Module): ...
class Config: ...
Alias = Model

def build():
    model = Model()
    return model
def on_device():
    return Model().to("cpu").eval()
def annotated(x) -> Model: ...
def torchs():
    return nn.Sequential(Linear(1, 1))
def train():
    model = Model()
    return 3
def number() -> int: ...
"""


def outline(folder: Path, source: str = SOURCE) -> Outline:
    return Outline(subject_files.module_of(subject_files.write(folder, source)))


def test_the_outermost_classes_are_those_that_no_class_uses(tmp_path: Path) -> None:
    found = outline(tmp_path)
    assert found.classes == ["Norm", "Layer", "Base", "Model", "Loss"]
    assert found.outermost() == ["Model", "Loss"]


def test_factories_return_models_and_serve_no_class(tmp_path: Path) -> None:
    assert outline(tmp_path).factories() == ["build", "on_device", "annotated", "torchs"]


def test_a_module_without_source_has_no_outline() -> None:
    empty = types.ModuleType("empty")
    found = Outline(empty)
    assert found.classes == found.outermost() == found.factories() == []
    assert "empty" not in sys.modules
