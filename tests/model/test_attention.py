"""Two ways of one function, its laws, and nn.MultiheadAttention with the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.model import attention
from headwise.model.attention import MultiHeadAttention, attend, attend_with_weights
from headwise.model.cache import KeyValues
from headwise.model.dropout import Dropout
from torch_layers import TOLERANCE, VISIBLE, WRONG_TWINS, Attend, shaken, small_config, torch_attention

B, H, TQ, TK, DH = 2, 3, 5, 7, 4
EXACT = {torch.float64: 1e-12, torch.float32: 1e-6}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """attend runs scaled_dot_product_attention whatever the number of keys; lists its calls."""
    calls: list[int] = []
    original = F.scaled_dot_product_attention

    def counted(*arguments: Tensor, **options: object) -> Tensor:
        calls.append(arguments[1].size(2))
        return original(*arguments, **options)

    monkeypatch.setattr(attention, "_FEW_KEYS", 0)
    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    return calls


def inputs(
    dtype: torch.dtype = torch.float64, tq: int = TQ, tk: int = TK, dh: int = DH
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(B, H, tq, dh, dtype=dtype),
        torch.randn(B, H, tk, dh, dtype=dtype),
        torch.randn(B, H, tk, dh, dtype=dtype),
    )


def masks(tq: int = TQ, tk: int = TK) -> dict[str, Tensor | None]:
    some = torch.rand(B, H, tq, tk) < 0.6
    some[0, 1, min(2, tq - 1)] = False  # a query with nowhere to look
    whole = torch.rand(B, 1, 1, tk) < 0.6
    whole[1] = False  # a sentence of nothing but padding
    return {
        "none": None,
        "each head its own": some,
        "a sentence all padding": whole,
        "causal": torch.ones(1, 1, tq, tk, dtype=torch.bool).tril(),
    }


def by_hand(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    """Equation 1, one query at a time."""
    result = torch.zeros(*q.shape[:3], v.size(-1), dtype=q.dtype)
    keep = torch.ones(1, dtype=torch.bool) if keep is None else keep
    keep = keep.expand(q.size(0), q.size(1), q.size(2), k.size(2))
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for t in range(q.size(2)):
                seen = keep[b, h, t].nonzero().flatten().tolist()
                powers = [math.exp(float(q[b, h, t] @ k[b, h, s]) / math.sqrt(q.size(-1))) for s in seen]
                for s, power in zip(seen, powers, strict=True):
                    result[b, h, t] += power / sum(powers) * v[b, h, s]
    return result


@pytest.mark.parametrize("name", list(masks()))
def test_equals_the_equation_computed_by_hand(name: str) -> None:
    q, k, v = inputs()
    keep = masks()[name]
    assert (attend(q, k, v, keep) - by_hand(q, k, v, keep)).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("sizes", [(5, 7, 4), (33, 65, 16), (1, 300, 64), (150, 150, 64)])
@pytest.mark.parametrize("name", list(masks()))
def test_the_two_ways_are_equal(
    name: str, sizes: tuple[int, int, int], dtype: torch.dtype, fast: list[int]
) -> None:
    q, k, v = inputs(dtype, *sizes)
    keep = masks(*sizes[:2])[name]
    explicit, _ = attend_with_weights(q, k, v, keep)
    assert fast == []
    assert (attend(q, k, v, keep) - explicit).abs().max() < EXACT[dtype]
    assert fast == [sizes[1]]


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", list(masks()))
def test_the_two_ways_have_equal_gradients(name: str, dtype: torch.dtype, fast: list[int]) -> None:
    keep = masks()[name]
    ours, theirs = ([part.requires_grad_() for part in inputs(dtype)] for _ in range(2))
    for a, b in zip(ours, theirs, strict=True):
        b.data.copy_(a.data)
    direction = torch.randn(B, H, TQ, DH, dtype=dtype)
    (attend_with_weights(*ours, keep)[0] * direction).sum().backward()
    (attend(*theirs, keep) * direction).sum().backward()
    assert fast == [TK]
    for a, b in zip(ours, theirs, strict=True):
        assert a.grad is not None and b.grad is not None
        assert (a.grad - b.grad).abs().max() < 5 * EXACT[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
def test_a_query_with_nowhere_to_look_gives_zeros_and_finite_gradients(
    few_keys: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    keep = masks()["each head its own"]
    q, k, v = (part.requires_grad_() for part in inputs(dtype))
    mixed = attend(q, k, v, keep)
    assert torch.equal(mixed[0, 1, 2], torch.zeros(DH, dtype=dtype))
    assert mixed[0, 1, 1].abs().min() > 0
    mixed.sum().backward()
    for part in (q, k, v):
        assert part.grad is not None and bool(part.grad.isfinite().all())
    assert q.grad is not None and not q.grad[0, 1, 2].any() and bool(q.grad[0, 1, 1].any())


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
def test_permuting_keys_values_and_mask_together_changes_nothing(
    few_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    q, k, v = inputs()
    keep = masks()["each head its own"]
    assert keep is not None
    order = torch.randperm(TK)
    before = attend(q, k, v, keep)
    assert (attend(q, k[:, :, order], v[:, :, order], keep[..., order]) - before).abs().max() < 1e-12
    # the wrong twin: the mask stays behind
    assert (attend(q, k[:, :, order], v[:, :, order], keep) - before).abs().max() > VISIBLE


@pytest.mark.parametrize("name", list(masks()))
def test_weights_sum_to_one_or_to_zero_and_never_leave_the_mask(name: str) -> None:
    keep = masks()[name]
    _, weights = attend_with_weights(*inputs(), keep)
    sees = torch.ones(B, H, TQ) if keep is None else keep.any(-1).expand(B, H, TQ).double()
    assert (weights.sum(-1) - sees).abs().max() < 1e-12
    if keep is not None:
        assert not weights[~keep.expand_as(weights)].any()


def test_short_rows_on_a_cpu_take_the_explicit_way_and_long_ones_the_fast(
    fast: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", 7)
    attend(*inputs(tk=7))
    assert fast == []
    attend(*inputs(tk=8))
    assert fast == [8]
    attend(*inputs(tk=8), dropout=Dropout(0.5))  # torch's dropout of the weights is the slow part
    assert fast == [8]
    attend(*inputs(tk=8), dropout=Dropout(0.5).eval())
    assert fast == [8, 8]


def test_under_a_compiler_both_ways_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = inputs()
    keep = masks()["each head its own"]
    before = attend(q, k, v, keep)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert (attend(q, k, v, keep) - before).abs().max() < 1e-12
    assert (attend_with_weights(q, k, v, keep)[0] - before).abs().max() < 1e-12


def test_dropout_of_the_weights_thins_the_mix_and_not_the_maps() -> None:
    q, k, v = inputs()
    mixed, weights = attend_with_weights(q, k, v, None, Dropout(0.5))
    assert (weights.sum(-1) - 1).abs().max() < 1e-12
    assert (mixed - weights @ v).abs().max() > 1e-2
    assert torch.equal(attend(q, k, v, None, Dropout(0.5).eval()), attend(q, k, v))


def test_under_autocast_the_result_is_close_to_float32() -> None:
    layer = MultiHeadAttention(small_config())
    x = torch.randn(2, 5, 12)
    keep = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    exact = layer(x, keep)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = layer(x, keep)
    assert rough.dtype == torch.bfloat16
    assert 0 < (rough.float() - exact).abs().max() < 0.02 * exact.abs().max() + 0.01


# MultiHeadAttention


def layer_of(dtype: torch.dtype = torch.float64, **changes: object) -> MultiHeadAttention:
    layer = shaken(MultiHeadAttention(small_config(**changes)).to(dtype))
    assert isinstance(layer, MultiHeadAttention)
    return layer


def three_masks() -> dict[str, Tensor | None]:
    each = torch.rand(B, 3, TQ, TQ) < 0.6
    each |= torch.eye(TQ, dtype=torch.bool)  # theirs gives NaN where a query may look nowhere
    return {
        "none": None,
        "padding": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], dtype=torch.bool)[:, None, None],
        "causal": torch.ones(1, 1, TQ, TQ, dtype=torch.bool).tril(),
        "each head its own": each,
    }


def difference(ours: MultiHeadAttention, name: str) -> float:
    """Largest difference to nn.MultiheadAttention: self-attention, its weights, and cross-attention."""
    theirs = torch_attention(ours).train(ours.training)
    x, memory = torch.randn(B, TQ, 12, dtype=torch.float64), torch.randn(B, TQ, 12, dtype=torch.float64)
    keep = three_masks()[name]
    hidden = None if keep is None else ~keep.expand(B, 3, TQ, TQ).flatten(0, 1)
    maps: list[Tensor] = []
    mine = ours(x, keep)
    ours(x, keep, maps=maps)
    other, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    assert (maps[0] - weights).abs().max() < TOLERANCE
    mine_cross = ours.cross(x, ours.project_memory(memory), keep)
    other_cross, _ = theirs(x, memory, memory, attn_mask=hidden, need_weights=False)
    return max((a - b).abs().max().item() for a, b in ((mine, other), (mine_cross, other_cross)))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
@pytest.mark.parametrize("name", list(three_masks()))
def test_agrees_with_torch(
    name: str, few_keys: int, has_bias: bool, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    assert difference(layer_of(attention_bias=has_bias).train(training), name) < TOLERANCE


@pytest.mark.parametrize("twin", WRONG_TWINS.values(), ids=WRONG_TWINS.keys())
@pytest.mark.parametrize("name", ["padding", "causal", "each head its own"])
def test_a_wrong_twin_does_not(name: str, twin: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attend", twin)
    assert difference(layer_of(), name) > VISIBLE


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", list(three_masks()))
def test_asking_for_the_maps_switches_by_itself_and_changes_nothing(
    name: str, dtype: torch.dtype, fast: list[int]
) -> None:
    layer = layer_of(dtype)
    x, keep = torch.randn(B, TQ, 12, dtype=dtype), three_masks()[name]
    without = layer(x, keep)
    assert fast == [TQ]
    maps: list[Tensor] = []
    assert (layer(x, keep, maps=maps) - without).abs().max() < EXACT[dtype]
    assert fast == [TQ]
    assert [tuple(weights.shape) for weights in maps] == [(B, 3, TQ, TQ)]
    assert (maps[0].sum(-1) - 1).abs().max() < EXACT[dtype]


@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
def test_projecting_the_memory_equals_projecting_it_as_self_attention_does(has_bias: bool) -> None:
    layer = layer_of(attention_bias=has_bias)
    x = torch.randn(B, TQ, 12, dtype=torch.float64)
    assert (layer.cross(x, layer.project_memory(x)) - layer(x)).abs().max() < 1e-12


def test_hypotheses_of_a_sentence_share_its_memory() -> None:
    layer = layer_of()
    memory = layer.project_memory(torch.randn(B, TK, 12, dtype=torch.float64))
    x = torch.randn(B * 4, TQ, 12, dtype=torch.float64)
    keep = torch.rand(B, 1, 1, TK) < 0.6
    repeated = tuple(part.repeat_interleave(4, dim=0) for part in memory)
    each = layer.cross(x, repeated, keep.repeat_interleave(4, dim=0))
    assert (layer.cross(x, memory, keep) - each).abs().max() < 1e-12


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [3, 2], [1, 3, 1]])
def test_a_cache_gives_what_the_whole_sequence_gives(sizes: list[int]) -> None:
    layer = layer_of()
    x = torch.randn(B, TQ, 12, dtype=torch.float64)
    whole = layer(x, torch.ones(1, 1, TQ, TQ, dtype=torch.bool).tril())
    store, parts = KeyValues(), []
    for part in x.split(sizes, dim=1):
        end = store.length + part.size(1)
        keep = torch.ones(1, 1, part.size(1), end, dtype=torch.bool).tril(store.length)
        parts.append(layer(part, keep, cache=store))
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-12


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
def test_an_all_masked_query_gives_the_output_bias_alone(
    few_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    x, nowhere = torch.randn(B, TQ, 12, dtype=torch.float64), torch.zeros(1, 1, 1, TQ, dtype=torch.bool)
    assert not layer_of(attention_bias=False)(x, nowhere).any()
    layer = layer_of(attention_bias=True)
    assert torch.equal(layer(x, nowhere), layer.output.bias.expand(B, TQ, 12))


def test_order_is_invisible_without_positions_and_mask() -> None:
    layer: Callable[[Tensor], Tensor] = layer_of()
    x, order = torch.randn(B, TQ, 12, dtype=torch.float64), torch.randperm(TQ)
    assert (layer(x[:, order]) - layer(x)[:, order]).abs().max() < 1e-12
