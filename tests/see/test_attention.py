"""Whatever kernel a model uses, its own weights are shown, head by head, and it comes back as it was."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import headwise
from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model.encoder_decoder import AttentionMaps, EncoderDecoder
from headwise.model.masks import causal_keep
from headwise.see.attention import Attention, attention
from headwise.see.one_row import check_row
from headwise.see.stacks import Stack

B, T, H, DH, V = 3, 6, 4, 4, 20
PAD = 0
IDS = torch.tensor([[3, 7, 1, 9, 4, 2], [5, 2, 8, PAD, PAD, PAD], [6, 11, 2, 3, 8, PAD]])
ROW = 1


def agree(found: Tensor, expected: Tensor) -> None:
    """To rounding; and the heads stand in their order, which a permutation shows."""
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    if found.size(0) > 1:
        with pytest.raises(AssertionError):
            torch.testing.assert_close(found.roll(1, 0), expected, atol=1e-3, rtol=0)


def of(found: Attention, kind: str) -> Stack:
    (stack,) = (stack for stack in found.stacks if stack.kind == kind)
    return stack


class Written(nn.Module):
    """One attention, written by `mix`; what it mixed is kept."""

    def __init__(self, mix: Callable[[Tensor, Tensor, Tensor], Tensor], kv_heads: int = H) -> None:
        super().__init__()
        self.table, self.kv_heads, self.mix = nn.Embedding(V, H * DH), kv_heads, mix
        self.project = nn.Linear(H * DH, (H + 2 * kv_heads) * DH)

    def parts(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads = self.project(2 * self.table(ids)).unflatten(-1, (-1, DH)).transpose(1, 2)
        q, k, v = heads.split([H, self.kv_heads, self.kv_heads], dim=1)
        return q, k, v

    def forward(self, ids: Tensor) -> Tensor:
        return self.mix(*self.parts(ids)).transpose(1, 2).flatten(2)

    def expected(self, ids: Tensor, row: int, keep: Tensor | None = None) -> Tensor:
        q, k, _ = (part[row].double() for part in self.parts(ids))
        scores = q @ k.repeat_interleave(H // self.kv_heads, 0).mT / DH**0.5
        scores = scores if keep is None else scores.masked_fill(~keep, -torch.inf)
        return scores.softmax(-1).float().detach()


CAUSAL = causal_keep(T)[0, 0]


def softmax(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mT / DH**0.5).softmax(-1)


def folded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (part.reshape(-1, T, DH) for part in (q, k, v))
    return torch.bmm(softmax(q, k), v).unflatten(0, (-1, H))


def heads_before_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return folded(*(part.transpose(0, 1) for part in (q, k, v))).reshape(H, -1, T, DH).transpose(0, 1)


def queries_below_each_other(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (softmax(q.flatten(1, 2), k[:, 0]) @ v[:, 0]).unflatten(1, (H, T))


def a_head_at_a_time(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.stack([softmax(q[:, h], k[:, h]) @ v[:, h] for h in range(H)], 1)


def exp_and_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / DH**0.5
    top = (scores - scores.amax(-1, keepdim=True)).exp()
    return torch.einsum("bhij,bhjd->bhid", top / top.sum(-1, keepdim=True), v)


def flex_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, T, T, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)  # type: ignore[return-value]


WAYS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], int, Tensor | None]] = {
    "kernel": (F.scaled_dot_product_attention, H, None),
    "kernel, causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), H, CAUSAL),
    "kernel, mask": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, CAUSAL), H, CAUSAL),
    "kernel, grouped": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), 2, None),
    "grouped by hand": (lambda q, k, v: folded(q, *(x.repeat_interleave(2, 1) for x in (k, v))), 2, None),
    "folded": (folded, H, None),
    "heads before rows": (heads_before_rows, H, None),
    "queries below each other": (queries_below_each_other, 1, None),
    "a head at a time": (a_head_at_a_time, H, None),
    "exp and sum": (exp_and_sum, H, None),
    "flex": (flex_attention, H, None),  # type: ignore[dict-item]
    "flex, causal": (flex_causal, H, CAUSAL),
}


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_it_gives_the_same_maps(way: str) -> None:
    mix, kv_heads, keep = WAYS[way]
    model = Written(mix, kv_heads)
    (stack,) = attention(model, IDS, row=ROW).stacks
    (layer,) = stack.layers
    agree(layer.weights, model.expected(IDS, ROW, keep))
    assert torch.equal(layer.keep, torch.ones(1, T, T, dtype=torch.bool) if keep is None else keep[None])
    assert stack.kind == "self" and stack.queries == stack.keys == ("5", "2", "8", "0", "0", "0")
    assert layer.weights.dtype == torch.float32 and layer.file == __file__ and layer.line > 0
    # the wrong twin: another row
    assert not torch.allclose(layer.weights, model.expected(IDS, 0, keep), atol=1e-3)


def test_a_model_that_takes_no_other_number_of_rows_shows_the_row_of_its_batch() -> None:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return heads_before_rows(q, k, v).reshape(B, H, T, DH)

    model = Written(mix)
    found = attention(model, IDS, row=ROW)
    agree(found.stacks[0].layers[0].weights, model.expected(IDS, ROW))
    assert found.notes == ("the model does not run on one row alone, so the whole batch ran",)


def test_windows_are_put_together_and_masked_outside() -> None:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cut = (part.unflatten(2, (2, T // 2)) for part in (q, k, v))
        return F.scaled_dot_product_attention(*cut).flatten(2, 3)

    model = Written(mix)
    (layer,) = attention(model, IDS, row=ROW).stacks[0].layers
    block = torch.block_diag(torch.ones(3, 3), torch.ones(3, 3)).bool()
    agree(layer.weights, model.expected(IDS, ROW, block))
    assert torch.equal(layer.keep[0], block)


@pytest.mark.parametrize("form", ["batch first", "time major", "time major, not told", "without a batch"])
def test_torchs_own_layer_agrees_in_every_layout(form: str) -> None:
    is_first = form in ("batch first", "without a batch")
    layer = nn.MultiheadAttention(16, H, batch_first=is_first)
    x = torch.randn(2, 5, 16)
    given = x if form == "batch first" else x[0] if form == "without a batch" else x.transpose(0, 1)
    row = 0 if form == "without a batch" else 1

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, x, x, need_weights=False)[0]

    layout: Any = "time-major" if form == "time major" else None
    found = attention(Alone(), given, row=row, layout=layout)
    _, expected = (
        layer(x, x, x, average_attn_weights=False)
        if is_first
        else layer(given, given, given, average_attn_weights=False)
    )
    agree(found.stacks[0].layers[0].weights, expected[row].detach())
    assert bool(found.notes) == (form == "time major, not told")
    assert found.stacks[0].layers[0].name == "layer"


def test_our_own_model_agrees_with_its_maps() -> None:
    shape = ModelConfig(
        d_model=16, num_heads=H, num_kv_heads=2, d_ff=32, num_encoder_layers=2, num_decoder_layers=3
    )
    model = EncoderDecoder(shape.with_vocabulary(V, PAD)).eval()
    target = torch.randint(1, V, (B, 5))
    maps = AttentionMaps()
    with torch.no_grad():
        model(IDS, target, maps)
    found = attention(model, (IDS, target), row=ROW, pad_id=PAD)
    assert [stack.kind for stack in found.stacks] == ["encoder", "decoder", "cross"]
    for kind, expected in (("encoder", maps.encoder), ("decoder", maps.decoder), ("cross", maps.cross)):
        stack = of(found, kind)
        assert len(stack.layers) == len(expected)
        for layer, weights in zip(stack.layers, expected, strict=True):
            agree(layer.weights, weights[ROW])
    real = torch.tensor([True] * 3 + [False] * 3)
    assert torch.equal(of(found, "cross").layers[0].keep, real.expand(1, 5, 6))
    assert torch.equal(of(found, "decoder").layers[0].keep, causal_keep(5)[0])


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["Bert", "Llama", "T5"])
def test_transformers_models_agree_whatever_kernel_they_use(name: str, kernel: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": V, "num_attention_heads": H, "num_hidden_layers": 2, "pad_token_id": PAD}
    wide = {**sizes, "hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": 16}
    settings = {
        "Bert": wide,
        "Llama": {**wide, "num_key_value_heads": 2},
        "T5": {"vocab_size": V, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": H},
    }[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings, attn_implementation=kernel)
    model = getattr(transformers, f"{name}Model")(config)
    for parameter in model.parameters():  # as drawn, all heads are nearly uniform
        parameter.data.mul_(4)
    inputs = {"input_ids": IDS, "attention_mask": (IDS != PAD).long()}
    if name == "T5":
        inputs["decoder_input_ids"] = torch.randint(1, V, (B, 4))
    found = attention(model, inputs, row=ROW)
    eager = copy.deepcopy(model).eval()
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        out = eager(**inputs, output_attentions=True)
    wanted = (
        {"self": "attentions"}
        if name != "T5"
        else {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    )
    assert [stack.kind for stack in found.stacks] == list(wanted)
    for kind, attribute in wanted.items():
        expected = getattr(out, attribute)
        assert len(of(found, kind).layers) == len(expected) == 2
        for layer, weights in zip(of(found, kind).layers, expected, strict=True):
            agree(layer.weights, weights[ROW])
            assert not layer.weights.masked_select(~layer.keep).any()
    keys = of(found, "self" if name != "T5" else "encoder")
    assert not keys.layers[0].keep[..., 3:].any() and keys.layers[0].keep[..., :1].all(), "padding is masked"


def test_the_model_comes_back_as_it_was() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, H, 24, dropout=0.5, batch_first=True), 2)
    model.train()
    model.layers[0].eval()
    x = torch.randn(2, 5, 16)
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    state = torch.get_rng_state()
    one, two = attention(model, x), attention(model, x)
    assert torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled()
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(one.stacks[0].layers[1].weights, two.stacks[0].layers[1].weights), "dropout was on"
    assert not one.stacks[0].layers[0].weights.requires_grad


def test_it_runs_in_the_models_own_precision() -> None:
    seen: list[torch.dtype] = []
    model = Written(
        lambda q, k, v: (seen.append(q.dtype), F.scaled_dot_product_attention(q, k, v))[1]
    ).bfloat16()
    found = attention(model, IDS)
    assert set(seen) == {torch.bfloat16}
    assert found.stacks[0].layers[0].weights.dtype == torch.float32


def test_names_are_what_the_user_says_else_ids() -> None:
    model = Written(F.scaled_dot_product_attention)
    letters = list("abcdef")
    assert attention(model, IDS, tokens=letters).stacks[0].keys == tuple("abcdef")
    assert attention(model, IDS, tokens=lambda ids: [f"<{n}>" for n in ids]).stacks[0].queries[0] == "<3>"
    with pytest.raises(ConfigError, match="tokens must name each position of the row: got 5 names for 6"):
        attention(model, IDS, tokens=letters[:5])
    with pytest.raises(ConfigError, match="source_tokens name a source, and this model reads one input"):
        attention(model, IDS, source_tokens=letters)


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(ConfigError, match=rf"row must be from 0 to 2: the batch has 3 rows, got {row}"):
        attention(Written(F.scaled_dot_product_attention), IDS, row=row)


@pytest.mark.parametrize("row", ["a", True, 1.0, None])
def test_a_row_is_a_whole_number(row: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^row must be a whole number, 0 the first: got {row!r}$"):
        check_row(row)
    with pytest.raises(ConfigError, match=r"^row must be a whole number, 0 the first: got True$"):
        attention(Written(F.scaled_dot_product_attention), IDS, row=True)


def test_what_cannot_be_shown_is_told() -> None:
    def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q.relu() @ (k.relu().mT @ v)

    with pytest.raises(
        ConfigError, match=r"no attention found: .* linear attention, .* have no weights to show"
    ):
        attention(Written(linear), IDS)

    def broken(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise RuntimeError("out of paper")

    with pytest.raises(
        ConfigError, match="could not be called on its batch: RuntimeError: out of paper; give `call`"
    ):
        attention(Written(broken), IDS)


def test_what_is_odd_about_the_weights_is_noted() -> None:
    nowhere = CAUSAL.clone()
    nowhere[2] = False
    hidden = attention(Written(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, nowhere)), IDS)
    assert hidden.notes[0].startswith("1 query of the first layers may look nowhere")
    assert not hidden.stacks[0].layers[0].weights[:, 2].any()
    nan = attention(Written(lambda q, k, v: softmax(q * torch.nan, k) @ v), IDS)
    assert any("some weights are NaN" in note for note in nan.notes)
    queries = attention(Written(lambda q, k, v: (q @ k.mT).softmax(-2) @ v), IDS)
    assert any("do not sum to 1" in note for note in queries.notes)


def test_the_text_has_every_head_its_mark_and_its_line(golden: Callable[[str, str], None]) -> None:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        factor = torch.tensor([0.0, 1.0, 200.0, 3.0])[:, None, None]
        return (factor * q @ k.mT + torch.where(CAUSAL, 0.0, -torch.inf)).softmax(-1) @ v

    found = attention(Written(mix), IDS, row=0, tokens=list("abcdef"))
    assert str(found) == found.to_text()
    assert repr(found) == "<Attention of Written, row 0 of the batch: self 1 layers>"
    golden("attention", re.sub(r"\S*(test_attention.py:)\d+", r"\1N", found.to_text()))


@pytest.mark.parametrize("ending", [".html", ".png", ".svg"])
def test_it_is_saved_as_its_name_says(ending: str, tmp_path: Path) -> None:
    found = attention(Written(F.scaled_dot_product_attention), IDS)
    assert found.save(tmp_path / f"maps{ending}") is None
    content = (tmp_path / f"maps{ending}").read_bytes()
    assert content.lstrip()[:5] in {b"<!DOC", b"\x89PNG\r", b"<?xml"}
    assert found.to_html() in content.decode() if ending == ".html" else True
    assert "<iframe" in found._repr_html_()


def test_another_ending_is_refused(tmp_path: Path) -> None:
    found = attention(Written(F.scaled_dot_product_attention), IDS)
    with pytest.raises(
        ConfigError, match=r"must end in \.html, \.png or \.svg: got maps\.pdf; .*maps\.html would do"
    ):
        found.save(tmp_path / "maps.pdf")
    assert not list(tmp_path.iterdir())


def test_no_compiler_is_imported_for_a_model_that_uses_none() -> None:
    program = (
        "import sys, json, torch, headwise\n"
        "layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)\n"
        "headwise.attention(layer, torch.randn(2, 3, 8))\n"
        "print(json.dumps([n for n in ('torch._dynamo', 'matplotlib') if n in sys.modules]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(headwise.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert json.loads(done.stdout) == []
