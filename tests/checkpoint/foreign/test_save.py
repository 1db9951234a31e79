"""What a foreign layout cannot say of a model is said before anything is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import headwise
from checkpoint.foreign.agreement import CASES
from checkpoint.foreign.edited import edited, original
from headwise.config import ModelConfig, PatchConfig, RotaryConfig
from headwise.data.text_tokenizer import TextTokenizer
from headwise.errors import ConfigError, StorageError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.language_model import LanguageModel
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder
from headwise.model.vision import ImageClassifier
from model_configs import image_config, language_config, text_config
from torch_layers import shaken, small_config

GPT: dict[str, Any] = {
    "norm": "pre",
    "positions": "learned",
    "activation": "gelu-tanh",
    "attention_bias": True,
    "scale_embedding": False,
}
LLAMA: dict[str, Any] = {
    "norm": "pre",
    "norm_kind": "rms",
    "feedforward_bias": False,
    "scale_embedding": False,
    "positions": "rotary",
    "activation": "silu",
    "gated": True,
}
BERT: dict[str, Any] = {
    "positions": "learned",
    "activation": "gelu",
    "attention_bias": True,
    "embedding_norm": True,
    "num_segments": 2,
    "output_bias": True,
    "scale_embedding": False,
}
T5: dict[str, Any] = {
    "norm": "pre",
    "norm_kind": "rms",
    "positions": "relative",
    "scale_attention": False,
    "scale_output": True,
    "scale_embedding": False,
    "feedforward_bias": False,
}
BART: dict[str, Any] = {"positions": "learned", "attention_bias": True, "embedding_norm": True}


def language(**changes: object) -> LanguageModel:
    return LanguageModel(small_config(num_encoder_layers=0, **changes))


def encoder(**changes: object) -> TextEncoder:
    return TextEncoder(text_config(**{"num_classes": None, **BERT, **changes}))


def translator(**changes: object) -> EncoderDecoder:
    return EncoderDecoder(small_config(**changes))


WRITTEN: list[tuple[str, nn.Module]] = [
    ("gpt2", language(**GPT)),
    ("gpt2", language(**GPT, tie_embeddings=False, pad_id=None, scale_attention=False)),
    ("llama", language(**LLAMA, num_kv_heads=1)),
    ("llama", language(**LLAMA, attention_bias=True, rotary=RotaryConfig(scaling="linear", factor=2.0))),
    (
        "llama",
        language(
            **{**LLAMA, "feedforward_bias": True},
            rotary=RotaryConfig(scaling="llama3", factor=2.0, fast_turns=4.0),
        ),
    ),
    ("mistral", language(**LLAMA, window=3, d_head=6, rotary=RotaryConfig(scaling="yarn", factor=2.0))),
    ("qwen2", language(**LLAMA, attention_bias=True, attention_output_bias=False, window=3)),
    ("qwen3", language(**LLAMA, qk_norm=True, d_head=8)),
    ("bert", encoder()),
    ("bert", encoder(pad_id=None)),
    ("bert", MaskedLanguageModel(text_config(**BERT))),
    ("bert", TextClassifier(text_config(**BERT))),
    ("roberta", encoder(pad_id=1)),
    ("roberta", TextClassifier(text_config(**BERT, pad_id=1))),
    ("distilbert", encoder(num_segments=0, norm_eps=1e-12, pooling_activation="relu")),
    (
        "distilbert",
        TextClassifier(text_config(**{**BERT, "num_segments": 0}, norm_eps=1e-12, pooling_activation="relu")),
    ),
    ("vit", ImageClassifier(image_config(max_length=13))),
    ("t5", translator(**T5)),
    ("t5", translator(**{**T5, "scale_output": False}, tie_output=False, gated=True, activation="gelu-tanh")),
    ("bart", translator(**BART)),
    ("bart", translator(**BART, tie_embeddings=False, output_bias=True)),
]


@pytest.mark.parametrize(
    ("layout", "model"), WRITTEN, ids=lambda value: value if isinstance(value, str) else ""
)
@torch.no_grad()
def test_a_model_of_ours_comes_back_and_transformers_reads_it(
    layout: str, model: Any, tmp_path: Path
) -> None:
    shaken(model).eval()
    headwise.save(model, tmp_path, layout=layout)
    again = headwise.load(tmp_path).model
    assert type(again) is type(model)
    own = dict(model.named_parameters())
    assert own.keys() == dict(again.named_parameters()).keys()
    assert all(torch.equal(p, own[name]) for name, p in again.named_parameters())
    settings = json.loads((tmp_path / "config.json").read_text())
    theirs, told = getattr(transformers, settings["architectures"][0]).from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(told[kind] for kind in ("unexpected_keys", "mismatched_keys"))
    # what no model of ours has, and their code computes or does not look at
    spare = ("bias", "position", "pooler", "shared.weight")
    assert all(any(word in name for word in spare) for name in told["missing_keys"])
    assert sum(p.numel() for p in theirs.parameters()) > 0
    if isinstance(model, ImageClassifier):
        images = torch.randn(2, 3, 6, 8)
        assert (theirs(images).logits - model(images)).abs().max() < 1e-5
        return
    ids = torch.randint(3, 29, (2, 7))
    if isinstance(model, EncoderDecoder):
        expected = theirs.eval()(ids, decoder_input_ids=ids[:, :5]).logits
        assert (expected - model(ids, ids[:, :5])).abs().max() < 1e-5
        return
    out = theirs.eval()(ids)
    expected = out.last_hidden_state if isinstance(model, TextEncoder) else out.logits
    assert (expected - model(ids)).abs().max() < 1e-5


REFUSED: list[tuple[str, nn.Module, list[str]]] = [
    (
        "gpt2",
        language(),
        [
            "norm: the model has post, gpt2 pre",
            "positions: the model has sinusoidal, gpt2 learned",
            "attention_bias: the model has False, gpt2 True",
            "scale_embedding: the model has True, gpt2 False",
            "attention_output_bias: the model has False, gpt2 True",
        ],
    ),
    ("gpt2", language(**GPT, num_kv_heads=1), ["num_kv_heads: the model has 1, gpt2 3"]),
    (
        "gpt2",
        language(**GPT, d_head=6, window=4),
        ["window: the model has 4, gpt2 None", "d_head: the model has 6, gpt2 4"],
    ),
    (
        "gpt2",
        language(**{**GPT, "attention_bias": False}, attention_output_bias=True),
        ["attention_bias: the model has False, gpt2 True"],
    ),
    (
        "llama",
        language(**{**LLAMA, "gated": False}, norm_eps=0.1),
        ["gated: the model has False, llama True"],
    ),
    (
        "llama",
        language(**LLAMA, d_head=4, num_heads=5, d_model=12),
        ["num_attention_heads must be a divisor of hidden_size 12: got 5; their code asks for it"],
    ),
    (
        "llama",
        language(**LLAMA, window=4, rotary=RotaryConfig(scaling="yarn", factor=2.0, original_length=5)),
        [
            "original_max_position_embeddings must be above 6.3: got 5; no pair turns once",
            "window: the model",
        ],
    ),
    (
        "llama",
        language(**LLAMA, rotary=RotaryConfig(scaling="ntk", factor=2.0)),
        ["rotary: the model has RotaryConfig(base=10000.0, share=1.0, scaling='ntk'"],
    ),
    (
        "llama",
        language(**LLAMA, rotary=RotaryConfig(share=0.5)),
        ["rotary: the model has RotaryConfig(base=10000.0, share=0.5"],
    ),
    (
        "mistral",
        language(**LLAMA, attention_bias=True),
        [
            "attention_bias: the model has True, mistral False",
            "attention_output_bias: the model has True, mistral False",
        ],
    ),
    (
        "qwen2",
        language(**LLAMA, qk_norm=True),
        ["qk_norm: the model has True, qwen2 False", "attention_bias: the model has False, qwen2 True"],
    ),
    (
        "bert",
        TextEncoder(text_config("modern")),
        [
            "norm: the model has pre, bert post",
            "positions: the model has rotary, bert learned",
            "embedding_norm: the model has False, bert True",
        ],
    ),
    (
        "bert",
        TextClassifier(text_config(**BERT, pooling="mean")),
        ["pooling: the model has mean, bert first"],
    ),
    (
        "bert",
        MaskedLanguageModel(text_config(**{**BERT, "output_bias": False})),
        ["output_bias: the model has False, bert True"],
    ),
    ("roberta", encoder(pad_id=None), ["pad_token_id must be an id: got null"]),
    (
        "roberta",
        MaskedLanguageModel(text_config(**{**BERT, "activation": "relu"}, pad_id=1)),
        ["hidden_act must be 'gelu': got 'relu'; the head of RobertaForMaskedLM has no other"],
    ),
    (
        "distilbert",
        TextClassifier(text_config(**{**BERT, "num_segments": 0})),
        [
            "norm_eps: the model has 1e-05, distilbert 1e-12",
            "pooling_activation: the model has tanh, distilbert relu",
        ],
    ),
    (
        "vit",
        ImageClassifier(image_config("mean")),
        ["positions: the model has none, vit learned", "pooling: the model has mean, vit first"],
    ),
    (
        "t5",
        translator(),
        [
            "norm_kind: the model has layer, t5 rms",
            "scale_attention: the model has True, t5 False",
            "feedforward_bias: the model has True, t5 False",
        ],
    ),
    ("t5", translator(**T5, tie_embeddings=False), ["tie_embeddings: the model has False, t5 True"]),
    (
        "bart",
        translator(),
        [
            "positions: the model has sinusoidal, bart learned",
            "embedding_norm: the model has False, bart True",
        ],
    ),
    (
        "bart",
        translator(**BART, tie_embeddings=False, tie_output=True),
        ["tie_embeddings: the model has False, bart True"],
    ),
    (
        "marian",
        translator(**{**BART, "embedding_norm": False}),
        [
            "source_positions.table: differs from the table that their code computes by ",
            "target_positions.table: differs",
        ],
    ),
]


def refusal(model: Any, path: Path, layout: str) -> str:
    with pytest.raises(ConfigError) as refused:
        headwise.save(model, path, layout=layout)
    assert not path.exists()
    return str(refused.value)


@pytest.mark.parametrize(("layout", "model", "reasons"), REFUSED, ids=[r[2][0][:50] for r in REFUSED])
def test_what_the_layout_cannot_express_is_listed(
    layout: str, model: Any, reasons: list[str], tmp_path: Path
) -> None:
    text = refusal(model, tmp_path / "x", layout)
    assert text.startswith(f"the {layout} layout cannot express this model: ")
    for reason in reasons:
        assert reason in text
    if layout == "gpt2" and len(reasons) > 2:  # once in full
        assert text == f"the gpt2 layout cannot express this model: {'; '.join(reasons)}"


def test_an_unknown_layout_and_a_model_of_another_kind_are_refused(tmp_path: Path) -> None:
    assert refusal(language(**GPT), tmp_path / "x", "gpt3") == (
        "layout must be one of bart, bert, distilbert, gpt2, llama, marian, mistral, qwen2, qwen3, roberta, "
        "t5, vit: got 'gpt3'"
    )
    assert refusal(encoder(), tmp_path / "x", "gpt2") == (
        "the gpt2 layout holds a LanguageModel: got a TextEncoder; "
        "layouts for that: bert, distilbert, roberta, t5"
    )
    assert refusal(translator(), tmp_path / "x", "bert").startswith(
        "the bert layout holds a MaskedLanguageModel or TextClassifier or TextEncoder: got a EncoderDecoder; "
        "layouts for that: bart, marian, t5"
    )


def test_a_run_in_place_of_its_model_is_refused() -> None:
    """In a process without the checks of the tests, which would refuse it first."""
    code = (
        "import headwise, torch, types\n"
        "run = types.SimpleNamespace(model=torch.nn.Linear(1, 1))\n"
        "try: headwise.save(run, 'nowhere', layout='gpt2')\n"
        "except headwise.ConfigError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == (
        "save takes a model, or what load gave: got a SimpleNamespace; pass its model: run.model\n"
    )


def test_a_refused_model_leaves_what_is_there(tmp_path: Path) -> None:
    headwise.save(language(**GPT), tmp_path, layout="gpt2")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError):
        headwise.save(language(), tmp_path, layout="gpt2")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*model\.safetensors"):
        headwise.save(language(**GPT), tmp_path / "file", layout="gpt2")


SIZE = 300
TEXTS = ["not to be", " to  be\nor 12345 東京 Ü", "that's </s> <pad> <end>", ""]
TOLD: dict[str, Any] = {"vocab_size": SIZE, "pad_id": 1}
SPOKEN: dict[str, nn.Module] = {
    "gpt2": language(**{**GPT, **TOLD}),
    "llama": language(**{**LLAMA, **TOLD}),
    "mistral": language(**{**LLAMA, **TOLD}),
    "qwen2": language(**{**LLAMA, **TOLD}, attention_bias=True, attention_output_bias=False),
    "qwen3": language(**{**LLAMA, **TOLD}, qk_norm=True, d_head=8),
    "bert": encoder(**TOLD),
    "roberta": encoder(**TOLD),
    "distilbert": encoder(**TOLD, num_segments=0, norm_eps=1e-12, pooling_activation="relu"),
    "t5": translator(**{**T5, **TOLD}),
    "bart": translator(**{**BART, **TOLD}),
}


@pytest.mark.parametrize("kind", ["characters", "bpe"])
@pytest.mark.parametrize("layout", SPOKEN)
def test_the_tokenizer_and_its_marks_go_along(layout: str, kind: str, tmp_path: Path) -> None:
    """Ours gives the same ids; so does AutoTokenizer, or the one that a warning names."""
    tokenizer = TextTokenizer.train(TEXTS * 5, kind, SIZE, ["<pad>", "<s>", "</s>"])
    model: Any = SPOKEN[layout]
    read: Any = transformers.AutoTokenizer
    if layout == "qwen2":
        read = transformers.PreTrainedTokenizerFast
        with pytest.warns(UserWarning) as told:
            headwise.save(model, tmp_path, layout=layout, tokenizer=tokenizer)
        assert str(told[0].message) == (
            "AutoTokenizer takes the tokenizer of every qwen2 directory for a Qwen2Tokenizer: for the ids of "
            f"this one use PreTrainedTokenizerFast.from_pretrained({str(tmp_path)!r})"
        )
        wrong = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert wrong(TEXTS)["input_ids"] != tokenizer.encode(TEXTS)
    else:
        headwise.save(model, tmp_path, layout=layout, tokenizer=tokenizer)
    again = headwise.load(tmp_path).tokenizer
    assert again is not None and again.encode(TEXTS) == tokenizer.encode(TEXTS)
    settings = json.loads((tmp_path / "config.json").read_text())
    assert (settings["bos_token_id"], settings["eos_token_id"]) == (tokenizer.begin_id, tokenizer.end_id)
    theirs = read.from_pretrained(tmp_path)
    assert theirs(TEXTS, add_special_tokens=False)["input_ids"] == tokenizer.encode(TEXTS)
    assert [theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id] == [
        tokenizer.pad_id,
        tokenizer.begin_id,
        tokenizer.end_id,
    ]
    assert theirs.decode(theirs("not to be")["input_ids"]) == "not to be"


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.train(["abc"], "bpe", 300)
    with pytest.raises(ConfigError) as refused:
        headwise.save(language(**GPT), tmp_path / "x", layout="gpt2", tokenizer=tokenizer)
    assert not (tmp_path / "x").exists()
    assert str(refused.value) == (
        f"the tokenizer must have at most the model's 29 tokens: got {tokenizer.vocab_size}; "
        "save the one that the model was trained with"
    )


@pytest.mark.parametrize(
    ("architecture", "ends"),
    [("T5ForConditionalGeneration", [2]), ("BartForConditionalGeneration", [2]), ("GPT2LMHeadModel", [7, 8])],
)
def test_what_was_loaded_is_saved_with_its_marks_and_tokenizer(
    architecture: str, ends: list[int], tmp_path: Path
) -> None:
    there = edited(tmp_path / "there", architecture, eos_token_id=ends, decoder_start_token_id=6)
    (there / "generation_config.json").unlink()
    TextTokenizer.train(["ab"], "characters", 0, ["<pad>"]).save(there / "tokenizer.json")
    loaded = headwise.load(there)
    headwise.save(loaded, tmp_path / "back", layout=loaded.layout)
    back = headwise.load(tmp_path / "back")
    assert (back.start_id, back.end_ids) == (loaded.start_id, loaded.end_ids)
    assert list(back.end_ids) == ends and back.start_id == (6 if "GPT2" not in architecture else None)
    assert back.tokenizer is not None and back.tokenizer.encode(["ba"]) == [[3, 2]]
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "back").generation_config
    assert theirs.eos_token_id in (ends, ends[0])
    assert "GPT2" in architecture or theirs.decoder_start_token_id == 6


def test_what_was_loaded_can_be_saved_onto_itself(tmp_path: Path) -> None:
    there = edited(tmp_path, "GPT2LMHeadModel", "tied")
    (there / "notes.txt").write_text("mine")
    before = headwise.load(there)
    headwise.save(before, there, layout="gpt2")
    after = headwise.load(there)
    pairs = zip(before.model.parameters(), after.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert (there / "notes.txt").read_text() == "mine"


def test_a_model_in_training_stays_there(tmp_path: Path) -> None:
    model = language(**GPT).train()
    headwise.save(model, tmp_path, layout="gpt2")
    assert all(part.training for part in model.modules())
    assert all(p.requires_grad for p in model.parameters())


def pulled_apart() -> LanguageModel:
    model = language(**GPT)
    model.output.weight = nn.Parameter(model.output.weight + 1)
    return model


def resized() -> LanguageModel:
    model = language(**GPT, tie_embeddings=False)
    model.output.weight = nn.Parameter(torch.zeros(31, 12))
    return model


def with_more() -> LanguageModel:
    model = language(**GPT)
    model.decoder.adapter = nn.Linear(2, 2, bias=False)
    return model


def with_less() -> LanguageModel:
    model = language(**GPT)
    model.decoder.final_norm.bias = None
    return model


def without_numbers() -> LanguageModel:
    with torch.device("meta"):
        return language(**GPT)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            pulled_apart,
            "output.weight: not equal to embedding.tokens.table.weight, to which its configuration ties it",
        ),
        (resized, "output.weight: the model has [31, 12], its configuration [29, 12]"),
        (with_more, "decoder.adapter.weight: not in its configuration"),
        (with_less, "decoder.final_norm.bias: missing, its configuration has [12]"),
        (without_numbers, "embedding.tokens.table.weight: on the meta device, without numbers; "),
    ],
)
def test_a_model_that_is_not_what_its_configuration_says_is_refused(
    make: Callable[[], LanguageModel], said: str, tmp_path: Path
) -> None:
    text = refusal(make(), tmp_path / "x", "gpt2")
    prefix = "the gpt2 layout cannot express this model: "
    assert text.startswith(prefix + said) if said.endswith("; ") else text == prefix + said


def test_one_tensor_in_two_places_is_written_twice(tmp_path: Path) -> None:
    model = language(**GPT, tie_embeddings=False)
    model.output.weight = model.embedding.tokens.table.weight
    headwise.save(model, tmp_path, layout="gpt2")
    again: Any = headwise.load(tmp_path).model
    assert torch.equal(again.output.weight, model.output.weight)
    assert torch.equal(again.embedding.tokens.table.weight, model.output.weight)


@pytest.mark.parametrize("architecture", sorted({case.architecture for case in CASES}))
def test_saving_twice_writes_the_same(architecture: str, tmp_path: Path) -> None:
    loaded = headwise.load(original(architecture))
    for name in ("one", "two"):
        headwise.save(loaded.model, tmp_path / name, layout=loaded.layout)
        loaded = headwise.load(tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_patches_of_a_square_are_two_sides_there(tmp_path: Path) -> None:
    patches = PatchConfig(height=4, width=4, size=2, channels=1)
    config = ModelConfig(
        d_model=8,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=0,
        norm="pre",
        positions="learned",
        max_length=5,
        activation="gelu",
        attention_bias=True,
        num_classes=3,
        patches=patches,
    )
    headwise.save(ImageClassifier(config), tmp_path, layout="vit")
    assert headwise.load(tmp_path).model.config.patches == patches
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}


def test_language_models_of_other_kinds_are_refused_by_all_layouts() -> None:
    """Each row of the shared table has something that none of them says, but for what resembles one."""
    for name in ("paper", "neox", "bloom", "no positions"):
        model = LanguageModel(language_config(name))
        for layout in ("gpt2", "llama", "mistral", "qwen2", "qwen3"):
            with pytest.raises(ConfigError, match="cannot express"):
                headwise.save(model, Path("never written"), layout=layout)
