"""Greedy decoding: always the most probable next token."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.data.padding import Marks
from headwise.decode.rules import evaluating, forbid_marks, length_limits, to_lists
from headwise.model.encoder_decoder import EncoderDecoder


def greedy(
    model: EncoderDecoder,
    source: Int[Tensor, "B Ts"],
    marks: Marks,
    max_length: int | Int[Tensor, " B"],
) -> list[list[int]]:
    """Write each sentence token by token, the most probable one each time.

    y_t = argmax_y P(y | y_<t, x);  of equally probable tokens the one with the lower id

    source: as the encoder takes it, each row closed by the end mark and padded (`pad_sources`).
    max_length: most tokens to write, the end mark counted, for all sentences or for each.
    Returns the ids of each sentence without marks. A sentence leaves the batch when it has ended.

    Errors: ConfigError as `length_limits`.
    Law: equal to `beam_search` with beam_size 1.
    """
    limits = length_limits(model, source, max_length)
    if source.size(0) == 0:
        return []
    longest = int(limits.max())
    written = source.new_full((source.size(0), longest), marks.eos_id)
    rows = torch.arange(source.size(0), device=source.device)  # of those still writing
    newest = source.new_full((source.size(0),), marks.bos_id)
    with evaluating(model):
        cache = model.start(source)
        for step in range(longest):
            logits = model.step(newest[:, None], cache)
            forbid_marks(logits, marks)
            newest = logits.argmax(-1)
            written[rows, step] = newest
            goes_on = (newest != marks.eos_id) & (limits > step + 1)
            if bool(goes_on.all()):
                continue
            left = goes_on.nonzero().flatten()
            if left.numel() == 0:
                break
            rows, limits, newest = rows[left], limits[left], newest[left]
            cache.select_sentences(left)
            cache.select_hypotheses(left)
    lists: list[list[int]] = to_lists(written)
    return [row[: row.index(marks.eos_id)] if marks.eos_id in row else row for row in lists]
