"""The laws of a decoder-only model, for every position scheme."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, RotaryConfig
from headwise.errors import ConfigError, DataError
from headwise.model import attention
from headwise.model.language_model import LanguageModel
from headwise.model.masks import causal_keep, prefix_keep, weights_outside, window_keep
from model_configs import LANGUAGE_MODELS, every_language_model, language_config
from torch_layers import VISIBLE, right_padding, shaken

PAD, V = 0, 29
EXACT = {torch.float32: 2e-5, torch.float64: 1e-11}
both_dtypes = pytest.mark.parametrize("dtype", EXACT, ids=["float32", "float64"])


def model_of(name: str = "paper", dtype: torch.dtype = torch.float64, **changes: object) -> LanguageModel:
    model = shaken(LanguageModel(language_config(name, **changes)).to(dtype), 0.05).eval()
    assert isinstance(model, LanguageModel)
    return model


def tokens(rows: int, length: int) -> Tensor:
    """Random ids, never padding."""
    return torch.randint(1, V, (rows, length))


def padded_in_front(ids: Tensor, lengths: list[int]) -> Tensor:
    """The first tokens of each row, moved to its end."""
    longest = max(lengths)
    return torch.stack(
        [nn.functional.pad(row[:n], (longest - n, 0), value=PAD) for row, n in zip(ids, lengths, strict=True)]
    )


LENGTHS = [7, 4, 1]


@every_language_model
@both_dtypes
@torch.no_grad()
def test_padding_in_front_or_behind_changes_nothing(name: str, dtype: torch.dtype) -> None:
    model, ids = model_of(name, dtype), tokens(2, 6)
    before = model(ids)
    behind = nn.functional.pad(ids, (0, 4), value=PAD)
    in_front = nn.functional.pad(ids, (4, 0), value=PAD)
    assert (model(behind)[:, :6] - before).abs().max() < EXACT[dtype]
    assert (model(in_front)[:, 4:] - before).abs().max() < EXACT[dtype]
    # said by keep instead of the id
    keep = torch.ones(2, 10, dtype=torch.bool)
    keep[:, :4] = False
    said = model(nn.functional.pad(ids, (4, 0), value=5), keep)
    assert (said[:, 4:] - before).abs().max() < EXACT[dtype]
    # the wrong twin: padding taken for text
    assert (model(nn.functional.pad(ids, (4, 0), value=5))[:, 4:] - before).abs().max() > VISIBLE


@pytest.mark.parametrize("name", ["paper", "gpt", "llama"])
@torch.no_grad()
def test_positions_that_count_padding_fail_that_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import headwise.model.language_model as module

    model, ids = model_of(name), tokens(2, 6)
    before = model(ids)
    monkeypatch.setattr(module, "places_of", lambda n, keep, device: torch.arange(n)[None])
    if name == "llama":  # distances alone matter: rotary may count from anywhere
        assert (model(nn.functional.pad(ids, (4, 0)))[:, 4:] - before).abs().max() < 1e-11
    else:
        assert (model(nn.functional.pad(ids, (4, 0)))[:, 4:] - before).abs().max() > VISIBLE


@every_language_model
@both_dtypes
@pytest.mark.parametrize("in_front", [True, False], ids=["left", "right"])
@torch.no_grad()
def test_a_batch_equals_its_rows_one_by_one(name: str, in_front: bool, dtype: torch.dtype) -> None:
    model, ids = model_of(name, dtype), tokens(3, 7)
    if in_front:
        together = model(padded_in_front(ids, LENGTHS))
    else:
        together = model(ids.where(right_padding(LENGTHS, 7), torch.tensor(PAD)))
    for row, length in enumerate(LENGTHS):
        alone = model(ids[row : row + 1, :length])[0]
        mine = together[row, 7 - length :] if in_front else together[row, :length]
        assert (mine - alone).abs().max() < EXACT[dtype]


@every_language_model
@torch.no_grad()
def test_later_tokens_never_matter(name: str) -> None:
    model, ids = model_of(name), tokens(2, 7)
    before = model(ids)
    for t in range(6):
        changed = ids.clone()
        changed[:, t + 1 :] = (ids[:, t + 1 :] + 7) % (V - 1) + 1
        after = model(changed)
        assert torch.equal(after[:, : t + 1], before[:, : t + 1])
        assert (after[:, t + 1] - before[:, t + 1]).abs().max() > VISIBLE


@torch.no_grad()
def test_a_model_without_causal_mask_fails_that_law(monkeypatch: pytest.MonkeyPatch) -> None:
    import headwise.model.language_model as module

    monkeypatch.setattr(module, "causal_keep", lambda n, m, _: torch.ones(1, 1, n, m, dtype=torch.bool))
    model, ids = model_of(), tokens(2, 7)
    changed = ids.clone()
    changed[:, 6] = ids[:, 6] % (V - 1) + 1
    assert (model(changed) - model(ids))[:, :6].abs().max() > VISIBLE


@every_language_model
@torch.no_grad()
def test_every_earlier_token_within_reach_matters(name: str) -> None:
    model, ids = model_of(name), tokens(1, 6)
    before, window = model(ids), model.config.window
    reach = 6 if window is None else 2 * (window - 1) + 1  # of both layers
    for t in range(6):
        changed = ids.clone()
        changed[:, t] = ids[:, t] % (V - 1) + 1
        assert ((model(changed) - before)[:, -1].abs().max() > 1e-6) == (t > 5 - reach)


@pytest.mark.parametrize("name", ["paper", "gpt", "llama", "qwen", "neox", "no positions"])
@torch.no_grad()
def test_padding_in_the_middle_is_stepped_over_where_places_are_told(name: str) -> None:
    model, ids = model_of(name), tokens(2, 6)
    parted = torch.cat((ids[:, :2], torch.full((2, 3), PAD), ids[:, 2:]), dim=1)
    assert (model(parted)[:, [0, 1, 5, 6, 7, 8]] - model(ids)).abs().max() < 1e-11


# windows


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", ["mistral", "paper", "bloom"])
@torch.no_grad()
def test_a_windows_influence_reaches_so_far_back_a_layer(name: str, layers: int, window: int) -> None:
    model, ids = model_of(name, window=window, num_decoder_layers=layers), tokens(1, 12)
    before = model(ids)
    changed = ids.clone()
    changed[:, 2] = ids[:, 2] % (V - 1) + 1
    moved = (model(changed) - before)[0].abs().amax(-1) > 1e-9
    assert moved.nonzero().flatten().tolist() == list(range(2, min(12, 2 + layers * (window - 1) + 1)))


@torch.no_grad()
def test_a_window_as_long_as_the_text_changes_nothing() -> None:
    model, ids = model_of("mistral", window=6), tokens(2, 6)
    whole, narrow = model_of("mistral", window=None), model_of("mistral", window=5)
    for other in (whole, narrow):
        other.load_state_dict(model.state_dict())
    assert torch.equal(model(ids), whole(ids))
    assert (narrow(ids) - whole(ids))[:, -1].abs().max() > VISIBLE


# a prefix


@pytest.mark.parametrize("name", [n for n in LANGUAGE_MODELS if n != "mistral"])
@torch.no_grad()
def test_a_prefix_sees_itself_and_what_follows_does_not_reach_it(name: str) -> None:
    model, ids = model_of(name), tokens(2, 7)
    causal = model(ids)
    for short in (0, 1):
        assert (model(ids, prefix=torch.tensor([short, short])) - causal).abs().max() < 1e-12
    prefix = torch.tensor([4, 0])
    before = model(ids, prefix=prefix)
    assert (before[0, 0] - causal[0, 0]).abs().max() > 1e-6
    assert (before[1] - causal[1]).abs().max() < 1e-12
    for t in range(7):
        changed = ids.clone()
        changed[0, t] = ids[0, t] % (V - 1) + 1
        moved = (model(changed, prefix=prefix) - before)[0].abs().amax(-1) > 1e-9
        assert moved.tolist() == ([True] * 7 if t < 4 else [i >= t for i in range(7)])


def test_a_prefix_and_a_window_are_refused() -> None:
    with pytest.raises(DataError) as refused:
        model_of("mistral")(tokens(2, 6), prefix=torch.tensor([2, 2]))
    assert str(refused.value) == ("a prefix is read as a whole, a window forbids it: leave one of them out")


# attention maps


@every_language_model
@torch.no_grad()
def test_every_weight_is_zero_where_it_must_be(name: str) -> None:
    model, maps = model_of(name), list[Tensor]()
    ids = tokens(3, 7).where(right_padding(LENGTHS, 7), torch.tensor(PAD))
    with_maps = model(ids, maps=maps)
    assert (with_maps - model(ids)).abs().max() < 1e-12
    window = model.config.window
    looked = causal_keep(7) if window is None else window_keep(7, window=window)
    keep = looked & (ids != PAD)[:, None, None, :]
    assert len(maps) == 2
    for weights in maps:
        assert weights_outside(weights, keep) == 0
        real = keep.any(-1).expand(weights.shape[:3])
        assert (weights.sum(-1) - real.double()).abs().max() < 1e-12


@torch.no_grad()
def test_a_prefixs_weights_lie_in_its_mask() -> None:
    model, maps, prefix = model_of("gpt"), list[Tensor](), torch.tensor([4, 0])
    model(tokens(2, 7), prefix=prefix, maps=maps)
    assert all(weights_outside(w, prefix_keep(prefix, 7)) == 0 for w in maps)
    assert all(weights_outside(w, causal_keep(7)) > 0.01 for w in maps)


# decoding with a cache


SIZES = [[1] * 7, [4, 1, 2], [7]]


@every_language_model
@both_dtypes
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
@torch.no_grad()
def test_cached_equals_uncached_at_every_step(
    few_keys: int, sizes: list[int], dtype: torch.dtype, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    model, ids = model_of(name, dtype), tokens(3, 7)
    whole, cache = model(ids), model.start()
    for part in ids.split(sizes, dim=1):
        logits = model.step(part, cache)
        assert (logits - whole[:, cache.length - 1]).abs().max() < EXACT[dtype]
    assert cache.length == 7


@every_language_model
@both_dtypes
@torch.no_grad()
def test_cached_equals_uncached_after_a_prompt_padded_in_front(name: str, dtype: torch.dtype) -> None:
    model, ids = model_of(name, dtype), tokens(3, 11)
    prompt = padded_in_front(ids, LENGTHS)
    cache = model.start()
    logits = model.step(prompt, cache, prompt != PAD)
    for t in range(4):
        for row, length in enumerate(LENGTHS):
            alone = model(ids[row : row + 1, : length + t])[0, -1]
            assert (logits[row] - alone).abs().max() < EXACT[dtype]
        following = torch.stack([ids[row, length + t] for row, length in enumerate(LENGTHS)])[:, None]
        # told again or not, what is written is no padding
        logits = model.step(following, cache, torch.ones(3, 1, dtype=torch.bool) if t % 2 else None)


@torch.no_grad()
def test_a_prompt_whose_padding_is_not_told_fails_that_law() -> None:
    model, ids = model_of(), tokens(3, 7)
    logits = model.step(padded_in_front(ids, LENGTHS), model.start())
    assert (logits[1] - model(ids[1:2, :4])[0, -1]).abs().max() > VISIBLE


@every_language_model
@torch.no_grad()
def test_selected_rows_go_on_as_if_they_were_alone(name: str) -> None:
    model, ids = model_of(name), tokens(3, 7)
    prompt = padded_in_front(ids, LENGTHS)
    cache, stale = model.start(), model.start()
    for each in (cache, stale):
        model.step(prompt, each, prompt != PAD)
    rows, more = torch.tensor([2, 0, 0, 1]), tokens(4, 2)
    cache.select(rows)
    stale.select(torch.tensor([0, 1, 2, 0]))  # the wrong twin
    for t in range(2):
        logits, wrong = (model.step(more[:, t : t + 1], each) for each in (cache, stale))
        for i, row in enumerate(rows.tolist()):
            text = torch.cat((ids[row, : LENGTHS[row]], more[i, : t + 1]))[None]
            assert (logits[i] - model(text)[0, -1]).abs().max() < 1e-11
    assert (wrong - logits).abs().max() > VISIBLE


# parts


def test_hidden_and_logits_make_up_the_forward_pass() -> None:
    for name in LANGUAGE_MODELS:
        model, ids = model_of(name), tokens(2, 6)
        assert torch.equal(model.logits(model.hidden(ids)), model(ids))


def test_tied_embeddings_are_one_matrix_and_untied_two() -> None:
    tied, untied = model_of(), model_of(tie_embeddings=False)
    assert tied.output.weight is tied.embedding.tokens.table.weight
    count = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == V * 12
    apart = model_of(tie_output=False)  # with one stack, the same as untied
    assert sum(p.numel() for p in apart.parameters()) == count[1]


@torch.no_grad()
def test_the_output_has_its_bias_and_its_scale() -> None:
    plain, scaled, biased = model_of(), model_of(scale_output=True), model_of(output_bias=True)
    ids = tokens(2, 6)
    scaled.load_state_dict(plain.state_dict())
    assert (scaled(ids) * math.sqrt(12) - plain(ids)).abs().max() < 1e-12
    biased.load_state_dict({**plain.state_dict(), "output.bias": torch.arange(V).double()})
    assert (biased(ids) - plain(ids) - torch.arange(V)).abs().max() < 1e-12


@torch.no_grad()
def test_without_a_padding_id_every_id_is_text() -> None:
    model, ids = model_of(pad_id=None), tokens(2, 6)
    ids[:, 2] = 0
    other = ids.clone()
    other[:, 2] = 5
    assert (model(ids) - model(other))[:, 3:].abs().max() > VISIBLE
    cache = model.start()
    assert (model.step(ids, cache) - model(ids)[:, -1]).abs().max() < 1e-11


def test_a_row_of_nothing_but_padding_gives_finite_logits_and_gradients() -> None:
    for name in LANGUAGE_MODELS:
        model, ids = model_of(name), tokens(2, 5)
        ids[1] = PAD
        logits = model(ids)
        logits.square().mean().backward()
        assert bool(logits.isfinite().all())
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize(("rows", "length"), [(0, 5), (2, 0)])
def test_nothing_gives_nothing(rows: int, length: int) -> None:
    for name in LANGUAGE_MODELS:
        assert model_of(name)(torch.ones(rows, length, dtype=torch.long)).shape == (rows, length, V)


def test_dropout_only_while_training() -> None:
    model = model_of("llama", dropout=0.5, attention_dropout=0.5, feedforward_dropout=0.5)
    ids = tokens(2, 6)
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


def test_learned_positions_end_where_they_end() -> None:
    model, cache = model_of("gpt", max_length=6), model_of("gpt", max_length=6).start()
    model(tokens(2, 6))
    model.step(tokens(2, 6), cache)
    for call in (lambda: model(tokens(2, 7)), lambda: model.step(tokens(2, 1), cache)):
        with pytest.raises(DataError, match="got a sequence of 7 tokens, max_length=6"):
            call()


@pytest.mark.parametrize("name", ["paper", "llama", "bloom", "t5", "no positions"])
@torch.no_grad()
def test_other_schemes_go_past_max_length_and_decode_as_at_once(name: str) -> None:
    model, ids = model_of(name, max_length=4), tokens(1, 11)
    whole, cache = model(ids), model.start()
    for t in range(11):
        assert (model.step(ids[:, t : t + 1], cache) - whole[:, t]).abs().max() < 1e-11


@pytest.mark.parametrize(
    "layers", [{"num_encoder_layers": 1}, {"num_encoder_layers": 1, "num_decoder_layers": 0}]
)
def test_a_model_with_encoder_layers_is_refused(layers: dict[str, object]) -> None:
    config = language_config(**layers)
    with pytest.raises(ConfigError) as refused:
        LanguageModel(config)
    assert str(refused.value) == (
        "a language model has decoder layers alone: got num_encoder_layers=1, "
        f"num_decoder_layers={config.num_decoder_layers}; "
        "set num_encoder_layers=0 and num_decoder_layers to 1 or more"
    )


@torch.no_grad()
def test_scaled_rotary_positions_are_used() -> None:
    ids = tokens(2, 6)
    settings = [
        RotaryConfig(),
        RotaryConfig(base=100.0),
        RotaryConfig(share=0.5),
        RotaryConfig(scaling="linear", factor=4.0),
    ]
    models = [model_of("llama", rotary=rotary) for rotary in settings]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
        assert (model(ids) - models[0](ids)).abs().max() > VISIBLE


def test_the_shared_list_of_models_tries_every_setting() -> None:
    """What no shared configuration changes, no law above is held against."""
    configs = [language_config(name) for name in LANGUAGE_MODELS]
    paper, elsewhere = ModelConfig(), {"num_segments", "num_classes", "pooling", "patches", "pad_id"}
    elsewhere |= {"norm_eps", "output_gain", "relative_buckets", "relative_distance", "dropout"}
    elsewhere |= {"attention_dropout", "feedforward_dropout", "tie_output", "pooling_activation"}
    never = {f for f in vars(paper) if all(getattr(c, f) == getattr(paper, f) for c in configs)}
    assert never <= elsewhere
    assert {c.positions for c in configs} == {"sinusoidal", "learned", "rotary", "alibi", "relative", "none"}
