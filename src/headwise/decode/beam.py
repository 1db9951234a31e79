"""Beam search on tensors: every hypothesis of every sentence takes its step at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.data.padding import Marks
from headwise.decode.rules import evaluating, forbid_marks, forbidden_ids, length_limits, to_lists
from headwise.errors import ConfigError
from headwise.model.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class Hypothesis:
    """One way to write a sentence.

    ids: without marks.
    score: log_probability / gnmt_penalty(|Y|), by which hypotheses are ranked.
    log_probability: natural logarithm, of all tokens and the end mark.
    is_finished: False where max_length came before the end mark; ranked below those that ended.
    """

    ids: list[int]
    score: float
    log_probability: float
    is_finished: bool


_Length = TypeVar("_Length", float, Tensor)


def gnmt_penalty(length: _Length, alpha: float) -> _Length:
    """What a log-probability is divided by, so that long hypotheses can compare with short ones.

    lp(Y) = ((5 + |Y|) / 6)^alpha        Google's Neural Machine Translation System, eq. 14

    length: |Y| in tokens, the end mark counted. alpha 0 divides by 1.
    """
    return cast("_Length", ((5 + length) / 6) ** alpha)


def beam_search(
    model: EncoderDecoder,
    source: Int[Tensor, "B Ts"],
    marks: Marks,
    beam_size: int,
    max_length: int | Int[Tensor, " B"],
    length_penalty: float = 1.0,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The n_best hypotheses of each sentence, best first, among those that a beam of beam_size meets.

    score(Y) = log P(Y | x) / ((5 + |Y|) / 6)^length_penalty        see `gnmt_penalty`

    Each step ranks all continuations of a sentence by log P. Of the first beam_size, those that end
    are finished; the first beam_size that do not end go on. A sentence is done, and leaves the
    batch, when beam_size hypotheses are finished, when max_length is reached, or as soon as no
    hypothesis can still come among its n_best: log P only falls and |Y| <= max_length, so none will
    score above its log P / lp(max_length).

    source: as the encoder takes it, each row closed by the end mark and padded (`pad_sources`).
    max_length: most tokens to write, the end mark counted, for all sentences or for each.
    length_penalty: alpha of the formula; 0 ranks by log P alone.
    Returns fewer than n_best only where fewer exist. What max_length cut off gets no end mark: it
    fills the places that finished hypotheses leave free. Of equal scores the earlier one is kept:
    found in an earlier step, from a better ranked hypothesis, with a lower token id.
    Differs from the source: no coverage penalty, no pruning by score.

    Errors: ConfigError for a beam_size or n_best below 1, n_best above beam_size, a length_penalty
    below 0, or as `length_limits`.
    Law: with a beam that holds every sequence, the best of all sequences; with beam_size 1, `greedy`.
    """
    check_beam(beam_size, length_penalty, n_best)
    limits = length_limits(model, source, max_length)
    if source.size(0) == 0:
        return []
    with evaluating(model):
        cache = model.start(source)
        beam = _Beam.begin(source, limits, beam_size, n_best, length_penalty)
        newest = source.new_full((source.size(0) * beam_size, 1), marks.bos_id)
        found: list[list[Hypothesis]] = [[] for _ in range(source.size(0))]
        for step in range(1, int(limits.max()) + 1):
            parents = beam.advance(model.step(newest, cache), step, marks)
            done = beam.done(step)
            left = (~done).nonzero().flatten()
            if left.numel() < done.numel():
                _collect(found, beam, done.nonzero().flatten(), step)
                if left.numel() == 0:
                    break
                beam.select(left)
                cache.select_sentences(left)
            if beam_size > 1 or left.numel() < done.numel():
                cache.select_hypotheses((left[:, None] * beam_size + parents[left]).flatten())
            newest = beam.written[:, :, -1].reshape(-1, 1)
    return found


@dataclass
class _Beam:
    """The hypotheses of B sentences: K that go on, best first, and the best n that are finished.

    An empty place has log P = -inf.
    """

    sentences: Int[Tensor, " B"]  # where each stands in the batch that came
    limits: Int[Tensor, " B"]
    log_p: Float[Tensor, "B K"]
    written: Int[Tensor, "B K Tt"]
    ended_count: Int[Tensor, " B"]  # all that have ended, kept or not
    ended_score: Float[Tensor, "B n_best"]
    ended_log_p: Float[Tensor, "B n_best"]
    ended_length: Int[Tensor, "B n_best"]
    ended: Int[Tensor, "B n_best width"]
    alpha: float

    @classmethod
    def begin(
        cls, source: Int[Tensor, "B Ts"], limits: Int[Tensor, " B"], beam_size: int, n_best: int, alpha: float
    ) -> _Beam:
        """Nothing is written: one hypothesis a sentence, so that the first step brings K different ones."""
        size = source.size(0)
        log_p = torch.full((size, beam_size), -torch.inf, device=source.device)
        log_p[:, 0] = 0
        nothing = torch.full((size, n_best), -torch.inf, device=source.device)
        return cls(
            sentences=torch.arange(size, device=source.device),
            limits=limits,
            log_p=log_p,
            written=source.new_empty((size, beam_size, 0)),
            ended_count=limits.new_zeros(size),
            ended_score=nothing,
            ended_log_p=nothing,
            ended_length=limits.new_zeros(size, n_best),
            ended=source.new_empty((size, n_best, 0)),
            alpha=alpha,
        )

    def advance(self, logits: Float[Tensor, "BK V"], step: int, marks: Marks) -> Int[Tensor, "B K"]:
        """Take the best continuations, and say which hypothesis each of them continues."""
        size = self.log_p.size(1)
        log_p, parents, tokens = _continuations(logits, self.log_p, marks, 2 * size)
        is_end = tokens == marks.eos_id
        ends = is_end[:, :size] & (log_p[:, :size] > -torch.inf)
        if bool(ends.any()):
            self._finish(ends, log_p[:, :size], parents[:, :size], step)
        # a hypothesis ends in one way only, so at least K of 2K continuations do not end
        going = is_end.byte().argsort(dim=-1, stable=True)[:, :size]
        parents = parents.gather(1, going)
        self.log_p = log_p.gather(1, going)
        tokens = tokens.gather(1, going)
        self.written = torch.cat((_take(self.written, parents), tokens[:, :, None]), dim=-1)
        return parents

    def _finish(self, ends: Tensor, log_p: Tensor, parents: Tensor, step: int) -> None:
        """Merge those that end at this step into the kept ones."""
        keep = self.ended_score.size(1)
        score = log_p / gnmt_penalty(float(step), self.alpha)
        score = torch.cat((self.ended_score, score.masked_fill(~ends, -torch.inf)), dim=1)
        # stable, so that of equal scores the one found earlier stays
        score, order = score.sort(dim=1, descending=True, stable=True)
        best = order[:, :keep]
        self.ended_score = score[:, :keep]
        self.ended_log_p = torch.cat((self.ended_log_p, log_p), dim=1).gather(1, best)
        length = torch.full_like(parents, step - 1)
        self.ended_length = torch.cat((self.ended_length, length), dim=1).gather(1, best)
        self.ended = _take(_below(self.ended, _take(self.written, parents)), best)
        self.ended_count = self.ended_count + ends.sum(1)

    def done(self, step: int) -> Bool[Tensor, " B"]:
        """True for each sentence whose n best cannot change any more."""
        reachable = self.log_p[:, 0] / gnmt_penalty(self.limits.to(self.log_p.dtype), self.alpha)
        nothing_better = reachable <= self.ended_score[:, -1]  # holds too where nothing goes on
        return (self.limits <= step) | (self.ended_count >= self.log_p.size(1)) | nothing_better

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[sentences])


def _take(rows: Int[Tensor, "B K width"], chosen: Int[Tensor, "B N"]) -> Int[Tensor, "B N width"]:
    return rows.gather(1, chosen[:, :, None].expand(-1, -1, rows.size(2)))


def _continuations(
    logits: Float[Tensor, "BK V"], log_p: Float[Tensor, "B K"], marks: Marks, count: int
) -> tuple[Float[Tensor, "B count"], Int[Tensor, "B count"], Int[Tensor, "B count"]]:
    """The best continuations of each sentence: their log P, whom they continue, and by which token."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    never = logits[:, forbidden_ids(marks)]
    forbid_marks(logits, marks)
    # none but the best of each hypothesis can be among the best of its sentence
    best, ids = _best(logits, min(count, logits.size(1)))
    # logsumexp, spelt out: a copy of all logits costs more here than all else that follows the model
    highest = torch.cat((best, never), dim=1).amax(1, keepdim=True)
    rest = logits.sub_(highest).exp_().sum(1, keepdim=True)
    normaliser = highest + (rest + (never - highest).exp_().sum(1, keepdim=True)).log_()
    total = ((best - normaliser).view(*log_p.shape, -1) + log_p[:, :, None]).flatten(1)
    # stable: of equal ones the one of the better hypothesis, then of the lower id, comes first
    total, order = total.sort(dim=1, descending=True, stable=True)
    order = order[:, :count]
    tokens = ids.reshape(log_p.size(0), -1).gather(1, order)
    return total[:, :count], order // ids.size(1), tokens


def _best(logits: Float[Tensor, "N V"], count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest logits of each row and their ids, by rising id; of equal ones the lower ids."""
    if count < logits.size(1):
        values, ids = logits.topk(count + 1)
        # topk takes any of equal values, which matters only where the last taken equals the first left
        is_clear = bool((values[:, -1] != values[:, -2]).all())
        ids = ids[:, :-1] if is_clear else logits.argsort(dim=1, descending=True, stable=True)[:, :count]
        ids = ids.sort(dim=1).values
    else:
        ids = torch.arange(count, device=logits.device).expand(logits.size(0), -1)
    return logits.gather(1, ids), ids


def _below(shorter: Int[Tensor, "B K width"], longer: Int[Tensor, "B N Tt"]) -> Int[Tensor, "B KN Tt"]:
    """Both in one tensor; what fills the shorter rows is never read."""
    return torch.cat((F.pad(shorter, (0, longer.size(2) - shorter.size(2))), longer), dim=1)


def _collect(found: list[list[Hypothesis]], beam: _Beam, done: Int[Tensor, " N"], step: int) -> None:
    """Turn the hypotheses of sentences that are done into lists: first those that ended."""
    keep = beam.ended_score.size(1)
    going = beam.log_p[:, :keep]
    going_score = going / gnmt_penalty(float(step), beam.alpha)
    # an empty place may carry a log P, but its score is -inf
    score = to_lists(torch.cat((beam.ended_score, going_score), dim=1)[done])
    log_p = to_lists(torch.cat((beam.ended_log_p, going), dim=1)[done])
    ids = to_lists(_below(beam.ended, beam.written[:, :keep])[done])
    lengths = to_lists(F.pad(beam.ended_length, (0, keep), value=step)[done])
    for row, sentence in enumerate(to_lists(beam.sentences[done])):
        places = [place for place in range(2 * keep) if score[row][place] > -torch.inf][:keep]
        found[sentence] = [
            Hypothesis(ids[row][p][: lengths[row][p]], score[row][p], log_p[row][p], is_finished=p < keep)
            for p in places
        ]


def check_beam(beam_size: int, length_penalty: float, n_best: int = 1) -> None:
    """Refuse what `beam_search` cannot do: ConfigError as there."""
    if beam_size < 1:
        raise ConfigError(f"beam_size must be at least 1: got {beam_size}; 1 is greedy decoding")
    if not 1 <= n_best <= beam_size:
        remedy = "1 asks for the best" if n_best < 1 else f"raise beam_size to {n_best} or ask for fewer"
        raise ConfigError(
            f"n_best must lie between 1 and beam_size: got n_best={n_best}, beam_size={beam_size}; {remedy}"
        )
    if not 0 <= length_penalty <= 10:  # powers of a length soon pass float32
        raise ConfigError(
            f"length_penalty must lie between 0 and 10: got {length_penalty}; 0 turns it off, 1 is usual"
        )
