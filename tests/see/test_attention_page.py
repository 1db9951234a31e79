"""The attention page without a browser: what it holds, its size, and that it loads and runs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch

from attention_samples import HOSTILE, SOURCE, TARGET, causal, deep, layer, stack, translation
from headwise.see import attention_page
from headwise.see.attention import Attention
from headwise.see.attention_page import fragment, to_html, token_name
from headwise.see.heads import rollout
from headwise.see.stacks import Stack


class Reader(HTMLParser):
    """The tags of a page, and the text of its elements by id or tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.held: dict[str, str] = {}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.held[self._open] = self.held.get(self._open, "") + data


def data_of(attention: Attention) -> dict[str, Any]:
    return json.loads(Reader(to_html(attention)).held["hw-data"])


def weights_of(told: dict[str, Any], number: int) -> np.ndarray:
    """What a reader of the page sees of a stack, [maps, Tq, Tk]; NaN for what is no weight."""
    held = told["stacks"][number]
    high, low = (np.frombuffer(zlib.decompress(base64.b64decode(held[p])), np.uint8) for p in ("high", "low"))
    nibbles = np.stack([low >> 4, low & 15], 1).flatten()[: len(high)]
    texts = [label if label[0].isdigit() else "nan" for label in told["labels"]]
    numbers = np.array(list(map(float, texts)))
    numbers[1] = 0  # less than can be told apart
    shape = (len(held["maskOf"]), len(held["queries"]), len(held["keys"]))
    return numbers[high.astype(int) << 4 | nibbles].reshape(shape)


def keep_of(told: dict[str, Any], number: int, which: int) -> np.ndarray:
    held = told["stacks"][number]
    shape = (len(held["queries"]), len(held["keys"]))
    if held["maskOf"][which] < 0:
        return np.ones(shape, bool)
    bits = np.frombuffer(zlib.decompress(base64.b64decode(held["masks"][held["maskOf"][which]])), np.uint8)
    return np.unpackbits(bits)[: shape[0] * shape[1]].astype(bool).reshape(shape)


def test_law_weights_and_masks_come_back() -> None:
    attention = translation()
    told = data_of(attention)
    for number, held in enumerate(attention.stacks):
        weights = weights_of(told, number)
        expected: list[torch.Tensor] = []
        keeps: list[torch.Tensor] = []
        reached = rollout(held) if held.kind != "cross" else []
        for place, each in enumerate(held.layers):
            expected += [*each.weights, each.weights.mean(0), *reached[place : place + 1]]
            keeps += [each.keep[0]] * (each.weights.size(0) + 1)
            # along the residual connection each token reaches itself
            own = torch.eye(*each.keep.shape[1:], dtype=torch.bool)
            keeps += [each.keep[0] | own] if reached else []
        expected.append(torch.stack([each.weights.mean(0) for each in held.layers]).mean(0))
        keeps.append(held.layers[0].keep[0])
        exact = torch.stack(expected).double().numpy()
        assert weights.shape == exact.shape
        assert np.abs(weights - exact).max() <= 5e-4 * 1.001
        large = exact >= 1e-4
        assert (np.abs(weights - exact)[large] / exact[large]).max() <= 0.5e-2 * 1.001
        for which, keep in enumerate(keeps):
            assert keep_of(told, number, which).tolist() == keep.tolist()


def test_rollout_may_go_along_every_path() -> None:
    names = tuple("abcd")
    band = causal(4) & causal(4).transpose(1, 2).roll(1, 1)  # itself and the token before
    band[0, 0, 0] = True
    held = Stack("self", (layer(0, band, 1), layer(1, band, 1)), names, names, ("read", "reading"))
    told = data_of(Attention((held,), "band"))
    for which in (2, 5):
        reachable = keep_of(told, 0, which)
        assert (weights_of(told, 0)[which] > 0).tolist() == reachable.tolist()
    assert keep_of(told, 0, 5)[2, 0] and not keep_of(told, 0, 2)[2, 0]


def test_a_layer_tells_its_name_its_line_and_its_heads() -> None:
    attention = translation()
    told = data_of(attention)["stacks"][0]["layers"][1]
    assert told["name"] == "blocks.1.attention"
    assert told["place"].endswith(f"attention_samples.py:{attention.stacks[0].layers[1].line}")
    assert told["code"] == "weights = scores.masked_fill(~keep, -torch.inf).softmax(-1).nan_to_num()"
    assert [head["state"] for head in told["heads"]] == ["", "uniform", "dead", ""]
    assert "token 1 (zwei)" in told["heads"][2]["note"]


def test_the_policy_allows_this_script_and_style_alone() -> None:
    read = Reader(to_html(translation()))
    policy = next(a["content"] for _, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    for part in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(read.held[part].encode()).digest()).decode()
        assert f"{part}-src 'sha256-{digest}'" in str(policy)
    assert str(policy).startswith("default-src 'none'; ")
    assert not re.search(r"\binnerHTML\b|insertAdjacentHTML|\beval\(|document\.write", read.held["script"])


def test_nothing_is_loaded() -> None:
    page = to_html(translation())
    outside = set(re.findall(r"https?://[^\s\"']+|\burl\(|@import|\bfetch\(|\bimport\(", page))
    assert outside == {"http://www.w3.org/2000/svg"}, "a namespace is a name, all else is a load"
    attributes = {name for _, attributes in Reader(page).tags for name in attributes}
    assert not attributes & {"src", "href", "srcset", "style", "onload", "onerror", "onclick"}


def test_markup_in_the_users_text_stays_text() -> None:
    queries = [HOSTILE, "a & b", "'\"", *TARGET[3:]]
    held = translation(SOURCE, queries)
    named = replace(held.stacks[2].layers[0], name=HOSTILE)
    cross = replace(held.stacks[2], layers=(named, *held.stacks[2].layers[1:]), axes=(HOSTILE, HOSTILE))
    attention = Attention((cross,), HOSTILE, (HOSTILE,))
    read, plain = Reader(to_html(attention)), Reader(to_html(translation()))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in plain.tags]
    told = json.loads(read.held["hw-data"])["stacks"][0]
    assert told["queries"] == queries and told["axes"] == [HOSTILE, HOSTILE]
    assert told["layers"][0]["name"] == HOSTILE and read.held["bdi"] == HOSTILE


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("dogs", "dogs"),
        (" dogs", "\u2423dogs"),
        ("a b ", "a b\u2423"),
        ("", '""'),
        (" ", "\u2423"),
        ("  ", "\u2423\u2423"),
        ("a\nb", "a\\nb"),
        ("\u202eabc", "\\u202eabc"),
        ("\u200b", "U+200B"),
        (" \u200b", "\u2423U+200B"),
        ("\u0301", "U+0301"),
        ("\u4e24\u53ea", "\u4e24\u53ea"),
        ("\u0928\u0940\u200d", "\u0928\u0940\u200d"),
    ],
)
def test_nothing_in_a_name_is_invisible(name: str, shown: str) -> None:
    assert token_name(name) == shown


def test_what_is_no_weight_is_told() -> None:
    held = stack("self", "abc", "abc", layers=1)
    held.layers[0].weights[1, 0, 0] = float("nan")
    told = data_of(Attention((held,), "broken"))
    assert np.isnan(weights_of(told, 0)[1, 0, 0]) and not np.isnan(weights_of(told, 0)[0]).any()
    head = told["stacks"][0]["layers"][0]["heads"][1]
    assert head["entropy"] is None and "NaN" in head["note"]


def test_stacks_of_one_kind_are_told_apart() -> None:
    held = Attention(
        (stack("self", "abc", "abc"), stack("self", "ab", "ab"), stack("cross", "ab", "abc")), ""
    )
    told = data_of(held)["stacks"]
    assert [each["slug"] for each in told] == ["self-1", "self-2", "cross"]
    assert [each["title"] for each in told] == ["Self-attention 1", "Self-attention 2", "Cross-attention"]


def test_layers_may_differ_in_heads() -> None:
    keep = causal(4)
    held = Stack(
        "self", (layer(0, keep, 1), layer(1, keep, 3)), tuple("abcd"), tuple("abcd"), ("read", "reading")
    )
    told = data_of(Attention((held,), "uneven"))
    assert len(told["stacks"][0]["maskOf"]) == 1 + 2 + 3 + 2 + 1
    assert len(told["stacks"][0]["masks"]) == 1, "equal masks are written once"


def test_twelve_layers_of_twelve_heads_over_128_tokens_take_less_than_5_mb() -> None:
    page = to_html(deep(12, 12, 128))
    assert len(page.encode()) < 5_000_000


def test_very_many_weights_take_8_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_page, "MANY", 100)
    told = data_of(translation())
    assert "rounded to two digits" in told["precision"] and len(told["labels"]) <= 256
    assert {each["low"] for each in told["stacks"]} == {""}


def test_in_a_notebook_the_page_is_in_a_frame_of_its_own() -> None:
    attention = translation([HOSTILE, *SOURCE[1:]])
    (tag, attributes), *others = Reader(fragment(attention)).tags
    assert tag == "iframe" and not others
    assert attributes["sandbox"] == "allow-scripts", "its script reaches nothing of the notebook"
    assert attributes["srcdoc"] == to_html(attention)
