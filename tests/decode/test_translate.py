from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from decode.toys import MARKS, Toy, Watched, source_of, toy, watch
from headwise.data.tokenizer import Tokenizer
from headwise.decode.beam import beam_search
from headwise.decode.greedy import greedy
from headwise.decode.rules import default_limit
from headwise.decode.translate import Translation, Translator
from headwise.errors import ConfigError

TEXTS = ["a man in a red hat", "two dogs run", "a dog", "a red dog runs in the snow and the man", "snow", "!"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, 48, ["<de>"])


def model_for(tokenizer: Tokenizer, end_bias: float = 1.0, **changes: object) -> Toy:
    return toy(1, end_bias, vocab_size=tokenizer.vocab_size, **changes)


def watched_for(tokenizer: Tokenizer, end_bias: float = 1.0) -> Watched:
    return watch(model_for(tokenizer, end_bias), compares=False)


def test_a_translation_is_the_search_between_encode_and_decode(tokenizer: Tokenizer) -> None:
    model = model_for(tokenizer)
    rows = tokenizer.encode(TEXTS)
    limits = torch.tensor([min(2 * (len(row) + 1) + 20, 64) for row in rows])
    found = beam_search(model, source_of(rows), MARKS, 3, limits, 0.6, 2)
    translator = Translator(model, tokenizer, beam_size=3, length_penalty=0.6)
    assert translator.translate(TEXTS) == tokenizer.decode([row[0].ids for row in found])
    assert len(set(translator.translate(TEXTS))) > 3
    for ours, row in zip(translator.n_best(TEXTS, 2), found, strict=True):
        assert [t.text for t in ours] == tokenizer.decode([h.ids for h in row])
        assert [t.score for t in ours] == pytest.approx([h.score for h in row], abs=1e-4)
    written = greedy(model, source_of(rows), MARKS, limits)
    assert Translator(model, tokenizer, beam_size=1).translate(TEXTS) == tokenizer.decode(written)


@pytest.mark.parametrize(("batch_tokens", "window"), [(1, 4), (60, 5), (200, 1), (10_000, 100)])
def test_batches_and_windows_change_nothing(tokenizer: Tokenizer, batch_tokens: int, window: int) -> None:
    model = model_for(tokenizer)
    lines = ["", *TEXTS[1:4], "  ", "a dog", "\t\u3000", TEXTS[0]]
    alone = Translator(model, tokenizer, beam_size=2, max_length=6)
    expected = [alone.translate([line])[0] for line in lines]
    translator = Translator(model, tokenizer, beam_size=2, max_length=6, batch_tokens=batch_tokens)
    assert list(translator.stream([line + "\n" for line in lines], window)) == expected
    assert [found[0].text for found in translator.stream_n_best(lines, 2, window)] == expected
    assert translator.translate(lines) == expected


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_batch_holds_no_more_than_batch_tokens(tokenizer: Tokenizer, beam_size: int) -> None:
    model = watched_for(tokenizer)
    Translator(model, tokenizer, beam_size=beam_size, max_length=2, batch_tokens=120).translate(TEXTS * 5)
    sizes = model.sources
    assert sum(rows for rows, _ in sizes) == len(TEXTS) * 5
    assert all(rows * beam_size * length <= 120 for rows, length in sizes)
    assert max(rows for rows, _ in sizes) > 3
    longest = max(len(row) + 1 for row in tokenizer.encode(TEXTS))
    model.sources.clear()
    Translator(model, tokenizer, beam_size=beam_size, max_length=2, batch_tokens=1).translate(TEXTS)
    assert [rows for rows, _ in model.sources] == [1] * len(TEXTS)  # one at least, however long
    assert max(length for _, length in model.sources) == longest


def test_rows_of_a_batch_are_about_equally_long(tokenizer: Tokenizer) -> None:
    model = watched_for(tokenizer)
    texts = ["a dog", "a man in the snow and a man in the snow"] * 8
    Translator(model, tokenizer, beam_size=1, max_length=2, batch_tokens=100).translate(texts)
    lengths = [len(row) + 1 for row in tokenizer.encode(texts)]
    assert sum(rows * length for rows, length in model.sources) < 1.2 * sum(lengths)


def test_lines_without_words_cost_nothing_and_keep_their_place(tokenizer: Tokenizer) -> None:
    model = watched_for(tokenizer)
    translator = Translator(model, tokenizer, beam_size=2, max_length=9)
    assert list(translator.stream(["\n", " \r\n", "", "\u3000\n"])) == [""] * 4
    assert translator.n_best(["", " "], 2) == [[Translation("", 0.0)]] * 2
    assert translator.translate([]) == []
    assert model.sources == []
    out = translator.translate(["", "a dog", ""])
    assert out[0] == out[2] == "" and out[1] == translator.translate(["a dog"])[0] != ""


def test_a_stream_is_read_a_window_ahead_and_no_further(tokenizer: Tokenizer) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "a dog\n" if read % 50 == 0 else "\n"

    out = Translator(model_for(tokenizer), tokenizer, beam_size=2, max_length=4).stream(endless(), window=100)
    assert read == 0
    for written in range(1, 351):
        next(out)
        assert written <= read <= written + 99
    answering = Translator(model_for(tokenizer), tokenizer, beam_size=2, max_length=4).stream(
        endless(), window=1
    )
    read = 0
    for written in range(1, 4):
        next(answering)
        assert read == written


def test_a_hundred_thousand_lines_go_through(tokenizer: Tokenizer) -> None:
    lines = ("a dog\n" if number % 10_000 == 0 else "\n" for number in range(100_000))
    out = Translator(model_for(tokenizer), tokenizer, beam_size=1, max_length=4).stream(lines)
    filled = [number for number, line in enumerate(out) if line]
    assert filled == list(range(0, 100_000, 10_000))
    assert next(lines, None) is None


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_too_long_a_line_is_cut_and_counted(tokenizer: Tokenizer, positions: str) -> None:
    said: list[str] = []
    model = watch(model_for(tokenizer, positions=positions), compares=False)
    translator = Translator(model, tokenizer, beam_size=2, max_length=9, warn=said.append)
    fits = "!" * 62  # the space in front is a token of its own, so 63 and the end mark
    assert [len(row) for row in tokenizer.encode([fits])] == [63]
    lines = ["a dog", fits, fits + "!", "", fits + " two dogs run"]
    out = list(translator.stream(lines, window=2))
    assert out[1] == out[2] == out[4] != ""
    assert said == [
        "line 3 has 64 tokens, the model reads 63: the rest is left out",
        "2 lines had more than 63 tokens and were cut",
    ]
    assert max(length for _, length in model.sources) == 64
    said.clear()
    translator.translate(lines[:3])
    assert len(said) == 1
    translator.translate(lines[:2])
    assert len(said) == 1
    with pytest.warns(UserWarning, match="line 3 has 64 tokens"):
        Translator(model, tokenizer, max_length=9).translate(lines[:3])


def test_a_beam_of_one_is_greedy_and_has_its_own_score(tokenizer: Tokenizer) -> None:
    model = model_for(tokenizer)
    translator = Translator(model, tokenizer, beam_size=1, length_penalty=0.6)
    rows = tokenizer.encode(TEXTS)
    limits = torch.tensor([default_limit(model, len(row) + 1) for row in rows])
    wanted = [found[0] for found in beam_search(model, source_of(rows), MARKS, 1, limits, 0.6)]
    found = [best[0] for best in translator.n_best(TEXTS, 1)]
    assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-4)
    assert all(one.score < 0 for one in found)
    assert [one.text for one in found] == translator.translate(TEXTS) == list(translator.stream(TEXTS))
    assert [best[0] for best in translator.stream_n_best(TEXTS, 1)] == found


def test_how_long_a_translation_may_be(tokenizer: Tokenizer) -> None:
    endless = watched_for(tokenizer, end_bias=-1e4)

    def steps(text: str, **options: int) -> int:
        endless.rows.clear()
        Translator(endless, tokenizer, beam_size=2, **options).translate([text])
        return len(endless.rows)

    tokens = len(tokenizer.encode(["a dog"])[0]) + 1
    assert steps("a dog") == 2 * tokens + 20
    assert steps("!" * 40) == 64
    assert steps("!" * 40, max_length=5) == 5
    assert steps("a dog", max_length=64) == 64


def test_a_translation_is_one_line() -> None:
    tokenizer = Tokenizer.train(["a\nb\rc"], 16)
    model = toy(1, -1e4, vocab_size=tokenizer.vocab_size)
    for row in tokenizer.encode(["\n\r"]):
        model.bias[row[1:]] = 1e3
    out = Translator(model, tokenizer, beam_size=2, max_length=5).translate(["a"])[0]
    assert len(out) >= 4 and not out.strip(" ")


def test_mode_and_random_numbers_are_left_alone(tokenizer: Tokenizer) -> None:
    model = model_for(tokenizer).train()
    state = torch.get_rng_state()
    out = Translator(model, tokenizer, beam_size=2, max_length=9).translate(TEXTS)
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert out == Translator(model.eval(), tokenizer, beam_size=2, max_length=9).translate(TEXTS)


def test_settings_that_cannot_be_are_refused_before_anything_is_read(tokenizer: Tokenizer) -> None:
    model = model_for(tokenizer)
    for options, message in [
        ({"beam_size": 0}, "beam_size must be at least 1"),
        ({"length_penalty": -1.0}, "length_penalty must lie between 0 and 10"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1: got 0; 4096 is usual"),
        ({"max_length": 0}, "max_length must lie between 1 and the model's max_length: got 0"),
        ({"max_length": 65}, "got 65, the model has 64"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Translator(model, tokenizer, **options)
    translator = Translator(model, tokenizer, beam_size=2)
    with pytest.raises(ConfigError, match="n_best must lie between 1 and beam_size: got n_best=3"):
        translator.n_best(TEXTS, 3)
    with pytest.raises(ConfigError, match="n_best must lie"):
        translator.stream_n_best(iter(TEXTS), 0)
    with pytest.raises(ConfigError, match="window must be at least 1: got 0; 1 answers each line"):
        translator.stream_n_best(iter(TEXTS), 1, window=0)
    with pytest.raises(ConfigError, match="window must be at least 1"):
        translator.stream(iter(TEXTS), window=0)
