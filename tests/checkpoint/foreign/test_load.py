"""What can be wrong with a foreign checkpoint, in the words of its refusal; and what is no fault."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import WordLevel
from torch import Tensor

import headwise
from checkpoint.foreign.agreement import (
    CASES,
    PAD,
    TOLERANCE,
    V,
    cases,
    difference,
    foreign,
    in_float64,
    saved,
    talkative,
)
from checkpoint.foreign.edited import edited, original
from headwise.checkpoint.foreign.layout import layouts
from headwise.checkpoint.foreign.load import Pretrained
from headwise.checkpoint.foreign.options import Options
from headwise.data.padding import Marks
from headwise.data.text_tokenizer import TextTokenizer
from headwise.decode.greedy import greedy
from headwise.errors import ConfigError, RunError
from headwise.model.encoder_decoder import EncoderDecoder

GPT2, LLAMA, MISTRAL, QWEN2 = "GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"
BERT, ROBERTA, VIT = "BertModel", "RobertaModel", "ViTForImageClassification"
T5, MARIAN, BART = "T5ForConditionalGeneration", "MarianMTModel", "BartForConditionalGeneration"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
# one line each: what was expected, what came, what to do
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        GPT2,
        {"model_type": "mamba"},
        (
            "model_type must be one of bart, bert, distilbert, gpt2, llama, marian, mistral, qwen2, "
            "qwen3, roberta, t5, vit: got 'mamba'; choose another"
        ),
    ),
    (GPT2, {"without": ("model_type",)}, "got null; choose another"),
    (GPT2, {"model_type": "a\nb"}, r"got 'a\nb'; choose another"),
    (GPT2, {"model_type": "a" * 9999}, f"got '{'a' * 56}...; choose another"),
    (GPT2, {"architectures": ["a" * 9999]}, f"got '{'a' * 56}...; load a model"),
    (GPT2, {"eos_token_id": "</s>"}, "eos_token_id must be a token's id, or several: got '</s>'; correct it"),
    (GPT2, {"eos_token_id": [1, True]}, "eos_token_id must be a token's id, or several: got [1, True]"),
    (
        MARIAN,
        {"max_position_embeddings": 2**39},
        "model.encoder.embed_positions.weight: missing, and too large to be computed: "
        "model [549755813888, 24]; model.decoder.embed_positions.weight: missing",
    ),
    (GPT2, {"model_type": ["gpt2"]}, "got ['gpt2']; choose another"),
    (
        GPT2,
        {"architectures": ["GPT2ForSequenceClassification"]},
        (
            "architectures must name one of GPT2LMHeadModel, GPT2Model: got "
            "'GPT2ForSequenceClassification'; load a model that was saved as one of them"
        ),
    ),
    (GPT2, {"architectures": []}, "architectures must name one of GPT2LMHeadModel, GPT2Model: got []"),
    (GPT2, {"without": ("architectures",)}, "GPT2Model: got null"),
    (
        VIT,
        {"architectures": ["ViTModel"]},
        "architectures must name one of ViTForImageClassification: got 'ViTModel'",
    ),
    (
        GPT2,
        {"quantization_config": {"bits": 4}},
        "the weights are quantized; expected float ones: load the original",
    ),
    (
        GPT2,
        {"n_head": 7},
        (
            "describes no model that can be built: num_heads must divide d_model: got d_model=24, "
            "num_heads=7; 6 divides it"
        ),
    ),
    (GPT2, {"n_layer": 10**9}, "holds 28 tensors: expected 1000000000 layers of them"),
    (GPT2, {"n_embd": 3 * 2**38}, "describes no model that can be built: "),
    (GPT2, {"layer_norm_epsilon": 10**400}, "describes no model that can be built: int too large"),
    (GPT2, {"n_inner": 10**30}, "n_inner must be at most 2^40: got 10"),
    (GPT2, {"n_embd": 24.0}, "n_embd must be a whole number: got 24.0; correct it"),
    (GPT2, {"n_embd": True}, "n_embd must be a whole number: got true; correct it"),
    (
        GPT2,
        {"n_inner": "x" * 100},
        (
            "n_inner must be a whole number: got "
            "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...; correct it"
        ),
    ),
    (GPT2, {"resid_pdrop": "0.1"}, "resid_pdrop must be a number: got '0.1'; correct it"),
    (GPT2, {"scale_attn_weights": 1}, "scale_attn_weights must be true or false: got 1; correct it"),
    (GPT2, {"activation_function": 3}, "activation_function must be a word: got 3; correct it"),
    (
        GPT2,
        {"activation_function": "quick_gelu"},
        (
            "activation_function must be one of relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish: "
            "got 'quick_gelu'; headwise has no other"
        ),
    ),
    (
        GPT2,
        {"scale_attn_by_inverse_layer_idx": True},
        "scale_attn_by_inverse_layer_idx must be false: got true; headwise scales all layers alike",
    ),
    (
        GPT2,
        {"add_cross_attention": True},
        "add_cross_attention must be false: got true; a language model has no source to look at",
    ),
    (
        GPT2,
        {"tie_word_embeddings": False},
        "does not fit its config.json: lm_head.weight: missing, model [37, 24]",
    ),
    (
        LLAMA,
        {"num_attention_heads": 5},
        "num_attention_heads must be a divisor of hidden_size 24: got 5; their code asks for it",
    ),
    (LLAMA, {"rope_parameters": [1]}, "rope_parameters must be an object: got [1]; correct it"),
    (
        LLAMA,
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        (
            "rope_parameters must be the same for all layers: got {'full_attention': {'rope_type': "
            "'default'}}; headwise turns all alike"
        ),
    ),
    (
        LLAMA,
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
        (
            "rope_parameters: rope_type must be one of default, linear, yarn, llama3: got 'dynamic'; "
            "dynamic scaling depends on each text's length; rope_type default is the same up to "
            "max_position_embeddings (96)"
        ),
    ),
    (
        LLAMA,
        {"rope_parameters": {"rope_type": "longrope"}},
        "rope_type must be one of default, linear, yarn, llama3: got 'longrope'; convert the model",
    ),
    (
        LLAMA,
        {"rope_scaling": {"type": "su", "factor": 2.0}},
        "rope_scaling: type must be one of default, linear, yarn, llama3: got 'su'; convert the model",
    ),
    (
        LLAMA,
        {"rope_parameters": {"rope_type": "linear"}},
        "rope_parameters: factor must be a number: got nothing; linear needs it",
    ),
    (
        LLAMA,
        {"rope_parameters": {"rope_type": "linear", "factor": 0.5}},
        "describes no model that can be built: rotary.factor must be at least 1: got 0.5",
    ),
    (
        LLAMA,
        {"rope_parameters": {**YARN, "truncate": False}},
        "truncate must be true: got false; headwise rounds the ends of the ramp, as YaRN's authors do",
    ),
    (
        LLAMA,
        {"rope_parameters": {**YARN, "original_max_position_embeddings": 6}},
        "original_max_position_embeddings must be above 6.3: got 6; no pair turns once",
    ),
    (
        LLAMA,
        {"partial_rotary_factor": 0.5},
        "partial_rotary_factor must be 1: got 0.5; these models turn every coordinate",
    ),
    (LLAMA, {"hidden_act": "mish"}, "hidden_act must be one of relu, gelu"),
    (
        QWEN2,
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "layer_types": None},
        "max_window_layers must be the same for all layers: got 1; headwise has one window for all",
    ),
    (
        QWEN2,
        {
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        (
            "layer_types must be the same for all layers: got ['sliding_attention', 'full_attention']; "
            "headwise has one window for all"
        ),
    ),
    (QWEN2, {"layer_types": 3}, "layer_types must be 2 words, one for each layer: got 3"),
    (MISTRAL, {"sliding_window": 0}, "window must be at least 1: got 0"),
    (BERT, {"is_decoder": True}, "is_decoder must be false: got true; a text encoder looks both ways"),
    (
        BERT,
        {"add_cross_attention": True},
        "add_cross_attention must be false: got true; a text encoder has no source to look at",
    ),
    (
        BERT,
        {"position_embedding_type": "relative_key"},
        "position_embedding_type must be 'absolute': got 'relative_key'; relative keys are not built in",
    ),
    (BERT, {"type_vocab_size": 0}, "type_vocab_size must be at least 1: got 0; their code always adds"),
    (
        ROBERTA,
        {"pad_token_id": None},
        "pad_token_id must be an id: got null; RoBERTa counts its positions from there",
    ),
    (
        "RobertaForMaskedLM",
        {"hidden_act": "relu"},
        "hidden_act must be 'gelu': got 'relu'; the head of RobertaForMaskedLM has no other",
    ),
    ("BertForSequenceClassification", {"id2label": {"0": "only"}}, "num_classes must be at least 2: got 1"),
    (
        "BertForSequenceClassification",
        {"id2label": {"0": "a", "2": "b"}},
        "id2label must be a name for each class from 0 on: got {'0': 'a', '2': 'b'}; correct it",
    ),
    ("BertForSequenceClassification", {"id2label": {"0": "a", "1": 2}}, "id2label must be a name for each"),
    ("BertForSequenceClassification", {"id2label": 3}, "id2label must be an object: got 3"),
    (VIT, {"patch_size": [2, 3]}, "patch_size must be a square: got [2, 3]; headwise cuts square patches"),
    (VIT, {"image_size": [6, 8, 1]}, "image_size must be one whole number or two: got [6, 8, 1]"),
    (VIT, {"image_size": 7}, "patches.size must divide the image"),
    (
        T5,
        {"feed_forward_proj": "gated-mish"},
        "feed_forward_proj must be one of relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish: got 'mish'",
    ),
    (T5, {"pad_token_id": None}, "an encoder-decoder pads its sources: got pad_id=None"),
    (
        MARIAN,
        {"decoder_vocab_size": 30},
        "decoder_vocab_size must be 37: got 30; headwise has one vocabulary for both sides",
    ),
    (MARIAN, {"decoder_ffn_dim": 30}, "decoder_ffn_dim must be 28: got 30; headwise builds both sides alike"),
    (
        BART,
        {"decoder_attention_heads": 2},
        "decoder_attention_heads must be 3: got 2; headwise builds both sides alike",
    ),
    (
        BART,
        {"normalize_before": True},
        "normalize_before must be false: got true; their code has the norm behind the addition",
    ),
    (
        BART,
        {"add_final_layer_norm": True},
        "add_final_layer_norm must be false: got true; their code has none",
    ),
]


def refusal(path: str | Path) -> str:
    with pytest.raises(RunError) as refused:
        headwise.load(path)
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("architecture", "changes", "words"), REFUSED, ids=[words for _, _, words in REFUSED]
)
def test_what_cannot_be_read_is_refused(
    architecture: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    text = refusal(edited(tmp_path, architecture, **changes))
    assert words in text
    assert text.startswith(str(tmp_path))


def test_every_refusal_of_a_setting_is_seen_here() -> None:
    source = Path(headwise.__file__).parent / "checkpoint" / "foreign"
    told = " ".join(words for _, _, words in REFUSED)
    for path in source.glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip().startswith("options.only("):
                assert line.split('"')[1].removeprefix("decoder_{") in told or "{" in line, line


def lessen(tensors: dict[str, Tensor]) -> None:
    """A matrix too narrow, one gone, one too many, one of whole numbers."""
    tensors["transformer.h.1.attn.c_attn.weight"] = tensors["transformer.h.1.attn.c_attn.weight"][
        :, :60
    ].clone()
    tensors["transformer.h.0.mlp.c_fc.bias"] = tensors["transformer.h.0.mlp.c_fc.bias"][:1].clone()
    del tensors["transformer.ln_f.bias"], tensors["transformer.wpe.weight"]
    tensors["transformer.h.7.ln_1.weight"] = torch.zeros(24)
    tensors["transformer.h.0.ln_1.weight"] = torch.zeros(24, dtype=torch.int32)


def test_every_tensor_that_does_not_fit_is_listed(tmp_path: Path) -> None:
    assert refusal(edited(tmp_path, GPT2, "tied", tensors=lessen)) == (
        f"{tmp_path} does not fit its config.json: "
        "transformer.wpe.weight: missing, model [96, 24]; "
        "transformer.h.0.ln_1.weight: file int32, expected float32 or float64 or bfloat16 or float16; "
        "transformer.h.0.mlp.c_fc.bias: file [1], model [96]; "
        "transformer.h.1.attn.c_attn.weight: file [24, 60], model [24, 72]; "
        "transformer.ln_f.bias: missing, model [24]; "
        "transformer.h.7.ln_1.weight: unexpected, file [24]"
    )


def test_tensors_are_named_as_the_file_names_them(tmp_path: Path) -> None:
    def lessen(tensors: dict[str, Tensor]) -> None:
        tensors["h.0.attn.c_attn.weight"] = tensors["h.0.attn.c_attn.weight"][:, :64].clone()
        del tensors["h.1.ln_2.bias"]
        tensors["extra"] = torch.zeros(2)

    assert refusal(edited(tmp_path, "GPT2Model", tensors=lessen)).endswith(
        ": h.0.attn.c_attn.weight: file [24, 64], model [24, 72]; h.1.ln_2.bias: missing, model [24]; "
        "extra: unexpected, file [2]"
    )


def test_one_of_three_joined_matrices_is_named_by_itself(tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.k_proj.weight"

    def lessen(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name][:6].clone()

    assert refusal(edited(tmp_path, LLAMA, tensors=lessen)).endswith(
        f": {name}: file [6, 24], model [12, 24]"
    )


def test_a_second_copy_of_a_tied_tensor_must_be_equal(tmp_path: Path) -> None:
    def doubled(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()

    def changed(tensors: dict[str, Tensor]) -> None:
        doubled(tensors)
        tensors["lm_head.weight"][3, 4] += 1

    def renamed(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors.pop("transformer.wte.weight")

    expected = headwise.load(original(GPT2, "tied")).model
    for change in (doubled, renamed):
        model = headwise.load(edited(tmp_path / change.__name__, GPT2, "tied", tensors=change)).model
        assert model.output.weight is model.embedding.tokens.table.weight  # type: ignore[union-attr]
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    assert refusal(edited(tmp_path / "changed", GPT2, "tied", tensors=changed)).endswith(
        ": lm_head.weight: not equal to transformer.wte.weight, to which config.json ties it"
    )
    text = refusal(
        edited(tmp_path / "untied", GPT2, "untied", tensors=lambda t: t.pop("transformer.wte.weight"))
    )
    assert text.endswith(": transformer.wte.weight: missing, model [37, 24]")


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8, torch.bool, torch.complex64]
)
def test_only_types_in_which_a_model_computes_are_taken(dtype: torch.dtype, tmp_path: Path) -> None:
    name = "transformer.h.0.attn.c_attn.weight"

    def one(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name].to(dtype)

    def every(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()})

    word = str(dtype).removeprefix("torch.")
    said = f"{name}: file {word}, expected float32 or float64 or bfloat16 or float16"
    assert refusal(edited(tmp_path / "one", GPT2, "tied", tensors=one)).endswith(f" config.json: {said}")
    text = refusal(edited(tmp_path / "every", GPT2, "tied", tensors=every))
    assert said in text and text.count(f"file {word}") == 28


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_are_told_of(value: float, tmp_path: Path) -> None:
    def broken(tensors: dict[str, Tensor]) -> None:
        tensors["h.1.ln_1.weight"][3] = value
        tensors["wte.weight"][:] = value

    there = edited(tmp_path, "GPT2Model", tensors=broken)
    with pytest.warns(UserWarning) as told:
        assert headwise.load(there).layout == "gpt2"
    (one,) = told
    assert str(one.message) == (
        f"{there} holds NaN or infinite numbers, and so will the answers: h.1.ln_1.weight, wte.weight; "
        "download or copy it again"
    )


def test_two_names_of_one_tensor_must_agree(tmp_path: Path) -> None:
    name = "embeddings.LayerNorm"

    def doubled(tensors: dict[str, Tensor]) -> None:
        tensors[f"{name}.gamma"] = tensors[f"{name}.weight"].clone()

    def changed(tensors: dict[str, Tensor]) -> None:
        tensors[f"{name}.gamma"] = tensors[f"{name}.weight"] + 1

    assert headwise.load(edited(tmp_path / "same", BERT, tensors=doubled)).layout == "bert"
    assert refusal(edited(tmp_path / "other", BERT, tensors=changed)).endswith(
        f" config.json: {name}.weight: not equal to {name}.gamma, another name of the same tensor"
    )


def test_a_name_does_not_break_the_line(tmp_path: Path) -> None:
    there = edited(tmp_path, GPT2, tensors=lambda held: held.update({"a\nb": torch.ones(2)}))
    assert refusal(there).endswith(r" config.json: 'a\nb': unexpected, file [2]")


KNOWN: list[tuple[str, str, dict[str, Tensor]]] = [
    (
        GPT2,
        "tied",
        {
            "transformer.h.0.attn.bias": torch.ones(1, 1, 96, 96).tril(),
            "transformer.h.1.attn.masked_bias": torch.tensor(-1e4),
        },
    ),
    (LLAMA, "", {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}),
    (BERT, "", {"embeddings.position_ids": torch.arange(20)[None]}),
    (
        "BertForMaskedLM",
        "tied",
        {
            "bert.pooler.dense.weight": torch.ones(24, 24),
            "cls.seq_relationship.bias": torch.ones(2),
            "bert.embeddings.position_ids": torch.arange(20)[None],
        },
    ),
    (
        ROBERTA,
        "",
        {"pooler.dense.weight": torch.ones(24, 24), "embeddings.position_ids": torch.arange(20)[None]},
    ),
    ("RobertaForMaskedLM", "untied", {"lm_head.bias": torch.ones(V)}),
    (VIT, "", {"vit.embeddings.mask_token": torch.ones(1, 1, 24), "vit.pooler.dense.bias": torch.ones(24)}),
    (T5, "1.0", {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(8, 3)}),
    (BART, "", {"model.encoder.version": torch.tensor([1.0])}),
]


@pytest.mark.parametrize(("architecture", "words", "more"), KNOWN)
def test_buffers_and_unused_heads_are_left_out(
    architecture: str, words: str, more: dict[str, Tensor], tmp_path: Path
) -> None:
    there = edited(tmp_path / "more", architecture, words, tensors=lambda held: held.update(more))
    assert more.keys() <= load_file(there / "model.safetensors").keys()
    models = headwise.load(there).model, headwise.load(original(architecture, words)).model
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in models), strict=True))
    # the same beside another model is a stranger
    other = MISTRAL if architecture != MISTRAL else GPT2
    text = refusal(
        edited(tmp_path / "other", other, tensors=lambda held: held.update({"x.odd": torch.ones(2)}))
    )
    assert text.endswith("x.odd: unexpected, file [2]")


def old_names(tensors: dict[str, Tensor]) -> None:
    for name in list(tensors):
        for new, old in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
            if name.endswith(new):
                tensors[name.removesuffix(new) + old] = tensors.pop(name)


def without_prefix(tensors: dict[str, Tensor]) -> None:
    for name in list(tensors):
        tensors[name.removeprefix("transformer.")] = tensors.pop(name)


@pytest.mark.parametrize(
    ("architecture", "words", "change"),
    [
        ("BertForMaskedLM", "tied", old_names),  # as bert-base-uncased has them
        (GPT2, "untied", without_prefix),  # as gpt2 has them
    ],
)
def test_the_names_of_old_files_are_understood(
    architecture: str, words: str, change: Callable[[dict[str, Tensor]], None], tmp_path: Path
) -> None:
    there = edited(tmp_path, architecture, words, tensors=change)
    models = headwise.load(there).model, headwise.load(original(architecture, words)).model
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in models), strict=True))


def test_the_rotary_settings_of_old_files_are_understood(tmp_path: Path) -> None:
    new = headwise.load(edited(tmp_path / "new", LLAMA, "yarn scaling")).model
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    there = edited(
        tmp_path / "old",
        LLAMA,
        "yarn scaling",
        without=("rope_parameters",),
        rope_scaling=scaling,
        rope_theta=500.0,
    )
    assert headwise.load(there).model.config == new.config
    plain = edited(tmp_path / "plain", LLAMA, without=("rope_parameters",), rope_theta=500.0)
    assert headwise.load(plain).model.config.rotary.base == 500
    bare = edited(tmp_path / "bare", LLAMA, without=("rope_parameters",))
    assert headwise.load(bare).model.config.rotary.base == 10_000


@pytest.mark.parametrize(
    "case", [next(c for c in CASES if c.layout == n) for n in {c.layout: 0 for c in CASES}], ids=str
)
def test_settings_left_out_have_the_defaults_of_transformers(case: Any, tmp_path: Path) -> None:
    """Read from an empty config.json, our settings are those that theirs are made of."""
    layout, config = layouts()[case.layout], case.kind.config_class()
    config.save_pretrained(tmp_path)
    full = json.loads((tmp_path / "config.json").read_text())
    least = {"model_type": case.layout}
    read = [layout.read(Options("config.json", values, case.architecture)) for values in (full, least)]
    told = [replace(c, d_head=c.width_head, num_kv_heads=c.key_value_heads, d_ff=c.width_ff) for c in read]
    assert told[0] == told[1]


def test_a_checkpoint_in_parts_is_the_same(tmp_path: Path) -> None:
    case = cases("llama")[0]
    saved(foreign(case), tmp_path / "whole")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "whole", dtype=torch.float64)
    saved(again, tmp_path / "parts", max_shard_size="9KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 2
    whole, parts = (headwise.load(tmp_path / name).model for name in ("whole", "parts"))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))


def test_a_separate_output_of_t5_stays_apart(tmp_path: Path) -> None:
    """Version 1.1 has one in its files; transformers ties what is not there and leaves apart what is."""
    words = "version 1.1"
    table = torch.randn(V, 20, dtype=torch.float64) * 0.3
    there = edited(tmp_path, T5, words, tensors=lambda held: held.update({"lm_head.weight": table}))
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(
        there, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    ours = headwise.load(there).model
    assert torch.equal(theirs.lm_head.weight, table) and torch.equal(ours.output.weight, table)  # type: ignore[union-attr]
    case = next(c for c in CASES if c.architecture == T5 and c.words == words)
    with in_float64(theirs):
        assert difference(case, theirs, ours) <= TOLERANCE[torch.float64]
    headwise.save(ours, tmp_path / "again", layout="t5")
    assert torch.equal(load_file(tmp_path / "again" / "model.safetensors")["lm_head.weight"], table)


def test_marian_takes_its_sinusoids_from_a_file_that_has_them(tmp_path: Path) -> None:
    table = torch.randn(80, 24, dtype=torch.float64)
    name = "model.encoder.embed_positions.weight"
    there = edited(tmp_path / "own", MARIAN, tensors=lambda held: held.update({name: table}))
    assert torch.equal(headwise.load(there).model.source_positions.table, table)  # type: ignore[union-attr]
    short = edited(tmp_path / "short", MARIAN, tensors=lambda held: held.update({name: table[:3].clone()}))
    assert refusal(short).endswith(f": {name}: file [3, 24], model [80, 24]")


def test_the_model_is_ready_and_no_random_number_was_drawn(tmp_path: Path) -> None:
    folder, before = str(original(GPT2)), torch.get_rng_state()
    found = headwise.load(folder)
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(found, Pretrained) and found.layout == "gpt2" and found.tokenizer is None
    assert not any(part.training for part in found.model.modules())
    assert all(p.requires_grad and p.is_contiguous() for p in found.model.parameters())
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.layout = "bert"  # type: ignore[misc]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_model_has_the_precision_of_its_file(dtype: torch.dtype, tmp_path: Path) -> None:
    def rounded(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()})

    model = headwise.load(edited(tmp_path, LLAMA, tensors=rounded)).model
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model(torch.tensor([[3, 4, 5]])).dtype is dtype

    def mixed(tensors: dict[str, Tensor]) -> None:
        rounded(tensors)
        tensors["model.norm.weight"] = tensors["model.norm.weight"].float()

    model = headwise.load(edited(tmp_path / "mixed", LLAMA, tensors=mixed)).model
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_the_tokenizer_comes_with_it(tmp_path: Path) -> None:
    folder = edited(tmp_path, BERT)
    LibraryTokenizer(WordLevel({"[PAD]": 0, "a": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))
    tokenizer = headwise.load(folder).tokenizer
    assert tokenizer is not None and tokenizer.vocab_size == 2 and tokenizer.pad_id == 0
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer.json is damaged or no tokenizer" in refusal(folder)


def said(folder: Path, **ids: object) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(ids))
    return folder


def test_what_begins_and_ends_an_answer_comes_with_it(tmp_path: Path) -> None:
    """As generation_config.json has it, else config.json."""
    least = edited(tmp_path / "a", BART, without=("decoder_start_token_id",), bos_token_id=3)
    (least / "generation_config.json").unlink()
    bart = headwise.load(least)
    assert (bart.start_id, bart.end_ids, bart.pad_id) == (3, (2,), PAD)  # as transformers, from the next best
    told = edited(tmp_path / "b", BART, decoder_start_token_id=5, eos_token_id=[6, 7])
    (told / "generation_config.json").unlink()
    marks = headwise.load(told).marks
    assert isinstance(marks, Marks) and (marks.bos_id, marks.eos_id, marks.pad_id) == (5, 6, PAD)
    bart = headwise.load(said(told, decoder_start_token_id=8, eos_token_id=[9, 10], bos_token_id=3))
    assert (bart.start_id, bart.end_ids) == (8, (9, 10))
    bart = headwise.load(said(told, decoder_start_token_id=None, eos_token_id=None, bos_token_id=3))
    assert (bart.start_id, bart.end_ids) == (5, (6, 7))
    (told / "generation_config.json").write_text("{")
    assert "generation_config.json is damaged: expected JSON" in refusal(told)
    assert "generation_config.json: eos_token_id must be a token's id" in refusal(
        said(told, eos_token_id="x")
    )

    text = refusal(said(told, decoder_start_token_id=[2]))
    assert (
        "generation_config.json: decoder_start_token_id must be a whole number: got [2]; correct it" in text
    )

    llama = headwise.load(edited(tmp_path / "c", LLAMA, eos_token_id=[3, 4], bos_token_id=2))
    assert (llama.start_id, llama.end_ids, llama.pad_id) == (None, (3, 4), None)
    bert = headwise.load(edited(tmp_path / "d", BERT, eos_token_id=3))
    assert (bert.start_id, bert.end_ids, bert.pad_id) == (None, (), PAD)
    with pytest.raises(ConfigError) as refused:
        _ = bert.marks
    assert str(refused.value) == (
        "an encoder-decoder's marks are start_id, end_ids and pad_id: the checkpoint has None, [] and 1; "
        "give greedy those that you know"
    )


@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", VIT])
def test_the_names_of_classes_come_with_it(architecture: str, tmp_path: Path) -> None:
    count = 4 if "Bert" in architecture else 5
    names = [f"class {n}" for n in range(count)]
    there = edited(tmp_path, architecture, id2label={str(n): names[n] for n in reversed(range(count))})
    found = headwise.load(there)
    assert found.classes == tuple(names)
    headwise.save(found, tmp_path / "back", layout=found.layout)
    assert headwise.load(tmp_path / "back").classes == tuple(names)
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "back").config
    assert theirs.id2label == dict(enumerate(names))
    assert headwise.load(original(GPT2, "tied")).classes == ()
    assert headwise.load(original(BERT)).classes == ()


def test_the_end_is_the_tokenizers_where_nobody_says(tmp_path: Path) -> None:
    folder = edited(tmp_path, GPT2, "tied", eos_token_id=None)
    TextTokenizer.train(["ab"], "characters", 0, ["<end>"]).save(folder / "tokenizer.json")
    assert headwise.load(folder).end_ids == (1,)


@pytest.mark.parametrize("architecture", [T5, MARIAN, BART])
@torch.no_grad()
def test_answers_are_theirs_with_the_marks_of_the_checkpoint(architecture: str, tmp_path: Path) -> None:
    case = next(c for c in CASES if c.architecture == architecture)
    theirs = talkative(case)
    ours = headwise.load(saved(theirs, tmp_path))
    ids = torch.tensor([[4, 9, 20, 31, 2], [8, 30, 2, ours.pad_id, ours.pad_id]])
    with in_float64(theirs):
        theirs.generation_config.suppress_tokens = sorted({ours.pad_id, ours.start_id} - set(ours.end_ids))
        kept = ids != ours.pad_id
        written = theirs.generate(ids, attention_mask=kept.long(), max_new_tokens=20, use_cache=False)
    assert isinstance(ours.model, EncoderDecoder)
    ended = [row.index(ours.end_ids[0]) if ours.end_ids[0] in row else 20 for row in written[:, 1:].tolist()]
    assert greedy(ours.model, ids, ours.marks, 20) == [
        row[:end] for row, end in zip(written[:, 1:].tolist(), ended, strict=True)
    ]


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refusal(file) == f"{file} is a file: expected a directory with config.json and model.safetensors"
    missing = tmp_path / "missing"
    said = f"no directory {missing}: expected a checkpoint's, or a name on the hub (gpt2, org/name)"
    assert refusal(missing) == refusal(str(missing)) == said
    assert refusal(Path("gpt2")).startswith("no directory gpt2")  # a path is never a name
    assert refusal("a\0b") == "cannot read 'a\\x00b': embedded null byte; name a checkpoint's directory"
    assert refusal("n" * 5000).startswith("cannot read 'nnn")
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").touch()
    assert refusal(run) == (
        f"{run} is a run that headwise train made: expected a checkpoint with config.json; "
        "read a run with headwise.load_run"
    )
    (run / "config.json").write_text("{}")  # both: it is a checkpoint
    assert "model_type must be one of" in refusal(run)


@pytest.mark.parametrize("architecture", sorted({c.layout: c.architecture for c in CASES}.values()))
def test_no_value_of_any_setting_is_a_traceback(architecture: str, tmp_path: Path) -> None:
    """Whatever stands in config.json, the model is built or refused."""
    folder = edited(tmp_path, architecture)
    held = json.loads((folder / "config.json").read_text())
    values: list[Any] = [None, True, -1, 0, 10**30, 1.5, "x", ["x"], {"x": 1}]
    names = [*held, "rope_scaling", "n_inner", "layer_types", "head_dim", "id2label"]
    for n, name in enumerate(names):
        for value in values[n % 3 :: 3]:  # a third of them each, all of them over the families
            (folder / "config.json").write_text(json.dumps({**held, name: value}))
            with contextlib.suppress(RunError):
                headwise.load(folder)
