"""Runs of every kind and public checkpoints read one text, or one picture, with their own tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.checkpoint.run import load_run
from headwise.data.images import load_pictures
from headwise.data.text_tokenizer import TextTokenizer
from headwise.decode.classify import PictureNamer, TextNamer
from headwise.errors import ConfigError, DataError
from headwise.see.run_reading import read_checkpoint, read_run
from headwise.see.stacks import Stack
from headwise.train.loop import train
from tiny_run import silent, tiny, tiny_kind


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """run_of("masked"): a trained run, loaded."""
    made: dict[str, Any] = {}

    def of(kind: str) -> Any:
        if kind not in made:
            folder = tmp_path_factory.mktemp("read") / kind
            train(tiny(folder) if kind == "dates" else tiny_kind(kind, folder), silent())
            made[kind] = load_run(folder)
        return made[kind]

    return of


def only(stacks: tuple[Stack, ...]) -> Stack:
    (stack,) = stacks
    return stack


@pytest.mark.parametrize(("kind", "is_causal"), [("language", True), ("masked", False)])
def test_a_text_is_read_with_the_runs_own_tokens(
    kind: str, is_causal: bool, run_of: Callable[[str], Any]
) -> None:
    run = run_of(kind)
    reading = read_run(run, "the cat sat")
    stack = only(reading.attention.stacks)
    assert reading.answer is None and stack.kind == "self"
    assert stack.queries == stack.keys == tuple(run.tokenizer.names(run.tokenizer.encode(["the cat sat"])[0]))
    maps: list[torch.Tensor] = []
    with torch.no_grad():
        run.model(torch.tensor(run.tokenizer.encode(["the cat sat"])), maps=maps)
    torch.testing.assert_close(stack.layers[0].weights, maps[0][0], atol=1e-6, rtol=0)
    assert bool(stack.layers[0].keep.triu(1).any()) != is_causal


def test_a_text_to_be_named_begins_with_its_mark(run_of: Callable[[str], Any]) -> None:
    run = run_of("labelled")
    reading = read_run(run, "the cat sat")
    stack = only(reading.attention.stacks)
    assert stack.keys[0] == "<cls>" and "\u2581cat" in stack.keys
    (named,) = TextNamer(run.model, run.tokenizer, 24).stream(["the cat sat"])
    assert named is not None and reading.answer == f"{run.classes[named.place]}\t{named.probability:.4f}"


def test_pictures_are_files_or_numbers_of_the_test_part(run_of: Callable[[str], Any], tmp_path: Path) -> None:
    run = run_of("images")
    image = load_pictures(run.config.data.images, run.config.model.patches).test.images[2]
    from PIL import Image

    Image.fromarray((image[0] * 255).round().astype("uint8")).save(tmp_path / "a.png")
    by_number, by_file = read_run(run, "2"), read_run(run, str(tmp_path / "a.png"))
    stack = only(by_number.attention.stacks)
    assert stack.keys == ("class", "r1 c1", "r1 c2", "r2 c1", "r2 c2")
    torch.testing.assert_close(
        stack.layers[0].weights, only(by_file.attention.stacks).layers[0].weights, atol=1e-5, rtol=0
    )
    (named,) = PictureNamer(run.model).stream([str(tmp_path / "a.png")])
    assert by_file.answer == f"{run.classes[named.place]}\t{named.probability:.4f}"
    with pytest.raises(DataError, match="the test part has the pictures 0 to 5: got 6; choose one of these"):
        read_run(run, "6")
    with pytest.raises(DataError, match="is no picture that can be read"):
        read_run(run, "none.png")


def test_only_a_translator_takes_a_target(run_of: Callable[[str], Any]) -> None:
    reading = read_run(run_of("dates"), "<de> May 3, 2011", "3. Mai")
    assert reading.answer == "3. Mai" and reading.stack("cross").keys[0] == "<de>"
    with pytest.raises(
        ConfigError, match="a target is what an encoder-decoder writes: this model writes none"
    ):
        read_run(run_of("language"), "the", "cat")
    with pytest.raises(DataError, match="the text must have between 1 and 24 tokens: got 0; give it words"):
        read_run(run_of("language"), "")


SIZES = {"vocab_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 8}
SEQUENCES = {"max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def checkpoint(folder: Path, architecture: str, **settings: Any) -> headwise.Pretrained:
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, architecture)
    model = kind(kind.config_class(**settings)).eval()
    model.save_pretrained(folder)
    if "vocab_size" in settings:
        TextTokenizer.train(["abcdefg"], "characters", 0, ["<pad>", "<s>", "</s>"]).save(
            folder / "tokenizer.json"
        )
    return headwise.load(folder)


def test_a_public_encoder_reads_with_its_own_tokenizer(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, "BertForMaskedLM", **SIZES, **SEQUENCES, intermediate_size=8)
    stack = only(read_checkpoint(found, "abc").attention.stacks)
    assert stack.queries == ("a", "b", "c") and len(stack.layers) == 2
    with pytest.raises(ConfigError, match="this model writes none"):
        read_checkpoint(found, "abc", "d")


def test_a_public_encoder_decoder_answers(tmp_path: Path) -> None:
    settings = {"vocab_size": 16, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    found = checkpoint(
        tmp_path,
        "T5ForConditionalGeneration",
        **settings,
        pad_token_id=1,
        eos_token_id=3,
        decoder_start_token_id=1,
    )
    reading = read_checkpoint(found, "abc", "de")
    assert reading.answer == "de"
    assert reading.stack("cross").queries == ("d", "e", "</s>") and reading.stack("cross").keys == (
        "a",
        "b",
        "c",
    )
    assert reading.stack("decoder").keys == ("<pad>", "d", "e")
    own = read_checkpoint(found, "abc")
    assert own.answer is not None and len(own.stack("cross").keys) == 3


def test_what_a_public_checkpoint_does_not_say_is_asked_for(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "text", "BertForMaskedLM", **SIZES, **SEQUENCES, intermediate_size=8)
    (tmp_path / "text" / "tokenizer.json").unlink()
    with pytest.raises(
        ConfigError, match=r"has no tokenizer\.json: add it, or call headwise\.attention\(model"
    ):
        read_checkpoint(headwise.load(tmp_path / "text"), "abc")
    assert found.tokenizer is not None
    sizes = {name: value for name, value in SIZES.items() if name != "vocab_size"}
    images = checkpoint(
        tmp_path / "images",
        "ViTForImageClassification",
        **sizes,
        intermediate_size=8,
        image_size=4,
        patch_size=2,
    )
    with pytest.raises(
        ConfigError, match=r"pictures does not say how they are prepared: call headwise\.attention"
    ):
        read_checkpoint(images, "a.png")
