"""The subject of a file, in the order of least help from its author."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from doctor import subject_files
from doctor.subject_files import MODEL, SUBJECT
from headwise.doctor.finding import Discovered, discover
from headwise.errors import DataError

BUILD = "\ndef build_model():\n    return Model(vocab=33)\n"
INSTANCE = "\nmodel = Model(vocab=44)\n"


def found(folder: Path, *parts: str, name: str | None = None) -> Discovered:
    return discover(subject_files.module_of(subject_files.write(folder, *parts)), name, "my_model.py")


def vocab(discovered: Discovered) -> int:
    return discovered.subject.model.head.out_features


def test_subject_comes_before_all(tmp_path: Path) -> None:
    discovered = found(tmp_path, MODEL, SUBJECT, BUILD, INSTANCE)
    assert vocab(discovered) == 21 and discovered.subject.kind == "encoder" and discovered.assumed == {}


def test_then_a_factory_then_a_model_then_a_class(tmp_path: Path) -> None:
    discovered = found(tmp_path, MODEL, BUILD, INSTANCE)
    assert vocab(discovered) == 33 and discovered.assumed == {"model": "build_model()"}
    discovered = found(tmp_path, MODEL, INSTANCE)
    assert vocab(discovered) == 44 and discovered.assumed == {"model": "model"}
    discovered = found(tmp_path, MODEL)
    assert vocab(discovered) == 21 and discovered.assumed == {"model": "Model()"}
    assert discovered.subject.inputs is None


@pytest.mark.parametrize(
    ("name", "size"), [("subject", 21), ("build_model", 33), ("model", 44), ("Model", 21), ("Nest.build", 55)]
)
def test_a_name_is_taken_at_its_word(name: str, size: int, tmp_path: Path) -> None:
    nest = "\nclass Nest:\n    @staticmethod\n    def build():\n        return Model(55)\n"
    assert vocab(found(tmp_path, MODEL, SUBJECT, BUILD, INSTANCE, nest, name=name)) == size


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("biuld", "my_model.py has no biuld; did you mean build"),
        ("zzz", "my_model.py has no zzz; it has "),
        ("Block", r"Block needs arguments \(width\)"),
        ("number", "number must give a model, or a dict with one: got int"),
    ],
)
def test_a_name_that_gives_no_model_is_refused(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        found(tmp_path, MODEL, "\nnumber = 3\ndef build():\n    return Model()\n", name=name)


def test_the_only_function_that_returns_a_model_is_a_factory_whatever_its_name(tmp_path: Path) -> None:
    mine = "\ndef nanobot():\n    net = Model(vocab=66)\n    return net\n"
    discovered = found(tmp_path, MODEL, mine, "\ndef main():\n    raise SystemExit(1)\n")
    assert vocab(discovered) == 66 and discovered.assumed == {"model": "nanobot()"}
    two = found(tmp_path, MODEL, mine, "\ndef other():\n    return Model(77)\n")
    assert vocab(two) == 21 and two.assumed == {"model": "Model()"}


def test_no_other_function_is_called(tmp_path: Path) -> None:
    found(tmp_path, MODEL, "\ndef train():\n    raise SystemExit('trained')\n")


CONFIG = """
from dataclasses import dataclass

@dataclass
class Config:
    vocab: int = 29

class Other:
    pass

class Configured(Model):
    def __init__(self, cfg{annotation}):
        super().__init__(cfg.vocab)
"""


@pytest.mark.parametrize("annotation", ["", ": Config", ": 'Config'"])
def test_a_configuration_with_defaults_is_made(annotation: str, tmp_path: Path) -> None:
    discovered = found(tmp_path, MODEL, CONFIG.format(annotation=annotation))
    assert vocab(discovered) == 29 and discovered.assumed == {"model": "Configured(Config())"}


def test_a_configuration_at_hand_is_taken(tmp_path: Path) -> None:
    discovered = found(tmp_path, MODEL, CONFIG.format(annotation=""), "\nconfig = Config(vocab=31)\n")
    assert vocab(discovered) == 31 and discovered.assumed == {"model": "Configured(config)"}


def test_classes_without_parameters_are_no_models_and_others_are_told_of(tmp_path: Path) -> None:
    more = "\nclass Loss(nn.Module):\n    pass\ncriterion = nn.CrossEntropyLoss()\n"
    discovered = found(tmp_path, MODEL, more)
    assert vocab(discovered) == 21
    assert discovered.notes == ("my_model.py also defines Loss, which no class uses; not examined",)


def test_of_several_models_the_one_called_model_or_the_largest(tmp_path: Path) -> None:
    several = "\nsmall = Model(vocab=22)\nlarge = Model(vocab=99)\n"
    discovered = found(tmp_path, MODEL, several)
    assert vocab(discovered) == 99
    assert discovered.notes == ("of the models large, small in my_model.py, large was examined",)
    assert vocab(found(tmp_path, MODEL, several, INSTANCE)) == 44


def test_what_stands_beside_a_model_belongs_to_it(tmp_path: Path) -> None:
    beside = (
        "\ninputs = torch.zeros(2, 3, dtype=torch.long)\ntargets = inputs + 1\npad_id = 0\n"
        "criterion = nn.CrossEntropyLoss()\noptimizer = torch.optim.Adam(model.parameters())\n"
        "stranger = torch.optim.Adam(nn.Linear(1, 1).parameters())\n"
    )
    subject = found(tmp_path, MODEL, INSTANCE, beside).subject
    assert isinstance(subject.inputs, torch.Tensor) and subject.targets.sum() == 6
    assert isinstance(subject.loss, nn.CrossEntropyLoss) and subject.pad_id == 0
    assert subject.optimizer is not None and subject.optimizer.param_groups[0]["params"][0].size(0) == 44
    alone = found(tmp_path, MODEL, INSTANCE, beside.replace("\ninputs", "\nxs").replace("inputs +", "xs +"))
    assert alone.subject.inputs is alone.subject.targets is alone.subject.loss is None
    loss_value = found(tmp_path, MODEL, INSTANCE, beside, "\nloss = targets.float().mean()\n").subject.loss
    assert isinstance(loss_value, nn.CrossEntropyLoss)  # the value of a loss is none


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "x = 1\n",
            r"found no nn.Module, no function that returns one and no subject\(\); add a function",
        ),
        (
            "class A(nn.Module):\n    def __init__(self, d, heads): ...\n",
            r"found the class A\(d, heads\), which cannot be built without arguments",
        ),
        (
            "class A(nn.Module):\n    def __init__(self, d): ...\n"
            "class B(nn.Module):\n    def __init__(self, *, vocab): ...\n",
            r"found the classes A\(d\), B\(vocab\), but none can be built without arguments",
        ),
        ("def build(size): ...\n", r"found build\(size\), which needs arguments"),
        (
            "class A(nn.Module):\n    def __init__(self):\n        raise ValueError('no')\n",
            r"building A\(\) failed: ValueError: no, at .*my_model.py:5 in A.__init__; to build it",
        ),
    ],
)
def test_what_is_missing_is_asked_for(source: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        found(tmp_path, source)
