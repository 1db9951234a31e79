"""Settings with their types; the refusals themselves are seen in test_load.py."""

from __future__ import annotations

import pytest

from headwise.checkpoint.foreign.options import Options, activation_name, labels
from headwise.errors import RunError


def options(**values: object) -> Options:
    return Options("config.json", values, "BertModel")


def test_a_setting_left_out_or_null_has_the_default() -> None:
    for given in (options(), options(a=None)):
        assert given.integer("a", 3) == 3
        assert given.number("a", 0.5) == 0.5
        assert given.flag("a", True) is True
        assert given.text("a", "x") == "x"
        assert given.section("a") == {}
        assert given.words("a", 2) == []
        given.only("a", 5, "never asked")
    assert options().optional("a", 3) == 3
    assert options(a=None).optional("a", 3) is None  # here null is a value


def test_a_setting_has_its_value() -> None:
    given = options(a=2, b=1, c=False, d="gelu_new", e=["x", "y"], pad_token_id=-1, num_labels=4)
    assert given.integer("a", 3) == given.optional("a") == 2
    assert given.number("b", 0.5) == 1.0 and isinstance(given.number("b", 0.5), float)
    assert given.flag("c", True) is False
    assert given.activation("d", "relu") == "gelu-tanh"
    assert given.words("e", 2) == ["x", "y"]
    assert given.pad_id is None and given.num_classes == 4
    assert options(id2label={"0": "x", "1": "y", "2": "z"}, num_labels=4).num_classes == 3
    assert options(pad_token_id=3).pad_id == 3


def test_zero_is_not_false() -> None:
    with pytest.raises(RunError, match="a must be false: got 0; no"):
        options(a=0).only("a", False, "no")


@pytest.mark.parametrize(
    ("architecture", "is_body"),
    [("GPT2Model", True), ("GPT2LMHeadModel", False), ("MarianMTModel", False), ("BertForMaskedLM", False)],
)
def test_a_body_is_known_by_its_class(architecture: str, is_body: bool) -> None:
    assert Options("", {}, architecture).is_body is is_body


def test_names_go_there_and_back() -> None:
    assert [activation_name(a) for a in ("relu", "gelu", "gelu-tanh", "silu")] == [
        "relu",
        "gelu",
        "gelu_new",
        "silu",
    ]
    assert labels(None) == {}
    assert labels(2, ["a", "b"]) == {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}
    assert labels(2) == {
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    }
