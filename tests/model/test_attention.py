"""Two ways of one function, its laws, and nn.MultiheadAttention with the same weights."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.model import attention
from headwise.model.attention import MultiHeadAttention, attend, attend_with_weights
from headwise.model.cache import KeyValues
from headwise.model.distance import DistancePositions, Distances
from headwise.model.dropout import Dropout
from headwise.model.relative import RelativeBias
from headwise.model.rotary import Turns, turn
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


# fewer heads of keys and values, a bias, another scale


def grouped(dtype: torch.dtype = torch.float64, hk: int = 2, tk: int = TK) -> tuple[Tensor, Tensor, Tensor]:
    """Six query heads over hk heads of keys and values."""
    q = torch.randn(B, 6, TQ, DH, dtype=dtype)
    return q, torch.randn(B, hk, tk, DH, dtype=dtype), torch.randn(B, hk, tk, DH, dtype=dtype)


def biases(heads: int) -> dict[str, Tensor | None]:
    return {
        "no bias": None,
        "one for all rows": torch.randn(1, heads, TQ, TK, dtype=torch.float64),
        "each row its own": torch.randn(B, heads, TQ, TK, dtype=torch.float64),
        "one for all heads": torch.randn(1, 1, TQ, TK, dtype=torch.float64),
    }


def with_bias_by_hand(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None, scale: float
) -> Tensor:
    group = q.size(1) // k.size(1)
    result = torch.zeros_like(q)
    for h in range(q.size(1)):
        scores = q[:, h] @ k[:, h // group].transpose(-1, -2) * scale
        if bias is not None:
            scores = scores + bias.expand(B, q.size(1), TQ, TK)[:, h]
        powers = scores.exp()
        if keep is not None:
            powers = powers * keep.expand(B, q.size(1), TQ, TK)[:, h]
        total = powers.sum(-1, keepdim=True)
        result[:, h] = powers / total.where(total > 0, torch.ones_like(total)) @ v[:, h // group]
    return result


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
@pytest.mark.parametrize("hk", [1, 2, 3, 6])
@pytest.mark.parametrize("bias", list(biases(6)))
@pytest.mark.parametrize("is_masked", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("scale", [None, 1.0, 0.1])
def test_groups_bias_mask_and_scale_as_by_hand(
    scale: float | None, is_masked: bool, bias: str, hk: int, few_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    q, k, v = grouped(hk=hk)
    keep = None
    if is_masked:
        keep = torch.rand(B, 1, TQ, TK) < 0.6
        keep[0, 0, 2] = False  # nowhere to look
    added = biases(6)[bias]
    expected = with_bias_by_hand(q, k, v, keep, added, 0.5 if scale is None else scale)
    mixed = attend(q, k, v, keep, bias=added, scale=scale)
    assert (mixed - expected).abs().max() < 1e-12
    if is_masked:
        assert not mixed[0, :, 2].any()
        assert (attend(q, k, v, bias=added, scale=scale) - expected).abs().max() > VISIBLE
    if added is not None:
        assert (attend(q, k, v, keep, scale=scale) - expected).abs().max() > VISIBLE
    if hk in (2, 3):  # the wrong twin: heads dealt out in turn, not side by side
        twin = [part.repeat(1, 6 // hk, 1, 1) for part in (k, v)]
        assert (attend(q, *twin, keep, bias=added, scale=scale) - expected).abs().max() > VISIBLE


@pytest.mark.parametrize("bias", list(biases(6)))
def test_the_two_ways_have_equal_gradients_with_groups_and_bias(bias: str, fast: list[int]) -> None:
    first = [part.requires_grad_() for part in grouped()]
    second = [part.detach().clone().requires_grad_() for part in first]
    added = biases(6)[bias]
    for parts in (first, second):
        if added is not None:
            parts.append(added.detach().clone().requires_grad_())
    keep = torch.rand(B, 1, TQ, TK) < 0.6
    keep[0, 0, 2] = False
    direction = torch.randn(B, 6, TQ, DH, dtype=torch.float64)

    def run(way: Callable[..., Tensor], parts: list[Tensor]) -> None:
        given = parts[3] if added is not None else None
        (way(*parts[:3], keep, bias=given) * direction).sum().backward()

    run(lambda *a, **b: attend_with_weights(*a, **b)[0], first)
    assert fast == []
    run(attend, second)
    assert fast == [TK]
    for a, b in zip(first, second, strict=True):
        assert a.grad is not None and b.grad is not None and bool(a.grad.any())
        assert (a.grad - b.grad).abs().max() < 1e-11


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
def test_permuting_the_keys_with_their_bias_changes_nothing(
    few_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    q, k, v = grouped()
    bias, keep, order = torch.randn(1, 6, TQ, TK).double(), torch.rand(B, 1, 1, TK) < 0.6, torch.randperm(TK)
    before = attend(q, k, v, keep, bias=bias)
    moved = [part[:, :, order] for part in (k, v)]
    assert (attend(q, *moved, keep[..., order], bias=bias[..., order]) - before).abs().max() < 1e-12
    assert (attend(q, *moved, keep[..., order], bias=bias) - before).abs().max() > VISIBLE


@pytest.mark.parametrize("shape", [(0, 5, 7), (2, 0, 7)], ids=["no rows", "no queries"])
@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
def test_nothing_gives_nothing(
    few_keys: int, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    rows, tq, tk = shape
    q, k = torch.randn(rows, 6, tq, DH), torch.randn(rows, 2, tk, DH)
    assert attend(q, k, k, torch.ones(1, 1, tq, tk, dtype=torch.bool)).shape == (rows, 6, tq, DH)


GROUPED = {"num_heads": 6, "d_head": 4}


def test_a_layer_with_as_many_key_heads_as_query_heads_is_the_plain_one() -> None:
    plain, all_heads = layer_of(**GROUPED), layer_of(**GROUPED, num_kv_heads=6)
    all_heads.load_state_dict(plain.state_dict())
    x = torch.randn(B, TQ, 12, dtype=torch.float64)
    assert torch.equal(all_heads(x), plain(x))


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("hk", [1, 2, 3])
@torch.no_grad()
def test_a_grouped_layer_is_the_plain_one_with_its_key_and_value_weights_repeated(
    hk: int, has_bias: bool, few_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GQA, section 2: mean pooling the other way round."""
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    ours = layer_of(**GROUPED, num_kv_heads=hk, attention_bias=has_bias)
    plain, twin = (layer_of(**GROUPED, attention_bias=has_bias) for _ in range(2))
    assert ours.query_key_value.weight.size(0) == (6 + 2 * hk) * 4

    def repeated(rows: Tensor, in_turn: bool) -> Tensor:
        q, k, v = rows.split(ours.widths)
        heads = [part.view(hk, 4, -1) for part in (k, v)]
        more = [h.repeat(6 // hk, 1, 1) if in_turn else h.repeat_interleave(6 // hk, 0) for h in heads]
        return torch.cat([q, *(h.reshape(24, *rows.shape[1:]) for h in more)])

    for layer, in_turn in ((plain, False), (twin, True)):
        layer.query_key_value.weight.copy_(repeated(ours.query_key_value.weight, in_turn))
        if has_bias:
            layer.query_key_value.bias.copy_(repeated(ours.query_key_value.bias, in_turn))
        layer.output.load_state_dict(ours.output.state_dict())
    x, memory = torch.randn(2, B, TQ, 12, dtype=torch.float64)
    keep = torch.ones(1, 1, TQ, TQ, dtype=torch.bool).tril()
    assert (ours(x, keep) - plain(x, keep)).abs().max() < 1e-12
    crossed = ours.cross(x, ours.project_memory(memory), keep)
    assert (crossed - plain.cross(x, plain.project_memory(memory), keep)).abs().max() < 1e-12
    if hk > 1:
        assert (ours(x, keep) - twin(x, keep)).abs().max() > VISIBLE


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [3, 2]])
def test_a_cache_holds_the_shared_heads_alone(sizes: list[int]) -> None:
    layer = layer_of(**GROUPED, num_kv_heads=2)
    x = torch.randn(B, TQ, 12, dtype=torch.float64)
    whole = layer(x, torch.ones(1, 1, TQ, TQ, dtype=torch.bool).tril())
    store, parts = KeyValues(), []
    for part in x.split(sizes, dim=1):
        keep = torch.ones(1, 1, part.size(1), store.length + part.size(1), dtype=torch.bool).tril(
            store.length
        )
        parts.append(layer(part, keep, cache=store))
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-12
    keys, _ = store.append(torch.zeros(B, 2, 1, 4).double(), torch.zeros(B, 2, 1, 4).double())
    assert keys.shape == (B, 2, TQ + 1, 4)


@torch.no_grad()
def test_d_head_may_differ_from_d_model_by_num_heads() -> None:
    layer = layer_of(d_head=6)
    assert layer.query_key_value.weight.shape == (3 * 18, 12) and layer.output.weight.shape == (12, 18)
    x = torch.randn(B, TQ, 12, dtype=torch.float64)
    q, k, v = (part.unflatten(-1, (3, 6)).transpose(1, 2) for part in layer.query_key_value(x).chunk(3, -1))
    expected = by_hand(q, k, v, None).transpose(1, 2).flatten(2) @ layer.output.weight.T
    assert (layer(x) - expected).abs().max() < 1e-12


def test_the_output_projection_has_a_bias_of_its_own_setting() -> None:
    for of_input, of_output in ((True, None), (False, None), (True, False), (False, True)):
        layer = MultiHeadAttention(small_config(attention_bias=of_input, attention_output_bias=of_output))
        assert (layer.query_key_value.bias is not None) is of_input
        assert (layer.output.bias is not None) is (of_input if of_output is None else of_output)


@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
@torch.no_grad()
def test_with_normed_queries_and_keys_the_size_of_their_weights_changes_nothing(norm_kind: str) -> None:
    given = {"num_heads": 6, "d_head": 4, "num_kv_heads": 2, "norm_kind": norm_kind, "norm_eps": 1e-14}
    layer, plain = layer_of(**given, qk_norm=True), layer_of(**given)
    x, memory = torch.randn(2, B, TQ, 12, dtype=torch.float64)
    for each, moves in ((layer, False), (plain, True)):
        before = each(x), each.cross(x, each.project_memory(memory))
        each.query_key_value.weight[:24] *= 5  # W_Q
        each.query_key_value.weight[24:32] *= 0.3  # W_K
        after = each(x), each.cross(x, each.project_memory(memory))
        for a, b in zip(after, before, strict=True):
            assert ((a - b).abs().max() > VISIBLE) if moves else ((a - b).abs().max() < 1e-10)
    before = layer(x)
    layer.query_key_value.weight[32:] *= 5  # W_V is not normed
    assert (layer(x) - before).abs().max() > VISIBLE


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
@torch.no_grad()
def test_normed_queries_and_keys_by_hand(few_keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    layer = layer_of(qk_norm=True, norm_kind="rms")
    assert layer.query_norm is not None and layer.key_norm is not None
    x = torch.randn(B, TQ, 12, dtype=torch.float64)
    q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in layer.query_key_value(x).chunk(3, -1))
    q, k = (
        part / (part.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.gain
        for part, norm in ((q, layer.query_norm), (k, layer.key_norm))
    )
    expected = by_hand(q, k, v, None).transpose(1, 2).flatten(2) @ layer.output.weight.T
    assert (layer(x) - expected).abs().max() < 1e-12
    # the layer's memory is the same keys
    assert (layer.cross(x, layer.project_memory(x)) - expected).abs().max() < 1e-12
    layer.query_norm, layer.key_norm = layer.key_norm, layer.query_norm  # each its own gain
    layer.key_norm = None
    assert (layer(x) - expected).abs().max() > VISIBLE


def test_scores_can_go_unscaled_as_in_t5() -> None:
    scaled, unscaled = layer_of(), layer_of(scale_attention=False)
    unscaled.load_state_dict(scaled.state_dict())
    x, memory = torch.randn(2, B, TQ, 12, dtype=torch.float64)
    assert (scaled(x) - unscaled(x)).abs().max() > VISIBLE
    with torch.no_grad():
        unscaled.query_key_value.weight[:12] /= math.sqrt(4)
    assert (scaled(x) - unscaled(x)).abs().max() < 1e-12
    across = [each.cross(x, each.project_memory(memory)) for each in (scaled, unscaled)]
    assert (across[0] - across[1]).abs().max() < 1e-12


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
def test_distances_turn_queries_and_keys_and_add_to_the_scores(
    few_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    layer, x = layer_of(), torch.randn(B, TQ, 12, dtype=torch.float64)
    q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in layer.query_key_value(x).chunk(3, -1))
    angles = torch.rand(1, 1, TQ, 2, dtype=torch.float64) * 6
    turns, bias = Turns.of(angles, torch.float64), torch.randn(1, 3, TQ, TQ, dtype=torch.float64)
    for distances in (Distances(turns=turns), Distances(bias=bias), Distances(turns, bias)):
        turned = (q, k) if distances.turns is None else (turn(q, turns), turn(k, turns))
        scores = turned[0] @ turned[1].transpose(-1, -2) / 2
        scores = scores if distances.bias is None else scores + bias
        expected = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ layer.output.weight.T
        assert (layer(x, distances=distances) - expected).abs().max() < 1e-12
        assert (layer(x) - expected).abs().max() > VISIBLE


@pytest.mark.parametrize("kind", ["rotary", "alibi", "relative"])
def test_under_autocast_every_scheme_is_close_to_float32(kind: str) -> None:
    shape = small_config(positions=kind, num_kv_heads=1, qk_norm=True)
    layer, positions = MultiHeadAttention(shape), DistancePositions(shape, is_causal=True)
    if isinstance(positions.bias, RelativeBias):
        torch.nn.init.normal_(positions.bias.table)
    x, keep = torch.randn(2, 5, 12), torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    distances = positions(torch.arange(5)[None], 5, x.dtype)
    exact = layer(x, keep, distances=distances)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = layer(x, keep, distances=distances)
    assert rough.dtype == torch.bfloat16
    assert 0 < (rough.float() - exact).abs().max() < 0.03 * exact.abs().max() + 0.01


def test_numbers_for_a_mask_are_refused_in_one_line() -> None:
    code = (
        "import torch; from headwise.model.attention import attend; q = torch.zeros(1, 1, 2, 2)\n"
        "try: attend(q, q, q, torch.ones(1, 1, 2, 2))\nexcept ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "keep must be boolean, True = may look: got torch.float32; keep.bool() if 1 means may look"
    )
