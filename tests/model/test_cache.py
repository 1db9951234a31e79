"""The growing store of keys and values, and what a selection keeps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise.model.cache import DecoderCache, KeyValues, TextCache


def pairs(length: int, rows: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 3, length, 5), torch.randn(rows, 3, length, 5)


@pytest.mark.parametrize("sizes", [[1] * 40, [15, 1, 1, 20], [40], [16, 16, 16], [3, 17, 1, 50]])
def test_everything_appended_comes_back_in_order(sizes: list[int]) -> None:
    store = KeyValues()
    keys, values = pairs(sum(sizes))
    end = 0
    for k, v in zip(keys.split(sizes, dim=2), values.split(sizes, dim=2), strict=True):
        end += k.size(2)
        so_far = store.append(k, v)
        assert store.length == end
        assert torch.equal(so_far[0], keys[:, :, :end])
        assert torch.equal(so_far[1], values[:, :, :end])


def test_room_doubles_so_that_few_steps_copy() -> None:
    store, rooms = KeyValues(), []
    for _ in range(300):
        keys, _ = store.append(*pairs(1))
        rooms.append(keys.untyped_storage().nbytes())
    assert len(set(rooms)) <= 6
    assert rooms[-1] <= 2 * 300 * 4 * 3 * 5 * 4


def test_selected_rows_go_on_by_themselves() -> None:
    store, (keys, values) = KeyValues(), pairs(20)
    store.append(keys, values)
    rows = torch.tensor([3, 0, 0])
    store.select(rows)
    more = pairs(1, rows=3)
    so_far = store.append(*more)
    assert torch.equal(so_far[0], torch.cat((keys[rows], more[0]), dim=2))
    assert torch.equal(so_far[1], torch.cat((values[rows], more[1]), dim=2))
    so_far[0][1, 0, -1] += 1  # rows 1 and 2 were the same hypothesis, and share nothing now
    assert not torch.equal(so_far[0][1], so_far[0][2])


def test_selecting_before_anything_is_written_is_allowed() -> None:
    store = KeyValues()
    store.select(torch.tensor([0, 0]))
    assert store.length == 0
    assert store.append(*pairs(2))[0].shape == (4, 3, 2, 5)


def decoder_cache(lengths: list[int], longest: int, blocks: int = 2) -> DecoderCache:
    keep = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]
    return DecoderCache([pairs(longest, len(lengths)) for _ in range(blocks)], keep)


def test_each_block_has_a_store_of_its_own() -> None:
    cache = decoder_cache([7, 4], 7, blocks=3)
    assert len(set(map(id, cache.self_attention))) == 3
    assert cache.length == 0
    for store in cache.self_attention:
        store.append(*pairs(2))
    assert cache.length == 2


def test_sentences_are_kept_in_the_order_asked_and_padding_that_none_needs_goes() -> None:
    cache = decoder_cache([7, 4, 2], 9)
    before = list(cache.memory)
    cache.select_sentences(torch.tensor([2, 1]))
    assert cache.memory_keep.tolist() == [[[[True, True, False, False]]], [[[True] * 4]]]
    for (k, v), (old_k, old_v) in zip(cache.memory, before, strict=True):
        assert torch.equal(k, old_k[[2, 1], :, :4])
        assert torch.equal(v, old_v[[2, 1], :, :4])


def test_padding_in_the_middle_stays() -> None:
    cache = decoder_cache([7, 4], 7)
    cache.memory_keep[1, ..., 1] = False
    cache.select_sentences(torch.tensor([1]))
    assert cache.memory_keep.tolist() == [[[[True, False, True, True]]]]


@pytest.mark.parametrize("sentences", [[1], []], ids=["all padding", "no sentence"])
def test_a_selection_without_tokens_keeps_one_position(sentences: list[int]) -> None:
    cache = decoder_cache([3, 0], 3)
    cache.select_sentences(torch.tensor(sentences, dtype=torch.long))
    assert cache.memory_keep.shape == (len(sentences), 1, 1, 1)
    assert cache.memory[0][0].shape == (len(sentences), 3, 1, 5)


def test_hypotheses_are_reordered_in_every_block() -> None:
    cache = decoder_cache([7, 4], 7)
    written = [pairs(3) for _ in cache.self_attention]
    for store, pair in zip(cache.self_attention, written, strict=True):
        store.append(*pair)
    rows = torch.tensor([1, 1, 3])
    cache.select_hypotheses(rows)
    for store, (keys, _) in zip(cache.self_attention, written, strict=True):
        assert torch.equal(store.append(*pairs(1, rows=3))[0][:, :, :3], keys[rows])


# a decoder-only model's memory


def text_cache(blocks: int = 2) -> TextCache:
    return TextCache([KeyValues() for _ in range(blocks)])


def write(cache: TextCache, length: int, rows: int = 3, keep: Tensor | None = None) -> Tensor | None:
    known = cache.extend(rows, length, keep)
    for store in cache.blocks:
        store.append(*pairs(length, rows))
    return known


def test_without_padding_nothing_is_noted() -> None:
    cache = text_cache()
    assert cache.length == 0
    assert write(cache, 4) is None and write(cache, 1) is None
    assert cache.length == 5 and cache.keep is None


def test_padding_is_remembered_and_what_nothing_was_said_of_is_real() -> None:
    cache, first = text_cache(), torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1]]).bool()
    known = write(cache, 3, keep=first)
    assert known is not None and torch.equal(known, first)
    known = write(cache, 2)
    assert known is not None and cache.keep is known
    assert torch.equal(known, torch.cat((first, torch.ones(3, 2, dtype=torch.bool)), dim=1))
    late = text_cache()
    write(late, 2)
    known = write(late, 3, keep=first)
    assert known is not None
    assert torch.equal(known, torch.cat((torch.ones(3, 2, dtype=torch.bool), first), dim=1))


def test_rows_are_selected_in_every_block_with_their_padding() -> None:
    cache, keep = text_cache(), torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1]]).bool()
    cache.extend(3, 3, keep)
    written = [pairs(3, 3) for _ in cache.blocks]
    for store, pair in zip(cache.blocks, written, strict=True):
        store.append(*pair)
    rows = torch.tensor([2, 0, 0, 1])
    cache.select(rows)
    assert cache.length == 3 and cache.keep is not None and torch.equal(cache.keep, keep[rows])
    for store, (keys, values) in zip(cache.blocks, written, strict=True):
        k, v = store.append(*pairs(1, rows=4))
        assert torch.equal(k[:, :, :3], keys[rows]) and torch.equal(v[:, :, :3], values[rows])


def test_selecting_without_padding_or_before_anything_is_written_is_allowed() -> None:
    cache = text_cache()
    cache.select(torch.tensor([0]))
    write(cache, 2)
    cache.select(torch.tensor([1, 1]))
    assert cache.keep is None and cache.length == 2
    assert cache.blocks[1].append(*pairs(1, rows=2))[0].shape == (2, 3, 3, 5)
