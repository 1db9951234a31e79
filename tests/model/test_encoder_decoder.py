"""The laws of the whole model, and nn.Transformer with the same weights."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model import attention
from headwise.model.encoder_decoder import AttentionMaps, EncoderDecoder
from headwise.model.masks import causal_keep, padding_keep, weights_outside
from torch_layers import (
    STACKS,
    TOLERANCE,
    VISIBLE,
    WRONG_TWINS,
    Attend,
    right_padding,
    shaken,
    small_config,
    torch_decoder,
    torch_encoder,
)

PAD = 0
EXACT = {torch.float32: 1e-5, torch.float64: 1e-12}
KINDS: list[dict[str, object]] = [
    {},
    {"norm": "pre"},
    {"norm": "post", "positions": "learned", "tie_embeddings": False, "activation": "gelu"},
    {"norm": "pre", "positions": "learned", "attention_bias": True, "activation": "gelu"},
    {"norm": "post", "positions": "none", "attention_bias": True, "feedforward_bias": False},
    {"norm": "pre", "positions": "none", "tie_embeddings": False, "feedforward_bias": False},
    {"norm": "pre", "tie_embeddings": False, "attention_bias": True, "scale_embedding": False},
    {"norm": "post", "num_encoder_layers": 1, "num_decoder_layers": 3, "output_gain": "inverse-sqrt-heads"},
    {  # Marian's
        "norm": "post",
        "activation": "silu",
        "attention_bias": True,
        "output_bias": True,
        "embedding_norm": True,
    },
    {  # T5's
        "norm": "pre",
        "norm_kind": "rms",
        "positions": "relative",
        "gated": True,
        "activation": "gelu-tanh",
        "feedforward_bias": False,
        "scale_attention": False,
        "scale_embedding": False,
        "scale_output": True,
    },
    {"norm": "pre", "positions": "rotary", "num_heads": 6, "num_kv_heads": 2, "d_head": 4, "qk_norm": True},
    {"norm": "pre", "positions": "alibi", "norm_kind": "rms", "window": 4},
]
every_kind = pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: ",".join(map(str, kind.values())) or "paper"
)
both_dtypes = pytest.mark.parametrize("dtype", EXACT, ids=["float32", "float64"])


def model_of(dtype: torch.dtype = torch.float64, **changes: object) -> EncoderDecoder:
    model = shaken(EncoderDecoder(small_config(**changes)).to(dtype), 0.05).eval()
    assert isinstance(model, EncoderDecoder)
    return model


def tokens(lengths: list[int]) -> Tensor:
    """Random ids, never padding; padded on the right."""
    ids = torch.randint(1, 29, (len(lengths), max(lengths)))
    return ids.where(right_padding(lengths, max(lengths)), torch.tensor(PAD))


SOURCES, TARGETS = [7, 4, 6], [5, 6, 3]


# padding, batch, future


@every_kind
@both_dtypes
@torch.no_grad()
def test_padded_equals_unpadded(kind: dict[str, object], dtype: torch.dtype) -> None:
    model = model_of(dtype, **kind)
    source, target = tokens([7, 7]), tokens([5, 5])
    more_source = nn.functional.pad(source, (0, 4), value=PAD)
    more_target = nn.functional.pad(target, (0, 3), value=PAD)
    padded = model(more_source, more_target)[:, :5]
    assert (padded - model(source, target)).abs().max() < EXACT[dtype]


@every_kind
@both_dtypes
@torch.no_grad()
def test_a_batch_equals_its_rows_one_by_one(kind: dict[str, object], dtype: torch.dtype) -> None:
    model = model_of(dtype, **kind)
    source, target = tokens(SOURCES), tokens(TARGETS)
    together = model(source, target)
    for row, (source_length, length) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone = model(source[row : row + 1, :source_length], target[row : row + 1, :length])
        assert (together[row, :length] - alone[0]).abs().max() < EXACT[dtype]


@every_kind
@both_dtypes
@torch.no_grad()
def test_future_tokens_never_move_earlier_logits(kind: dict[str, object], dtype: torch.dtype) -> None:
    model = model_of(dtype, **kind)
    source, target = tokens(SOURCES), tokens([6, 6, 6])
    before = model(source, target)
    for t in range(5):
        changed = target.clone()
        changed[:, t + 1 :] = (target[:, t + 1 :] + 7) % 28 + 1
        after = model(source, changed)
        assert torch.equal(after[:, : t + 1], before[:, : t + 1])
        assert (after[:, t + 1] - before[:, t + 1]).abs().max() > VISIBLE


@torch.no_grad()
def test_a_model_without_causal_mask_fails_that_law(monkeypatch: pytest.MonkeyPatch) -> None:
    import headwise.model.encoder_decoder as module

    monkeypatch.setattr(module, "causal_keep", lambda n, **_: torch.ones(1, 1, n, n, dtype=torch.bool))
    model = model_of()
    source, target = tokens([7]), tokens([6])
    changed = target.clone()
    changed[:, 5] = target[:, 5] % 28 + 1
    assert (model(source, changed) - model(source, target))[:, :5].abs().max() > VISIBLE


@every_kind
@both_dtypes
@torch.no_grad()
def test_what_stands_at_padding_never_matters(kind: dict[str, object], dtype: torch.dtype) -> None:
    model = model_of(dtype, **kind)
    source, target = tokens(SOURCES), tokens(TARGETS)
    real = right_padding(TARGETS, max(TARGETS))
    before = model(source, target)[real]
    for table in {model.source_embedding.table, model.target_embedding.table}:
        table.weight[PAD] = torch.randn(12) * 100
    after = model(source, target)[real]
    # with tied embeddings the row is the padding token's output vector too
    assert torch.equal(after[:, PAD + 1 :], before[:, PAD + 1 :])


@every_kind
def test_padding_receives_no_gradient(kind: dict[str, object]) -> None:
    model = model_of(**{**kind, "tie_embeddings": False})
    real = right_padding(TARGETS, max(TARGETS))
    model(tokens(SOURCES), tokens(TARGETS))[real].square().sum().backward()
    for embedding in (model.source_embedding, model.target_embedding):
        gradient = embedding.table.weight.grad
        assert gradient is not None and not gradient[PAD].any() and gradient.any()


@both_dtypes
def test_a_source_of_nothing_but_padding_gives_finite_logits_and_gradients(dtype: torch.dtype) -> None:
    model = model_of(dtype)
    source = tokens([7, 4])
    source[1] = PAD
    maps = AttentionMaps()
    logits = model(source, tokens([5, 5]), maps)
    assert all(not weights[1].any() for weights in maps.encoder + maps.cross)
    assert all(bool(weights[0].any()) for weights in maps.encoder + maps.cross)
    logits.sum().backward()
    assert bool(logits.isfinite().all())
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


# attention maps


@every_kind
@torch.no_grad()
def test_every_weight_is_zero_where_it_must_be(kind: dict[str, object]) -> None:
    model = model_of(**kind)
    source, target, maps = tokens(SOURCES), tokens(TARGETS), AttentionMaps()
    model(source, target, maps)
    of_source = padding_keep(source, PAD)
    of_target = causal_keep(6) & padding_keep(target, PAD)
    assert len(maps.encoder) == model.config.num_encoder_layers
    assert len(maps.decoder) == len(maps.cross) == model.config.num_decoder_layers
    for weights, keep in [
        *[(weights, of_source) for weights in maps.encoder],
        *[(weights, of_target) for weights in maps.decoder],
        *[(weights, of_source) for weights in maps.cross],
    ]:
        assert weights_outside(weights, keep) == 0
        assert (weights.sum(-1) - 1).abs().max() < 1e-12
        assert weights_outside(weights, ~keep) > 0.1  # so the check can fail


@pytest.mark.parametrize("few_keys", [0, 128], ids=["fast", "explicit"])
@torch.no_grad()
def test_asking_for_the_maps_moves_no_logit(few_keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", few_keys)
    model, source, target = model_of(), tokens(SOURCES), tokens(TARGETS)
    assert (model(source, target, AttentionMaps()) - model(source, target)).abs().max() < 1e-12


# decoding with a cache


@every_kind
@both_dtypes
@pytest.mark.parametrize("sizes", [[1] * 6, [3, 1, 2], [6]], ids=str)
@torch.no_grad()
def test_cached_equals_uncached_at_every_step(
    sizes: list[int], kind: dict[str, object], dtype: torch.dtype
) -> None:
    model = model_of(dtype, **kind)
    source, target = tokens(SOURCES), tokens([6, 6, 6])
    whole = model(source, target)
    cache = model.start(source)
    for part in target.split(sizes, dim=1):
        logits = model.step(part, cache)
        assert (logits - whole[:, cache.length - 1]).abs().max() < EXACT[dtype]
    assert cache.length == 6


@every_kind
@both_dtypes
@torch.no_grad()
def test_hypotheses_of_a_sentence_decode_as_if_alone(kind: dict[str, object], dtype: torch.dtype) -> None:
    model = model_of(dtype, **kind)
    source, target = tokens(SOURCES), tokens([6] * 12)
    whole = model(source.repeat_interleave(4, dim=0), target)
    cache = model.start(source)
    for t in range(6):
        logits = model.step(target[:, t : t + 1], cache)
        assert (logits - whole[:, t]).abs().max() < EXACT[dtype]
    assert all(k.size(0) == 3 for k, _ in cache.memory)


@every_kind
@both_dtypes
@torch.no_grad()
def test_selecting_sentences_and_hypotheses_goes_on_as_if_they_were_alone(
    kind: dict[str, object], dtype: torch.dtype
) -> None:
    model = model_of(dtype, **kind)
    source, target = tokens(SOURCES), tokens([3] * 6)
    cache = model.start(source)
    model.step(target, cache)  # rows 0 1, 2 3, 4 5: two hypotheses of each sentence
    sentences, rows = torch.tensor([2, 1]), torch.tensor([5, 5, 3, 2])
    cache.select_sentences(sentences)
    cache.select_hypotheses(rows)
    more = tokens([3] * 4)
    written = torch.cat((target[rows], more), dim=1)
    whole = model(source[sentences].repeat_interleave(2, dim=0), written)
    for t in range(3):
        logits = model.step(more[:, t : t + 1], cache)
        assert (logits - whole[:, 3 + t]).abs().max() < EXACT[dtype]
    # the wrong twin: hypotheses left where they were
    stale = model.start(source)
    model.step(target, stale)
    stale.select_sentences(sentences)
    stale.select_hypotheses(torch.tensor([0, 1, 2, 3]))
    assert (model.step(more[:, :1], stale) - whole[:, 3]).abs().max() > VISIBLE


@torch.no_grad()
def test_sinusoids_past_max_length_decode_as_they_do_at_once() -> None:
    model, grown = model_of(max_length=4), model_of(max_length=4)
    grown.load_state_dict(model.state_dict())
    source, target = tokens([7]), tokens([11])
    whole, cache = model(source, target), grown.start(source)
    for t in range(11):
        assert (grown.step(target[:, t : t + 1], cache) - whole[:, t]).abs().max() < 1e-12


# parts


def test_hidden_and_logits_make_up_the_forward_pass() -> None:
    model, source, target = model_of(), tokens(SOURCES), tokens(TARGETS)
    assert torch.equal(model.logits(model.hidden(source, target)), model(source, target))


def test_tied_embeddings_are_one_matrix_and_untied_three() -> None:
    tied, untied = model_of(tie_embeddings=True), model_of(tie_embeddings=False)
    assert tied.output.weight is tied.source_embedding.table.weight is tied.target_embedding.table.weight
    count = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == 2 * 29 * 12


def test_the_output_may_be_tied_to_the_target_alone_or_to_nothing() -> None:
    target, apart = model_of(tie_embeddings=False, tie_output=True), model_of(tie_output=False)
    assert target.output.weight is target.target_embedding.table.weight
    assert target.output.weight is not target.source_embedding.table.weight
    assert apart.source_embedding is apart.target_embedding
    assert apart.output.weight is not apart.target_embedding.table.weight
    source, written = tokens(SOURCES), tokens(TARGETS)
    for model in (target, apart):
        hidden = model.hidden(source, written)
        assert torch.equal(model(source, written), hidden @ model.output.weight.T)


def test_learned_positions_of_source_and_target_are_two_tables() -> None:
    model = model_of(positions="learned")
    names = [name for name, _ in model.named_parameters() if "positions" in name]
    assert names == ["source_positions.table", "target_positions.table"]


def test_loading_the_state_restores_every_logit() -> None:
    one, other = model_of(tie_embeddings=False), model_of(tie_embeddings=False)
    source, target = tokens(SOURCES), tokens(TARGETS)
    assert not torch.equal(one(source, target), other(source, target))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(source, target), other(source, target))


def test_dropout_only_while_training() -> None:
    model = model_of(dropout=0.5, attention_dropout=0.5, feedforward_dropout=0.5)
    source, target = tokens(SOURCES), tokens(TARGETS)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))
    torch.manual_seed(3)
    first = model(source, target)
    torch.manual_seed(3)
    assert torch.equal(model(source, target), first)


# nn.Transformer


def difference(config: ModelConfig, training: bool) -> float:
    """Largest difference of the logits to nn.Transformer's, from the same embedded tokens on."""
    model = model_of(**vars(config)).train(training)
    stacks = torch_encoder(model.encoder, config), torch_decoder(model.decoder, config)
    theirs = nn.Transformer(
        config.d_model,
        config.num_heads,
        custom_encoder=copy.deepcopy(stacks[0]),
        custom_decoder=copy.deepcopy(stacks[1]),
        batch_first=True,
        dtype=torch.float64,
    ).train(training)
    # its constructor draws new weights for the stacks it is given
    theirs.encoder.load_state_dict(stacks[0].state_dict())
    theirs.decoder.load_state_dict(stacks[1].state_dict())
    source, target = tokens(SOURCES), tokens(TARGETS)
    real, source_real = target != PAD, source != PAD
    hidden = theirs(
        model.source_positions(model.source_embedding(source)),
        model.target_positions(model.target_embedding(target)),
        tgt_mask=~torch.ones(6, 6, dtype=torch.bool).tril(),
        src_key_padding_mask=~source_real,
        tgt_key_padding_mask=~real,
        memory_key_padding_mask=~source_real,
    )
    return (model(source, target) - hidden @ model.output.weight.T)[real].abs().max().item()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("stack", STACKS, ids=str)
@torch.no_grad()
def test_agrees_with_torch(stack: dict[str, object], training: bool) -> None:
    assert difference(small_config(**stack), training) < TOLERANCE


@pytest.mark.parametrize("twin", WRONG_TWINS.values(), ids=WRONG_TWINS.keys())
@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_a_wrong_twin_does_not(norm: str, twin: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attend", twin)
    assert difference(small_config(norm=norm), training=False) > VISIBLE


# the worked example: batch 2, length 10, d_model 16, 4 heads


def test_worked_example_from_embedding_to_output() -> None:
    model = EncoderDecoder(small_config(d_model=16, num_heads=4, d_ff=None, num_encoder_layers=1)).eval()
    seen: dict[str, tuple[int, ...]] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(
            # positions inside attention are none here: their module gives nothing
            lambda _, __, output, name=name: seen.update(
                {} if output is None else {name: tuple(output.shape)}
            )
        )
    maps = AttentionMaps()
    assert model(tokens([10, 10]), tokens([10, 10]), maps).shape == (2, 10, 29)
    vectors, wide = (2, 10, 16), (2, 10, 64)
    expected = {
        "source_embedding": vectors,
        "source_positions": vectors,
        "encoder.blocks.0.self_attention.query_key_value": (2, 10, 48),
        "encoder.blocks.0.self_attention": vectors,
        "encoder.blocks.0.after_self_attention.norm": vectors,
        "encoder.blocks.0.feedforward.wide": wide,
        "encoder.blocks.0.feedforward": vectors,
        "encoder.blocks.0.after_feedforward": vectors,
        "encoder": vectors,
        "decoder.blocks.1.self_attention": vectors,
        "decoder.blocks.1.cross_attention.output": vectors,
        "decoder.blocks.1.after_cross_attention": vectors,
        "decoder.blocks.1.feedforward.wide": wide,
        "decoder.blocks.1.after_feedforward": vectors,
        "decoder": vectors,
    }
    assert {name: seen[name] for name in expected} == expected
    assert {tuple(w.shape) for w in maps.encoder + maps.decoder + maps.cross} == {(2, 4, 10, 10)}


@pytest.mark.parametrize(("rows", "source_length", "target_length"), [(0, 5, 6), (2, 5, 0)])
def test_nothing_gives_nothing(rows: int, source_length: int, target_length: int) -> None:
    model = EncoderDecoder(ModelConfig(vocab_size=20, d_model=16, num_heads=4, num_decoder_layers=1))
    source, target = (torch.ones(rows, n, dtype=torch.long) for n in (source_length, target_length))
    assert model(source, target).shape == (rows, target_length, 20)


UNCHECKED = """
import torch
from headwise import EncoderDecoder, HeadwiseError, ModelConfig, attend
from headwise.train.loss import cross_entropy

model = EncoderDecoder(ModelConfig(vocab_size=20, d_model=16, num_heads=4, num_decoder_layers=1))
ids = lambda *shape: torch.ones(*shape, dtype=torch.long)
q = {n: torch.randn(1, 2, n, 4) for n in (5, 40)}
for n, call in enumerate((
    lambda: model(ids(3, 5), ids(1, 6)),
    lambda: model(ids(2, 5), ids(3, 6)),
    lambda: model(ids(2, 5), ids(4, 6)),
    lambda: attend(q[5], q[5], q[5], torch.ones(1, 1, 5, 5)),
    lambda: attend(q[40], q[40], q[40], torch.ones(1, 1, 40, 40)),
    lambda: cross_entropy(torch.randn(6, 4), torch.randn(9, 4), ids(1)),
)):
    try:
        call()
    except HeadwiseError:
        continue
    raise SystemExit(f"case {n} was not refused")
"""


def test_what_would_be_computed_wrongly_is_refused_without_a_type_checker_too() -> None:
    """In a process of its own: the checks of the tests would refuse it first."""
    done = subprocess.run([sys.executable, "-c", UNCHECKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# what the paper does not have


@torch.no_grad()
def test_embeddings_of_source_and_target_have_a_norm_each() -> None:
    model, source, target = model_of(embedding_norm=True), tokens(SOURCES), tokens(TARGETS)
    assert model.source_norm is not None and model.target_norm is not None
    assert model.source_norm is not model.target_norm
    keep = padding_keep(source, PAD)
    embedded = model.source_norm(model.source_positions(model.source_embedding(source)))
    assert (model.encode(source, keep) - model.encoder(embedded, keep)).abs().max() < 1e-12
    before = model(source, target)
    for norm in (model.source_norm, model.target_norm):
        norm.gain.mul_(1.5)
        after = model(source, target)
        assert (after - before).abs().max() > VISIBLE
        before = after


@torch.no_grad()
def test_the_output_has_its_bias_and_its_scale() -> None:
    plain, scaled, biased = model_of(), model_of(scale_output=True), model_of(output_bias=True)
    source, target = tokens(SOURCES), tokens(TARGETS)
    scaled.load_state_dict(plain.state_dict())
    assert (scaled(source, target) * 12**0.5 - plain(source, target)).abs().max() < 1e-12
    biased.load_state_dict({**plain.state_dict(), "output.bias": torch.arange(29).double()})
    assert (biased(source, target) - plain(source, target) - torch.arange(29)).abs().max() < 1e-12


@every_kind
@torch.no_grad()
def test_a_target_may_start_with_the_padding_id(kind: dict[str, object]) -> None:
    """T5's and Marian's begin mark: it stands at the first position, and is no padding there."""
    model = model_of(**kind)
    source, target = tokens(SOURCES), tokens([6, 6, 6])
    target[:, 0] = PAD
    whole, cache = model(source, target), model.start(source)
    for t in range(6):
        assert (model.step(target[:, t : t + 1], cache) - whole[:, t]).abs().max() < 1e-12
    maps = AttentionMaps()
    model(source, target, maps)
    assert bool((maps.decoder[0][:, :, 1, 0] > 0).all())
    # behind it, padding is padding: the same logits without it
    longer = nn.functional.pad(target, (0, 3), value=PAD)
    assert (model(source, longer)[:, :6] - whole).abs().max() < 1e-12


@torch.no_grad()
def test_a_window_bounds_how_far_the_target_looks_back() -> None:
    model, source, target = model_of(window=2, num_decoder_layers=1), tokens([7]), tokens([6])
    before = model(source, target)
    changed = target.clone()
    changed[:, 1] = target[:, 1] % 28 + 1
    moved = (model(source, changed) - before)[0].abs().amax(-1) > 1e-9
    assert moved.tolist() == [False, True, True, False, False, False]
    wide, whole = model_of(window=6), model_of()
    wide.load_state_dict(whole.state_dict())
    assert torch.equal(wide(source, target), whole(source, target))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_encoder_layers": 0},
            "an encoder-decoder needs layers of both kinds: got num_encoder_layers=0, num_decoder_layers=2; "
            "set both to 1 or more",
        ),
        (
            {"num_decoder_layers": 0},
            "an encoder-decoder needs layers of both kinds: got num_encoder_layers=2, num_decoder_layers=0; "
            "set both to 1 or more",
        ),
        ({"pad_id": None}, "an encoder-decoder pads its sources: got pad_id=None; set pad_id"),
        (
            {"parallel_blocks": True, "norm": "pre"},
            "parallel_blocks is for models of one stack (a decoder block looks at the source between its two "
            "halves): got an encoder-decoder; leave it out",
        ),
    ],
)
def test_what_it_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EncoderDecoder(small_config(**changes))
    assert str(refused.value) == message


def test_sources_without_as_many_targets_are_refused() -> None:
    with pytest.raises(ValueError) as refused:
        model_of().hidden.__wrapped__(model_of(), tokens([5, 5]), tokens([6]))  # the tests' checker aside
    assert "each source needs its target: got 2 sources and 1 targets" in str(refused.value)
