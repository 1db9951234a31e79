"""The same attention, however it is written, is the same site; what is no attention is none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.sites import (
    Site,
    attention_sites,
    factor_before,
    is_product,
    softmaxes,
    unread,
    upstream,
)
from headwise.doctor.trace import Recording, recording

B, T, H, DH = 2, 5, 3, 4
D = H * DH

Attend = Callable[["Projections", Tensor], Tensor]


class Projections(nn.Module):
    """The weights that all the ways of writing share, and one of the ways."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.query, self.key, self.value, self.out = (nn.Linear(D, D, dtype=torch.float64) for _ in range(4))
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) / 3)
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.attend(self, x))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v as [B, H, T, Dh]."""
        q, k, v = (
            layer(x).unflatten(-1, (H, DH)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        return q, k, v


def future(of: Tensor) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).triu(1)


def join(mixed: Tensor) -> Tensor:
    return mixed.transpose(1, 2).reshape(B, T, D)


def matmul(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    scores = q @ k.transpose(-2, -1) / math.sqrt(DH)
    return join(scores.masked_fill(future(x), float("-inf")).softmax(-1) @ v)


def scaled_before(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    scores = torch.matmul(q * DH**-0.5, k.mT)
    return join(torch.softmax(scores + torch.zeros(T, T).masked_fill(future(x), -1e9).double(), -1) @ v)


def einsum_heads_first(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * DH**-0.5
    weights = torch.where(future(x), -torch.inf, scores).softmax(-1)
    return join(torch.einsum("bhqk,bhkd->bhqd", weights, v))


def einsum_time_first(m: Projections, x: Tensor) -> Tensor:
    q, k, v = (layer(x).view(B, T, H, DH) for layer in (m.query, m.key, m.value))
    scores = torch.einsum("bihd,bjhd->bijh", q, k) / DH**0.5
    scores = scores.masked_fill(future(x)[None, :, :, None], -1e9)
    return torch.einsum("bijh,bjhd->bihd", scores.softmax(2), v).reshape(B, T, D)


def kernel_causal(m: Projections, x: Tensor) -> Tensor:
    return join(F.scaled_dot_product_attention(*m.heads(x), is_causal=True))


def kernel_bool_mask(m: Projections, x: Tensor) -> Tensor:
    return join(F.scaled_dot_product_attention(*m.heads(x), attn_mask=~future(x)))


def kernel_float_mask(m: Projections, x: Tensor) -> Tensor:
    bias = torch.zeros(T, T, dtype=x.dtype).masked_fill(future(x), float("-inf"))
    return join(F.scaled_dot_product_attention(*m.heads(x), attn_mask=bias))


def folded_bmm(m: Projections, x: Tensor) -> Tensor:
    q, k, v = (each.reshape(B * H, T, DH) for each in m.heads(x))
    scores = torch.bmm(q, k.transpose(1, 2)).div(math.sqrt(DH))
    scores.masked_fill_(future(x), torch.finfo(x.dtype).min)
    return join(torch.bmm(F.softmax(scores, dim=-1), v).view(B, H, T, DH))


def baddbmm(m: Projections, x: Tensor) -> Tensor:
    q, k, v = (each.reshape(B * H, T, DH) for each in m.heads(x))
    bias = torch.zeros(B * H, T, T, dtype=x.dtype).masked_fill(future(x), -1e9)
    scores = torch.baddbmm(bias, q, k.mT, beta=1.0, alpha=DH**-0.5)
    return join(torch.bmm(scores.softmax(-1), v).view(B, H, T, DH))


def keys_on_the_left(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    scores = (k @ q.mT) / DH**0.5  # [B, H, Tk, Tq]
    weights = scores.masked_fill(future(x).mT, float("-inf")).softmax(-2)
    return join(weights.mT @ v)


def by_hand(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    scores = (q @ k.mT / DH**0.5).masked_fill(future(x), float("-inf"))
    risen = (scores - scores.amax(-1, keepdim=True)).exp()
    return join(risen / risen.sum(-1, keepdim=True) @ v)


def with_a_sink(m: Projections, x: Tensor) -> Tensor:
    """One more column that takes weight and gives nothing; far below, so that the answer is the same."""
    q, k, v = m.heads(x)
    scores = (q @ k.mT / DH**0.5).masked_fill(future(x), float("-inf"))
    sink = torch.full((B, H, T, 1), -700.0, dtype=x.dtype)
    return join(torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ v)


def hidden_by_index(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    scores = q @ k.mT / DH**0.5
    scores[future(x).expand_as(scores)] = float("-inf")
    return join(scores.softmax(-1) @ v)


def hidden_row_by_row(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    scores = q @ k.mT / DH**0.5
    for t in range(T - 1):
        scores[:, :, t, t + 1 :] = -1e9
    return join(scores.softmax(-1) @ v)


def one_head_at_a_time(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    done: list[Tensor] = []
    for h in range(H):
        scores = q[:, h] @ k[:, h].mT / DH**0.5
        done.append(scores.masked_fill(future(x), float("-inf")).softmax(-1) @ v[:, h])
    return torch.cat(done, -1)


WRITINGS: dict[str, tuple[Attend, int]] = {
    each.__name__: (each, H if each is one_head_at_a_time else 1)
    for each in (
        matmul,
        scaled_before,
        einsum_heads_first,
        einsum_time_first,
        kernel_causal,
        kernel_bool_mask,
        kernel_float_mask,
        folded_bmm,
        baddbmm,
        keys_on_the_left,
        by_hand,
        with_a_sink,
        hidden_by_index,
        hidden_row_by_row,
        one_head_at_a_time,
    )
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64)


def sites_of(model: nn.Module, *inputs: Tensor) -> tuple[list[Site], Tensor, Recording]:
    with torch.no_grad(), recording(model, inputs) as record:
        out = model(*inputs)
    return attention_sites(record), out[0] if isinstance(out, tuple) else out, record


def canonical(site: Site) -> Tensor:
    """softmax(q k^T / sqrt(d_head)) v by the site's own parts, slices in an order of their own. [N, T, Dh]"""
    scores = site.raw * site.scale / (factor_before(site.q_value)[0] * factor_before(site.k_value)[0])
    return scores.masked_fill(site.hidden, float("-inf")).softmax(-1) @ site.v


def as_set(slices: Tensor) -> Tensor:
    """Slices in an order that does not depend on how the heads were laid out."""
    return slices[slices.flatten(1)[:, 0].argsort()]


@pytest.mark.parametrize("name", WRITINGS)
def test_every_way_of_writing_it_is_the_same_site(name: str, x: Tensor) -> None:
    attend, count = WRITINGS[name]
    model = Projections(attend)
    sites, out, _ = sites_of(model, x)
    assert torch.allclose(out, Projections(matmul)(x), atol=1e-12)  # they are the same attention
    assert len(sites) == count
    want_q, want_k, want_v = (each.reshape(B * H, T, DH) for each in model.heads(x))
    factors = (
        [factor_before(site.q_value)[0] for site in sites],
        [factor_before(site.k_value)[0] for site in sites],
    )
    for site in sites:
        assert site.shape == (B * H // count, T, T) and site.d_head == DH
        assert site.scale == pytest.approx(DH**-0.5)
        assert torch.equal(site.hidden, future(x).expand(site.shape))
        assert torch.equal(site.allowed, ~site.hidden)
        assert torch.allclose(site.weights, site.scores.softmax(-1), atol=1e-12)
        assert torch.allclose(site.raw, site.q @ site.k.mT, atol=1e-12)
        assert not site.has_learned_scale
        assert site.place is not None and site.place.file == __file__
        assert site.place.function in {name, f"{name}.<locals>.<listcomp>"}
    q = torch.cat([site.q / factor for site, factor in zip(sites, factors[0], strict=True)])
    k = torch.cat([site.k / factor for site, factor in zip(sites, factors[1], strict=True)])
    v = torch.cat([site.v for site in sites])
    assert torch.allclose(as_set(q), as_set(want_q), atol=1e-12)
    assert torch.allclose(as_set(k), as_set(want_k), atol=1e-12)
    assert torch.allclose(as_set(v), as_set(want_v), atol=1e-12)
    # slice by slice they belong together: the site computes what the model does
    mixed = torch.cat([canonical(site) for site in sites])
    q_, k_, v_ = want_q, want_k, want_v
    want = (q_ @ k_.mT / DH**0.5).masked_fill(future(x), float("-inf")).softmax(-1) @ v_
    assert torch.allclose(as_set(mixed), as_set(want), atol=1e-12)


@pytest.mark.parametrize("name", WRITINGS)
def test_masks_are_what_is_added_or_filled(name: str, x: Tensor) -> None:
    attend, count = WRITINGS[name]
    sites, _, _ = sites_of(Projections(attend), x)
    assert len(sites) == count
    for site in sites:
        assert len(site.masks) >= 1
        op, mask = site.masks[-1]
        assert op in {*site.path, site.product}
        assert mask.tensor.numel() % (T * T) == 0 or name == "hidden_row_by_row"


# Wrong twins: each differs from `matmul` in one thing, and the site shows that thing.


def no_scale(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    return join((q @ k.mT).masked_fill(future(x), float("-inf")).softmax(-1) @ v)


def scaled_twice(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    return join(F.scaled_dot_product_attention(q / DH**0.5, k, v, is_causal=True))


def mask_off_by_one(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    return join(F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(T, T, dtype=torch.bool).tril(1)))


def no_mask(m: Projections, x: Tensor) -> Tensor:
    return join(F.scaled_dot_product_attention(*m.heads(x)))


def weak_mask(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    return join((q @ k.mT / DH**0.5 - 10.0 * future(x)).softmax(-1) @ v)


def over_queries(m: Projections, x: Tensor) -> Tensor:
    q, k, v = m.heads(x)
    return join((q @ k.mT / DH**0.5).softmax(-2) @ v)


def keys_are_queries(m: Projections, x: Tensor) -> Tensor:
    q, _, v = m.heads(x)
    return join((q @ q.mT / DH**0.5).softmax(-1) @ v)


@pytest.mark.parametrize(("wrong", "scale"), [(no_scale, 1.0), (scaled_twice, 1 / DH)])
def test_a_wrong_scale_is_seen(wrong: Attend, scale: float, x: Tensor) -> None:
    (site,), _, _ = sites_of(Projections(wrong), x)
    assert site.scale == pytest.approx(scale)


def test_a_wrong_mask_is_seen(x: Tensor) -> None:
    (site,), _, _ = sites_of(Projections(mask_off_by_one), x)
    assert torch.equal(site.hidden[0], torch.ones(T, T, dtype=torch.bool).triu(2))
    (site,), _, _ = sites_of(Projections(no_mask), x)
    assert not site.hidden.any() and not site.masks
    (site,), _, _ = sites_of(Projections(weak_mask), x)
    assert not site.hidden.any()
    assert torch.allclose(site.bias, -10.0 * future(x).double().expand_as(site.bias), atol=1e-12)


def test_a_softmax_over_the_queries_is_seen(x: Tensor) -> None:
    (site,), _, _ = sites_of(Projections(over_queries), x)
    assert torch.allclose(site.weights.sum(-2), torch.ones(B * H, T, dtype=torch.float64))


def test_queries_used_as_keys_are_seen(x: Tensor) -> None:
    (site,), _, _ = sites_of(Projections(keys_are_queries), x)
    assert torch.allclose(site.q, site.k)


# Fewer heads for keys and values


def grouped(repeat: Callable[[Tensor], Tensor]) -> nn.Module:
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.both = nn.Linear(D, 4 * DH).double(), nn.Linear(D, 2 * 2 * DH).double()

        def forward(self, x: Tensor) -> Tensor:
            q = self.query(x).unflatten(-1, (4, DH)).transpose(1, 2)
            k, v = self.both(x).unflatten(-1, (2, 2, DH)).permute(2, 0, 3, 1, 4)
            scores = q @ repeat(k).mT / DH**0.5
            return (scores.softmax(-1) @ repeat(v)).transpose(1, 2).flatten(2)

    torch.manual_seed(5)
    return Grouped()


REPEATS: list[Callable[[Tensor], Tensor]] = [
    lambda kv: kv.repeat_interleave(2, dim=1),
    lambda kv: kv[:, :, None].expand(-1, -1, 2, -1, -1).reshape(kv.shape[0], 4, *kv.shape[2:]),
    lambda kv: kv[:, torch.tensor([0, 0, 1, 1])],
]


@pytest.mark.parametrize("place", range(len(REPEATS)))
def test_grouped_queries_have_their_keys(place: int, x: Tensor) -> None:
    model = grouped(REPEATS[place])
    (site,), _, _ = sites_of(model, x)
    assert site.shape == (B * 4, T, T)
    q = model.query(x).unflatten(-1, (4, DH)).transpose(1, 2).flatten(0, 1)
    k = (
        model.both(x)[..., : 2 * DH]
        .unflatten(-1, (2, DH))
        .transpose(1, 2)
        .repeat_interleave(2, 1)
        .flatten(0, 1)
    )
    order = [int((site.q - each).abs().flatten(1).sum(1).argmin()) for each in q]
    assert sorted(order) == list(range(B * 4))
    assert torch.allclose(site.q[order], q) and torch.allclose(site.k[order], k)


def test_one_key_head_for_all(x: Tensor) -> None:
    class MultiQuery(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.both = nn.Linear(D, D).double(), nn.Linear(D, 2 * DH).double()

        def forward(self, x: Tensor) -> Tensor:
            q = self.query(x).unflatten(-1, (H, DH)).transpose(1, 2)
            k, v = self.both(x)[:, None].chunk(2, -1)  # [B, 1, T, Dh]
            return (F.softmax(q @ k.mT * DH**-0.5, -1) @ v).transpose(1, 2).flatten(2)

    (site,), _, _ = sites_of(MultiQuery(), x)
    assert site.shape == (B * H, T, T) and site.scale == pytest.approx(DH**-0.5)
    per_row = (
        site.k.unflatten(0, (B, H)) if torch.equal(site.k[0], site.k[1]) else site.k.unflatten(0, (H, B)).mT
    )
    assert torch.equal(per_row[:, 0], per_row[:, 1])


def test_cross_attention_has_as_many_columns_as_the_source(x: Tensor) -> None:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(D, H, batch_first=True).double()

        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            return self.layer(x, memory, memory, need_weights=False)[0]

    memory = torch.randn(B, 7, D, dtype=torch.float64)
    (site,), _, _ = sites_of(Cross().eval(), x, memory)
    assert site.shape == (B * H, T, 7)
    assert (site.q_value.sources, site.k_value.sources, site.v_value.sources) == (1, 2, 2)
    assert site.module == "layer"


# nn.MultiheadAttention


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mask", ["bool", "float", "padding"])
def test_torchs_own_layer(batch_first: bool, need_weights: bool, mask: str, x: Tensor) -> None:
    class Torchs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(D, H, batch_first=batch_first).double()

        def forward(self, x: Tensor) -> Tensor:
            given = (
                future(x)
                if mask != "float"
                else torch.zeros(T, T).double().masked_fill(future(x), -torch.inf)
            )
            pads = torch.zeros(B, T, dtype=torch.bool)
            pads[1, 3:] = True
            masks = {"key_padding_mask": pads} if mask == "padding" else {"attn_mask": given}
            return self.layer(x, x, x, need_weights=need_weights, **masks)[0]

    torch.manual_seed(2)
    model = Torchs().eval()
    (site,), _, _ = sites_of(model, x if batch_first else x.transpose(0, 1))
    assert site.shape == (B * H, T, T) and site.scale == pytest.approx(DH**-0.5)
    if mask == "padding":
        assert sorted(site.hidden.flatten(1).sum(1).tolist()) == [0] * H + [2 * T] * H
    else:
        assert torch.equal(site.hidden, future(x).expand(site.shape))
    weight, bias = model.layer.in_proj_weight, model.layer.in_proj_bias
    q = (x @ weight[:D].mT + bias[:D]).unflatten(-1, (H, DH)).transpose(1, 2).flatten(0, 1)
    assert torch.allclose(as_set(site.q / factor_before(site.q_value)[0]), as_set(q), atol=1e-9)


# What a factor is


def test_a_learned_scale_is_told_from_a_constant(x: Tensor) -> None:
    class Learned(Projections):
        def __init__(self) -> None:
            super().__init__(self.learned)
            self.factor = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

        def learned(self, m: Projections, x: Tensor) -> Tensor:
            q, k, v = m.heads(x)
            return join((q @ k.mT * self.factor).softmax(-1) @ v)

    (site,), _, _ = sites_of(Learned(), x)
    assert site.has_learned_scale


def test_normed_queries_and_keys_are_still_a_site(x: Tensor) -> None:
    def normed(m: Projections, x: Tensor) -> Tensor:
        q, k, v = m.heads(x)
        return join((F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 10.0).softmax(-1) @ v)

    (site,), _, _ = sites_of(Projections(normed), x)
    assert site.inner_scale == pytest.approx(10.0)


# What is no attention


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(D, 3).double(), nn.Parameter(torch.randn(3, D, D).double())

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)  # [B, T, 3]
        outs = torch.einsum("btd,edf->btef", x, self.experts)
        return torch.einsum("bte,btef->btf", weights, outs)


class Readout(nn.Module):
    """A classifier with a softmax at its end, and words mixed by their probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.words = nn.Linear(D, 9).double(), nn.Embedding(9, D).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).softmax(-1) @ self.words.weight


class Pooling(nn.Module):
    """Mixes the positions by a learned query: no queries of the input's own."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, D).double())

    def forward(self, x: Tensor) -> Tensor:
        return (self.query @ x.mT).softmax(-1) @ x


@pytest.mark.parametrize("kind", [Router, Readout])
def test_other_softmaxes_are_no_sites(kind: type[nn.Module], x: Tensor) -> None:
    sites, _, record = sites_of(kind(), x)
    assert not sites and len(list(softmaxes(record))) == 1


def test_pooling_by_a_learned_query_is_a_site_without_a_query_from_the_input(x: Tensor) -> None:
    sites, _, _ = sites_of(Pooling(), x)
    assert [site.q_value.sources for site in sites] == [0] and sites[0].shape == (B, 1, T)


class Latents(nn.Module):
    """Learnt vectors ask, through a projection of their own or as they are."""

    def __init__(self, is_projected: bool) -> None:
        super().__init__()
        self.latents, self.is_projected = nn.Parameter(torch.randn(3, D).double()), is_projected
        self.q, self.k = nn.Linear(D, D).double(), nn.Linear(D, D).double()

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(self.latents) if self.is_projected else self.latents
        return (q @ self.k(x).mT).softmax(-1) @ x


def test_queries_that_are_learnt_are_sites_where_they_are_asked_for(x: Tensor) -> None:
    sites, _, record = sites_of(Latents(is_projected=True), x)
    assert sites == [] and unread(record, sites)
    (site,) = attention_sites(record, with_learned=True)
    assert site.shape == (B, 3, T) and site.q_value.sources == 0 and site.k_value.sources
    assert unread(record, [site]) == []
    # a layer of weights, normalised over the tokens, is none
    _, _, record = sites_of(Latents(is_projected=False), x)
    assert attention_sites(record, with_learned=True) == []
    for kind in (Router, Readout):
        assert attention_sites(sites_of(kind(), x)[2], with_learned=True) == []


def test_a_sum_of_exponentials_that_is_no_softmax_is_none(x: Tensor) -> None:
    class Other(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.exp() / (x * 2).exp().sum(-1, keepdim=True)) @ x.mT

    _, _, record = sites_of(Other(), x)
    assert not list(softmaxes(record))


def test_upstream_goes_back_along_what_the_inputs_reach(x: Tensor) -> None:
    (site,), _, record = sites_of(Projections(weak_mask), x)
    above = list(upstream(site.scores_value))
    assert next(op for op in above if is_product(op)) is site.product
    assert [op.index for op in above] == sorted((op.index for op in above), reverse=True)
    assert all(op.out.sources for op in above) and not list(upstream(record.values[0]))
