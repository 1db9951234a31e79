"""Each filter against a slow one in numpy; rows of a batch as if alone; cached as if read anew."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headwise.config import ModelConfig
from headwise.decode import sample
from headwise.decode.sample import generate, next_tokens
from headwise.decode.sampling import Sampling
from headwise.errors import ConfigError, DataError
from headwise.model.language_model import LanguageModel

# logits in steps that no sum of probabilities comes near to
LOGITS = st.lists(st.integers(-8, 8).map(lambda n: 0.37 * n), min_size=1, max_size=12, unique=True)
SETTINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.none() | st.integers(1, 14),
    top_p=st.none() | st.sampled_from([0.05, 0.303, 0.707, 0.951]),
    min_p=st.none() | st.sampled_from([0.0101, 0.1303, 0.5207]),
    repetition_penalty=st.sampled_from([1.0, 1.7, 0.6]),
)


def naive(logits: list[float], sampling: Sampling, seen: list[bool]) -> np.ndarray:
    """The probability of each token, filter by filter, with nothing sorted or kept in place."""
    scores = np.array(logits, dtype=np.float64)
    for place, value in enumerate(scores):
        if seen[place]:
            penalty = sampling.repetition_penalty
            scores[place] = value / penalty if value > 0 else value * penalty
    probability = np.exp(scores / sampling.temperature) / np.exp(scores / sampling.temperature).sum()
    ranks = [sorted(range(len(scores)), key=lambda n: (-scores[n], n)).index(n) for n in range(len(scores))]
    if sampling.top_k is not None:
        probability = np.where(np.array(ranks) < sampling.top_k, probability, 0)
        probability /= probability.sum()
    if sampling.top_p is not None:
        above = [sum(p for p, r in zip(probability, ranks, strict=True) if r < rank) for rank in ranks]
        probability = np.where(np.array(above) < sampling.top_p, probability, 0)
        probability /= probability.sum()
    if sampling.min_p is not None:
        probability = np.where(probability >= sampling.min_p * probability.max(), probability, 0)
        probability /= probability.sum()
    return probability


def drawn_from(logits: Tensor, sampling: Sampling, seen: Tensor) -> np.ndarray:
    """The probabilities that `next_tokens` draws from, by token."""
    given_to: list[Tensor] = []
    ordered: list[Tensor] = []
    multinomial, sort = torch.multinomial, Tensor.sort

    def note(probability: Tensor, count: int, **rest: object) -> Tensor:
        given_to.append(probability)
        return multinomial(probability, count)

    def note_order(self: Tensor, **rest: object) -> object:
        found = sort(self, **rest)  # type: ignore[call-overload]
        ordered.append(found.indices)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", note)
        patch.setattr(Tensor, "sort", note_order)
        next_tokens(logits, sampling, seen=seen)
    return torch.zeros_like(logits).scatter_(1, ordered[0], given_to[0]).numpy()


@given(LOGITS, SETTINGS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_every_filter_is_the_naive_one(logits: list[float], sampling: Sampling, seen: list[bool]) -> None:
    row, marked = torch.tensor([logits]), torch.tensor([seen[: len(logits)]])
    expected = naive(logits, sampling, seen)
    if (
        np.unique(expected).size < expected.size
        and (expected > 0).sum() > 1
        and sampling.repetition_penalty != 1
    ):
        penalised = np.sort(expected[expected > 0])
        if (np.diff(penalised) < 1e-6).any():
            return  # a penalty has brought two tokens so close that rounding decides
    np.testing.assert_allclose(drawn_from(row, sampling, marked)[0], expected, atol=2e-6)


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]]).expand(20_000, 4)
    counts = torch.bincount(
        next_tokens(logits, Sampling(top_k=3), torch.Generator().manual_seed(3)), minlength=4
    )
    expected = naive([2.0, 1.0, 0.0, -1.0], Sampling(top_k=3), [False] * 4)
    assert counts[3] == 0
    error = 4 * np.sqrt(expected * (1 - expected) / 20_000)
    assert (np.abs(counts.numpy() / 20_000 - expected) <= error).all()


@given(st.lists(st.lists(st.floats(-50, 50, width=32), min_size=5, max_size=5), min_size=1, max_size=4))
def test_temperature_0_and_top_k_1_take_the_highest(rows: list[list[float]]) -> None:
    logits = torch.tensor(rows)
    first = torch.tensor([row.index(max(row)) for row in rows])
    for sampling in (
        Sampling(temperature=0),
        Sampling(top_k=1),
        Sampling(top_p=1e-9),
        Sampling(temperature=1e-300),
    ):
        found = next_tokens(logits, sampling)
        assert (logits.gather(1, found[:, None])[:, 0] == logits.max(1).values).all()
        if sampling.temperature != 1e-300 and sampling.min_p is None:
            assert torch.equal(found, first)


@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-30, 1e30, 1e300])
def test_no_temperature_makes_anything_but_a_token(temperature: float) -> None:
    logits = torch.tensor([[3.0, -torch.inf, 1.0, -60000.0]]).expand(50, 4)
    found = next_tokens(logits, Sampling(temperature=temperature))
    assert not (found == 1).any()
    assert (found == 0).all() if temperature < 1 else len(found.unique()) == 3


def model_of(max_length: int = 16, **changes: object) -> LanguageModel:
    settings: dict[str, object] = {"num_encoder_layers": 0, "num_decoder_layers": 2, "max_length": max_length}
    settings |= {"vocab_size": 11, "d_model": 16, "num_heads": 2, "d_ff": 32, "pad_id": None, "dropout": 0.5}
    torch.manual_seed(1)
    model = LanguageModel(ModelConfig(**{**settings, **changes})).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that the text does not repeat a single token
    return model


MODELS: dict[str, dict[str, object]] = {
    "sinusoidal": {},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary", "num_kv_heads": 1},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "window": {"positions": "rotary", "window": 4},
}
PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6, 5, 3, 5], [8], [9, 7, 9, 3] * 6]
GREEDY = Sampling(temperature=0)


def by_hand(model: LanguageModel, prompt: list[int], count: int) -> list[int]:
    """Token after token, everything read anew each time: no cache, no padding, no batch.

    Tokens of the text are divided by five, or the text would soon repeat one token and prove little.
    """
    reach, read, written = model.config.max_length, prompt[-model.config.max_length :], list[int]()
    model.eval()
    for _ in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([read]))[0, -1]
        for token in {*prompt, *written}:
            logits[token] *= 0.2 if logits[token] > 0 else 5
        written.append(int(logits.argmax()))
        if len(read) >= reach:
            read = read[len(read) + 1 - reach // 2 :]
        read = [*read, written[-1]]
    return written


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_is_its_rows_and_the_cache_changes_nothing(name: str) -> None:
    """Far past max_length too, where each row goes on from its own later half."""
    model, sampling = model_of(vocab_size=67, **MODELS[name]), Sampling(temperature=0, repetition_penalty=5.0)
    expected = [by_hand(model, prompt, 40) for prompt in PROMPTS]
    assert all(len(set(row[-20:])) > 5 for row in expected)
    assert [generate(model, [prompt], 40, sampling)[0] for prompt in PROMPTS] == expected
    assert generate(model, PROMPTS, 40, sampling) == expected


def test_a_model_of_one_position_goes_on() -> None:
    model = model_of(max_length=1)
    assert generate(model, [[3, 1], [4]], 5, GREEDY) == [generate(model, [[n]], 5, GREEDY)[0] for n in (1, 4)]


def test_a_row_that_ends_leaves_the_others_as_they_are() -> None:
    model = model_of()
    whole = generate(model, PROMPTS, 30, GREEDY)
    end = whole[1][4]
    found = generate(model, PROMPTS, 30, GREEDY, end_ids=[end])
    assert found == [row[: row.index(end)] if end in row else row for row in whole]
    assert {len(row) for row in found} != {30}


def test_a_listener_is_told_of_every_token_and_may_stop_a_row() -> None:
    model = model_of()
    whole = generate(model, PROMPTS, 30, GREEDY)
    told: list[list[int]] = [[] for _ in PROMPTS]

    def listen(news: list[tuple[int, int]]) -> list[bool]:
        for row, token in news:
            told[row].append(token)
        return [len(told[row]) < 3 + 9 * row for row, _ in news]

    found = generate(model, PROMPTS, 30, GREEDY, on_tokens=listen)
    assert found == told == [row[: 3 + 9 * number] for number, row in enumerate(whole)]


def test_seeds_decide_and_nothing_else_is_drawn() -> None:
    model = model_of()
    before = torch.get_rng_state()
    first = generate(model, PROMPTS, 20, seed=1)
    assert generate(model, PROMPTS, 20, seed=1) == first != generate(model, PROMPTS, 20, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_forbidden_tokens_are_never_written() -> None:
    found = generate(model_of(), PROMPTS, 60, Sampling(temperature=50.0), forbidden_ids=[0, 7])
    written = {token for row in found for token in row}
    assert written == set(range(11)) - {0, 7}


def test_a_repetition_penalty_knows_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what the model no longer reads."""
    marked: list[list[list[int]]] = []

    def note(logits: Tensor, sampling: Sampling, generator: object, seen: Tensor) -> Tensor:
        marked.append([row.nonzero()[:, 0].tolist() for row in seen])
        return torch.full((len(logits),), 10 if len(marked) == 1 else 9)

    monkeypatch.setattr(sample, "next_tokens", note)
    generate(model_of(max_length=4), [[1, 2, 3, 4, 5, 6, 7], [8]], 12, Sampling(repetition_penalty=2.0))
    assert marked[0] == [[1, 2, 3, 4, 5, 6, 7], [8]]
    assert marked[1] == [[1, 2, 3, 4, 5, 6, 7, 10], [8, 10]]
    assert all(step == [[1, 2, 3, 4, 5, 6, 7, 9, 10], [8, 9, 10]] for step in marked[2:])


def test_a_penalty_keeps_a_text_from_repeating() -> None:
    model = model_of()
    plain, penalised = (
        generate(model, [[3]], 10, Sampling(temperature=0, repetition_penalty=penalty))[0]
        for penalty in (1.0, 100.0)
    )
    assert len(set(penalised)) > len(set(plain))


def test_no_prompts_no_answers_and_what_cannot_be_is_refused() -> None:
    model = model_of()
    assert generate(model, [], 3) == []
    with pytest.raises(ConfigError, match="max_new_tokens must be at least 1: got 0"):
        generate(model, [[1]], 0)
    with pytest.raises(ConfigError, match="every prompt must have at least one token: got an empty one"):
        generate(model, [[1], []], 3)
    for prompts, got in (([[1], [2, 11]], "got 11 in"), ([[1], [-1]], "got -1 in")):
        with pytest.raises(DataError, match=rf"model's vocabulary, 0 to 10: {got} prompts\[1\]; encode"):
            generate(model, prompts, 3)


def test_prompts_may_be_tensors() -> None:
    model, sampling = model_of(), GREEDY
    expected = generate(model, [[3, 1, 4], [1, 5, 9]], 5, sampling)
    assert generate(model, torch.tensor([[3, 1, 4], [1, 5, 9]]), 5, sampling) == expected
    assert generate(model, [torch.tensor([3, 1, 4]), [1, 5, 9]], 5, sampling) == expected
    assert generate(model, torch.empty(0, 4, dtype=torch.long), 5) == []
    with pytest.raises(ConfigError, match=r"must have at least one token: got an empty one, prompts\[0\]"):
        generate(model, torch.empty(2, 0, dtype=torch.long), 5)


PROMPTS_THAT_ARE_NONE = {
    "[3, 1]": "got 3 as prompts[0]; a prompt alone is [prompt]",
    "torch.tensor([3, 1])": "got 3 as prompts[0]; a prompt alone is [prompt]",
    "torch.tensor(3)": "got 3 as prompts; a prompt alone is [prompt]",
    "'text'": "got 'text' as prompts; a prompt alone is [prompt], and a text is for Writer",
    "['text']": "got 'text' as prompts[0]; a prompt alone is [prompt], and a text is for Writer",
    "[[1.0]]": "rows of whole numbers: got 1.0 in prompts[0]; encode",
    "[['a']]": "rows of whole numbers: got 'a' in prompts[0]; encode",
    "torch.tensor([[[1]]])": "rows of whole numbers: got [1] in prompts[0]; encode",
    "torch.tensor([[True]])": "rows of whole numbers: got True in prompts[0]; encode",
}


def test_prompts_that_are_no_rows_of_ids_are_refused() -> None:
    """In a process without the checks of the tests, which would refuse them first."""
    code = (
        "import headwise, torch\n"
        "model = headwise.LanguageModel(headwise.ModelConfig(\n"
        "    num_encoder_layers=0, num_decoder_layers=1, d_model=8, num_heads=2, vocab_size=9))\n"
        f"for prompts in ({', '.join(PROMPTS_THAT_ARE_NONE)}):\n"
        "    try: headwise.generate(model, prompts, 2)\n"
        "    except headwise.ConfigError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert len(lines) == len(PROMPTS_THAT_ARE_NONE)
    for line, said in zip(lines, PROMPTS_THAT_ARE_NONE.values(), strict=True):
        assert line.startswith("prompts must be rows of ") and said in line
