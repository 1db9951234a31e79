"""What is streamed joins to the answer, and a stop text ends it wherever the tokens fall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from headwise.config import ModelConfig
from headwise.data.text_tokenizer import MASK, PADDING, TextTokenizer
from headwise.decode import writer as writer_module
from headwise.decode.sampling import Sampling
from headwise.decode.writer import Writer
from headwise.errors import ConfigError, DataError
from headwise.model.language_model import LanguageModel

TEXT = "ab abc \u4eca\u5929 \U0001f600\n" * 4
BYTES = TextTokenizer.train([TEXT], "bpe", 262, (PADDING, MASK))
CHARACTERS = TextTokenizer.train([TEXT + "\ufffd"], "characters", 0, (PADDING, MASK))


def model_for(tokenizer: TextTokenizer) -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(
        ModelConfig(
            vocab_size=tokenizer.vocab_size,
            d_model=16,
            num_heads=2,
            num_encoder_layers=0,
            num_decoder_layers=1,
            max_length=16,
            pad_id=None,
        )
    )


def said_by(
    tokens: Sequence[int], tokenizer: TextTokenizer, stop: Sequence[str]
) -> tuple[str, list[str], int]:
    """The answer of a model that would write these tokens, the pieces that were told, the tokens it took."""
    taken = 0

    def instead(
        model: object, prompts: object, most: int, *_: object, on_tokens: Callable[..., Any], **__: object
    ) -> None:
        nonlocal taken
        for token in tokens:
            taken += 1
            if not on_tokens([(0, token)])[0]:
                return

    pieces: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "generate", instead)
        writer = Writer(model_for(tokenizer), tokenizer)
        (answer,) = writer.write(["a"], 9, stop=stop, on_text=lambda _, piece: pieces.append(piece))
    return answer, pieces, taken


STOPS = st.lists(
    st.sampled_from(["ab", "abc", "b ", "bb", "\u4eca", " \U0001f600", "\n\n", "", "\ufffda"]), max_size=3
)


@given(st.lists(st.integers(2, BYTES.vocab_size - 1), max_size=12), STOPS)
@example(BYTES.encode(["a\u4eca\u5929\U0001f600b"])[0], [])
@example(BYTES.encode(["\u4eca"])[0][:1], ["ab"])
@example([*BYTES.encode(["\U0001f600"])[0][:2], *BYTES.encode(["a"])[0]], ["\ufffda"])
@example(BYTES.encode(["ab aab abc"])[0], ["abc", "b a"])
def test_pieces_join_to_the_answer_up_to_the_first_stop(tokens: list[int], stop: list[str]) -> None:
    answer, pieces, taken = said_by(tokens, BYTES, stop)
    assert "".join(pieces) == answer and all(pieces)
    texts = [BYTES.decode([tokens[:n]])[0] for n in range(1, len(tokens) + 1)]
    ended = next((n for n, text in enumerate(texts) if any(s and s in text for s in stop)), None)
    if ended is None:
        assert taken == len(tokens) and answer == (texts[-1] if texts else "")
    else:
        assert taken == ended + 1
        assert answer == texts[ended][: min(texts[ended].index(s) for s in stop if s and s in texts[ended])]


@given(st.lists(st.sampled_from("ab c"), max_size=14), STOPS)
def test_what_may_become_a_stop_is_held_and_all_else_told_at_once(
    letters: list[str], stop: list[str]
) -> None:
    tokens = [index for ids in CHARACTERS.encode(letters) for index in ids]
    answer, pieces, _ = said_by(tokens, CHARACTERS, stop)
    assert "".join(pieces) == answer
    told = 0
    for count in range(1, len(letters) + 1):
        text = "".join(letters[:count])
        if any(s and s in text for s in stop):
            break
        # any later text that ends here may still be cut before a stop that has begun
        begun = [n for n in range(len(text)) if any(s.startswith(text[n:]) for s in stop)]
        certain = min(begun, default=len(text))
        told += certain > len("".join(pieces[:told]))
        assert "".join(pieces[:told]) == text[:certain]


def test_half_a_character_is_held_and_told_when_it_is_whole_or_the_end() -> None:
    ids = BYTES.encode(["x"])[0], BYTES.encode(["\u0b95"])[0]
    assert len(ids[1]) == 3
    assert said_by([*ids[0], *ids[1], *ids[0]], BYTES, [])[1] == ["x", "\u0b95", "x"]
    assert said_by([*ids[0], *ids[1][:2]], BYTES, [])[:2] == ("x\ufffd", ["x", "\ufffd"])


def test_a_stop_across_tokens_is_never_told_in_part() -> None:
    tokens = [index for letter in "ab abc" for index in CHARACTERS.encode([letter])[0]]
    answer, pieces, taken = said_by(tokens, CHARACTERS, ["abc"])
    assert (answer, "".join(pieces), taken) == ("ab ", "ab ", 6)
    assert pieces == ["ab "]  # "a" and "ab" might have become "abc"


@pytest.mark.parametrize("tokenizer", [CHARACTERS, BYTES], ids=["characters", "bpe"])
def test_a_batch_of_prompts_is_one_by_one(tokenizer: TextTokenizer) -> None:
    writer, greedy = Writer(model_for(tokenizer), tokenizer), Sampling(temperature=0)
    prompts = ["ab", "", "abc ab \u4eca\u5929 ab abc", "\n"]
    streamed = ["", "", "", ""]

    def listen(row: int, piece: str) -> None:
        streamed[row] += piece

    found = writer.write(prompts, 30, greedy, on_text=listen)
    assert found == streamed == [writer.write([prompt], 30, greedy)[0] for prompt in prompts]
    assert all(found) and writer.write([], 30) == []
    with pytest.raises(ConfigError, match="max_new_tokens must be at least 1"):
        writer.write(["ab"], 0)


def test_marks_are_never_written() -> None:
    writer = Writer(model_for(CHARACTERS), CHARACTERS)
    (text,) = writer.write(["ab"], 400, Sampling(temperature=30.0))
    assert "<" not in text and len(text) == 400


def test_a_prompt_begins_with_what_the_vocabulary_has() -> None:
    writer = Writer(model_for(CHARACTERS), CHARACTERS)
    assert writer.encode("ab") == CHARACTERS.encode(["ab"])[0]
    assert writer.encode("") == CHARACTERS.encode(["\n"])[0]
    ends = TextTokenizer.train([TEXT], "characters", 0, ("<end>",))
    assert Writer(model_for(ends), ends).encode("") == [ends.end_id]
    begins = TextTokenizer.train([TEXT], "characters", 0, ("</s>", "<s>"))
    assert Writer(model_for(begins), begins).encode("") == [begins.begin_id]


def test_an_answer_ends_with_the_end_mark() -> None:
    ends = TextTokenizer.train([TEXT], "characters", 0, ("<end>",))
    writer = Writer(model_for(ends), ends)
    found = writer.write(["a"] * 200, 60, Sampling(temperature=30.0))
    assert all("<" not in text for text in found)
    lengths = [len(text) for text in found]
    assert min(lengths) < 20 and len(set(lengths)) > 10


def test_unknown_characters_are_named() -> None:
    writer = Writer(model_for(CHARACTERS), CHARACTERS)
    with pytest.raises(
        DataError, match="made of characters that the model has seen: got 'X', 'Y' in 'aYXYb'; leave"
    ):
        writer.encode("aYXYb")
    with pytest.raises(DataError, match=rf"got 'X' in '{'a' * 37}\.\.\.'; leave"):
        writer.encode("a" * 41 + "X")
