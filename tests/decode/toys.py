"""Small random models whose sentences differ, and the oracles that searches are held against.

A fresh model is nearly indifferent between tokens; here the logits are spread, and the end mark gets
a bias, so that sentences differ in words and in length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.config import ModelConfig
from headwise.data.padding import pad_sources
from headwise.decode.beam import Hypothesis
from headwise.model.cache import DecoderCache
from headwise.model.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class ToyMarks:
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2


MARKS = ToyMarks()
CONFIG = ModelConfig(
    vocab_size=12,
    d_model=16,
    num_heads=2,
    d_ff=32,
    num_encoder_layers=1,
    num_decoder_layers=2,
    norm="pre",
    max_length=64,
    tie_embeddings=False,
)


class Toy(EncoderDecoder):
    """Logits spread by `sharpness`, with a bias for each token."""

    def __init__(self, config: ModelConfig, sharpness: float) -> None:
        super().__init__(config)
        self.register_buffer("bias", torch.zeros(self.output.out_features))
        with torch.no_grad():
            self.output.weight.mul_(sharpness)

    def logits(self, hidden: Tensor) -> Tensor:
        return super().logits(hidden) + self.bias


def toy(seed: int, end_bias: float = 0.0, sharpness: float = 2.5, **changes: object) -> Toy:
    torch.manual_seed(seed)
    model = Toy(replace(CONFIG, **changes), sharpness)
    model.bias[MARKS.eos_id] = end_bias
    return model.eval()


def toy_rows(seed: int, count: int, vocab_size: int = 12) -> list[list[int]]:
    """Sources of 0 to 7 tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 8, (count,), generator=generator).tolist()
    return [torch.randint(3, vocab_size, (n,), generator=generator).tolist() for n in lengths]


def source_of(rows: Sequence[Sequence[int]], more_padding: int = 0) -> Tensor:
    padded = pad_sources(rows, MARKS)
    return torch.nn.functional.pad(padded, (0, more_padding), value=MARKS.pad_id)


class WatchedCache(DecoderCache):
    """Remembers of each row what was written and from which source, through every reordering."""

    written: Tensor
    source: Tensor

    def select_hypotheses(self, rows: Tensor) -> None:
        super().select_hypotheses(rows)
        self.written = self.written[rows]

    def select_sentences(self, sentences: Tensor) -> None:
        super().select_sentences(sentences)
        self.source = self.source[sentences]


class NothingMovesCache(WatchedCache):
    """The wrong twin: a hypothesis takes over another one's place, but not its keys and values."""

    def select_hypotheses(self, rows: Tensor) -> None:
        DecoderCache.select_hypotheses(self, torch.arange(len(rows)))
        self.written = self.written[rows]


class Watched(Toy):
    """Sets every cached step beside the uncached pass, and notes how many rows each step had."""

    cache_type: type[WatchedCache] = WatchedCache
    compares: bool = True

    def __init__(self, config: ModelConfig, sharpness: float) -> None:
        super().__init__(config, sharpness)
        self.sources: list[tuple[int, int]] = []
        self.rows: list[int] = []
        self.sentences: list[int] = []
        self.largest_difference = 0.0

    def start(self, source: Tensor) -> DecoderCache:
        plain = super().start(source)
        self.sources.append((source.size(0), source.size(1)))
        if not self.compares:
            return plain
        cache = self.cache_type(plain.memory, plain.memory_keep)
        cache.source, cache.written = source, source.new_empty(0, 0)
        return cache

    def step(self, target: Tensor, cache: DecoderCache) -> Tensor:
        cached = super().step(target, cache)
        self.rows.append(target.size(0))
        self.sentences.append(cache.memory[0][0].size(0))
        if not self.compares:
            return cached
        assert isinstance(cache, WatchedCache)
        earlier = cache.written if cache.written.numel() else target.new_empty(target.size(0), 0)
        cache.written = torch.cat((earlier, target), dim=1)
        repeats = target.size(0) // cache.source.size(0)
        uncached = self.forward(cache.source.repeat_interleave(repeats, dim=0), cache.written)[:, -1]
        self.largest_difference = max(self.largest_difference, float((cached - uncached).abs().max()))
        return cached


def watch(model: Toy, cache_type: type[WatchedCache] = WatchedCache, *, compares: bool = True) -> Watched:
    """A watched model with the same weights; it may only count, which takes half the time."""
    watched = Watched(model.config, 1.0).to(model.output.weight.dtype)
    watched.load_state_dict(model.state_dict())
    watched.cache_type = cache_type
    watched.compares = compares
    return watched.eval()


@torch.no_grad()
def log_probabilities(model: EncoderDecoder, row: Sequence[int], written: Sequence[Sequence[int]]) -> Tensor:
    """log P of each next token after each of the written beginnings (all of one length), uncached."""
    source = source_of([row] * len(written))
    target = torch.tensor([[MARKS.bos_id, *w] for w in written])
    return model(source, target)[:, -1].log_softmax(-1)


def plain_greedy(model: EncoderDecoder, row: Sequence[int], max_length: int) -> list[int]:
    """Greedy decoding as one would write it first: one sentence, no cache."""
    written: list[int] = []
    while len(written) < max_length:
        log_p = log_probabilities(model, row, [written])[0]
        log_p[[MARKS.pad_id, MARKS.bos_id]] = -math.inf
        newest = int(log_p.argmax())
        if newest == MARKS.eos_id:
            break
        written.append(newest)
    return written


def plain_beam_search(
    model: EncoderDecoder, row: Sequence[int], beam_size: int, max_length: int, alpha: float
) -> list[Hypothesis]:
    """Beam search as one would write it first: one sentence, lists, no cache, no early stop.

    All that is found: the finished ones by score, then the unfinished ones.
    """
    going: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[Hypothesis] = []

    def found(ids: list[int], log_p: float, is_finished: bool) -> Hypothesis:
        length = len(ids) + is_finished
        return Hypothesis(ids, log_p / ((5 + length) / 6) ** alpha, log_p, is_finished)

    for _ in range(max_length):
        next_log_p = log_probabilities(model, row, [ids for _, ids in going])
        ways = [
            (log_p + float(next_log_p[parent, token]), ids, token)
            for parent, (log_p, ids) in enumerate(going)
            for token in range(next_log_p.size(1))
            if token not in (MARKS.pad_id, MARKS.bos_id)
        ]
        ways.sort(key=lambda way: -way[0])
        ended += [found(ids, p, True) for p, ids, token in ways[:beam_size] if token == MARKS.eos_id]
        going = [(p, [*ids, token]) for p, ids, token in ways if token != MARKS.eos_id][:beam_size]
        if len(ended) >= beam_size:
            break
    ended.sort(key=lambda hypothesis: -hypothesis.score)
    return ended + [found(ids, p, False) for p, ids in going]


def every_hypothesis(
    model: EncoderDecoder, row: Sequence[int], max_length: int, alpha: float
) -> list[Hypothesis]:
    """All sequences there are up to max_length, ranked: beam search with room for all of them."""
    return plain_beam_search(model, row, model.output.out_features**max_length, max_length, alpha)
