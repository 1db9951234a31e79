"""Mistakes made by hand in healthy models, and the names under which the doctor may report each."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.subject import Subject
from zoo import batches, laws, surgery
from zoo.batches import IGNORED, PAD, WIDTH, logits_of
from zoo.surgery import NotHere

Apply = Callable[[Subject], Subject | None]


@dataclass(frozen=True)
class Damage:
    """One mistake.

    accepted: the checks' names that say what was done (several where the damage truly is both).
    breaks: what must move, or the damage did nothing: "future", "padding", "rows" or "noise" of
        laws.Measured, "logits", "loss", "gradient", "nan"; "" where only training or decoding shows it.
    apply: changes the subject's model in place, or returns another subject; raises NotHere.
    is_design: some build it so on purpose, so that a note is all that can be asked of the doctor.
    harmless_in: models that the damage changes without harm, so that silence is right, each with the reason.
    """

    name: str
    accepted: frozenset[str]
    kinds: frozenset[str]
    breaks: str
    apply: Apply
    is_design: bool = False
    harmless_in: Mapping[str, str] = field(default_factory=dict[str, str])


DAMAGES: dict[str, Damage] = {}
EVERY = ("decoder", "encoder", "encoder-decoder")


def damage(
    *accepted: str,
    kinds: tuple[str, ...] = EVERY,
    breaks: str = "logits",
    is_design: bool = False,
    harmless_in: Mapping[str, str] | None = None,
) -> Callable[[Apply], Apply]:
    """Register a function that damages a subject."""

    def register(apply: Apply) -> Apply:
        name = apply.__name__.replace("_", "-")
        DAMAGES[name] = Damage(
            name, frozenset(accepted), frozenset(kinds), breaks, apply, is_design, harmless_in or {}
        )
        return apply

    return register


def hurt(damage: Damage, subject: Subject) -> Subject:
    """The damaged subject. The optimizer is made after the damage, as its author would have made it.

    Raises NotHere where there is nothing to damage, the damaged model does not run, or nothing came of it.
    """
    if subject.kind not in damage.kinds:
        raise NotHere(f"made for {', '.join(sorted(damage.kinds))}")
    healthy = replace(subject, model=copy.deepcopy(subject.model))
    after = damage.apply(subject) or subject
    try:
        moved = effect(damage, healthy, after)
        if after.generate is not None and "input_ids" in after.inputs:
            after.generate(copy.deepcopy(after.model), after.inputs["input_ids"][:1, :4], 2)
    except RuntimeError as error:
        raise NotHere(f"does not run: {error}") from error
    if not moved > LEAST:
        raise NotHere(f"moves nothing ({moved:.1g})")
    if after.optimizer is subject.optimizer and subject.optimizer is not None:
        rate = subject.optimizer.param_groups[0]["lr"]
        after = replace(after, optimizer=torch.optim.AdamW(subject.model.parameters(), lr=rate))
    return replace(after, name=f"{subject.name} with {damage.name}")


LEAST = 5e-7


def effect(damage: Damage, healthy: Subject, damaged: Subject) -> float:
    """How much of what it must move the damage has moved; inf where there is nothing to measure."""
    if damage.breaks in ("future", "padding", "rows", "noise"):
        return float(getattr(laws.measure(damaged), damage.breaks))
    if damage.breaks == "":
        return float("inf")
    with torch.random.fork_rng():
        outputs, losses, still = [], [], []
        for subject in (healthy, damaged):
            assert subject.loss is not None
            model = copy.deepcopy(subject.model).eval()
            output = laws.call(model, subject.inputs)
            loss = subject.loss(output, subject.targets)
            loss.backward()
            outputs.append(logits_of(output).detach())
            losses.append(loss.item())
            still.append(sum(p.grad is None or not p.grad.any() for p in model.parameters()))
    return {
        "logits": float((outputs[1] - outputs[0]).abs().max()),
        "loss": abs(losses[1] - losses[0]),
        "gradient": float(still[1] - still[0]),
        "nan": float(outputs[1].isnan().sum()),
    }[damage.breaks]


def _masks(where: str, edit: Callable[[Tensor], Tensor], is_causal: bool, only_last: bool = False) -> Apply:
    def apply(subject: Subject) -> None:
        found = surgery.attentions(subject.model, where)
        for module in found[-1:] if only_last else found:
            surgery.edit_mask(module, edit, is_causal)

    return apply


# ---- masks


def _past_only(keep: Tensor) -> Tensor:
    """Padding alone: the last query sees every key that is not padding."""
    return keep[..., -1:, :].expand_as(keep)


# T5 adds its mask of numbers to a bias: what is dropped there is a zero written in place of -inf.
@damage("causal-leak", "mask-weak-value", kinds=("decoder", "encoder-decoder"), breaks="future")
def causal_mask_dropped(subject: Subject) -> None:
    _without_windows(subject)
    _masks("decoder", _past_only, True)(subject)


@damage(
    "causal-missing-in-one-layer", "mask-weak-value", kinds=("decoder", "encoder-decoder"), breaks="future"
)
def causal_mask_dropped_in_the_last_layer(subject: Subject) -> None:
    _without_windows(subject)
    _masks("decoder", _past_only, True, only_last=True)(subject)


@damage("causal-off-by-one", kinds=("decoder", "encoder-decoder"), breaks="future")
def causal_mask_late_by_one(subject: Subject) -> None:
    _without_windows(subject)
    _masks("decoder", lambda keep: torch.cat([keep[..., 1:, :], keep[..., -1:, :]], dim=-2), True)(subject)


@damage("mask-inverted", kinds=("decoder",), breaks="future")
def causal_mask_inverted(subject: Subject) -> None:
    _without_windows(subject)
    _masks("decoder", lambda keep: ~keep, True)(subject)


@damage("mask-weak-value", kinds=("decoder",), breaks="future")
def causal_mask_of_minus_two(subject: Subject) -> None:
    _masks("decoder", lambda keep: torch.zeros(keep.shape).masked_fill(~keep, -2.0), True)(subject)


@damage("mask-excludes-self", kinds=("decoder",))
def diagonal_masked(subject: Subject) -> None:
    def strict(keep: Tensor) -> Tensor:
        return keep & ~torch.eye(keep.size(-2), keep.size(-1), dtype=torch.bool)

    _masks("decoder", strict, True)(subject)


@damage("causal-mask-in-encoder", kinds=("encoder", "encoder-decoder"))
def encoder_masked_causally(subject: Subject) -> None:
    _without_windows(subject)
    _masks("encoder", lambda keep: keep & torch.ones(keep.shape[-2:], dtype=torch.bool).tril(), False)(
        subject
    )


@damage("mask-wrong-axis", kinds=("encoder",), breaks="padding")
def padding_mask_on_the_queries(subject: Subject) -> None:
    _with_padding(subject)
    _without_windows(subject)
    _masks("encoder", lambda keep: keep[..., :1, :].expand_as(keep).transpose(-1, -2), False)(subject)


def _replace_attention_mask(edit: Callable[[Tensor], Tensor]) -> Apply:
    def apply(subject: Subject) -> None:
        _with_padding(subject)

        def make(old: surgery.Forward) -> surgery.Forward:
            def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
                if kwargs.get("attention_mask") is not None:
                    kwargs["attention_mask"] = edit(kwargs["attention_mask"])
                return old(self, *args, **kwargs)

            return forward

        surgery.change_forward(subject.model, make)

    return apply


@damage("padding-attended", "mask-not-forwarded", kinds=("encoder", "encoder-decoder"), breaks="padding")
def padding_mask_ignored(subject: Subject) -> None:
    _replace_attention_mask(torch.ones_like)(subject)


@damage("mask-inverted", kinds=("encoder", "encoder-decoder"), breaks="padding")
def padding_mask_inverted(subject: Subject) -> None:
    _replace_attention_mask(lambda mask: 1 - mask)(subject)


@damage("mask-after-softmax", kinds=("decoder",), breaks="future")
def mask_after_the_softmax(subject: Subject) -> None:
    _sdpa(subject, lambda q, k, v, **more: surgery.explicit_attention(q, k, v, **more, mask_after=True))


@damage("cross-mask-missing", "mask-not-forwarded", kinds=("encoder-decoder",), breaks="padding")
def cross_attention_without_mask(subject: Subject) -> None:
    _masks("cross", torch.ones_like, False)(subject)


@damage("encoder-output-unused", kinds=("encoder-decoder",))
def cross_attention_reads_the_decoder(subject: Subject) -> None:
    for module in surgery.attentions(subject.model, "cross"):

        def make(old: surgery.Forward) -> surgery.Forward:
            def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
                bound = surgery.arguments(old, self, args, kwargs)
                for name in ("key_value_states", "encoder_hidden_states"):
                    if name in bound.arguments:
                        bound.arguments[name] = bound.arguments["hidden_states"]
                for name in ("mask", "attention_mask"):
                    if name in bound.arguments:
                        bound.arguments[name] = None
                return old(*bound.args, **bound.kwargs)

            return forward

        surgery.change_forward(module, make)


# ---- attention


def _sdpa(subject: Subject, attend: Callable[..., Tensor]) -> None:
    """Replace the fused attention of every self-attention; NotHere for models that write it out."""
    if getattr(subject.model.config, "_attn_implementation", "") != "sdpa":
        raise NotHere("attention is not the fused one")

    def edits(module: nn.Module, first: Tensor | None) -> Any:
        def edit(name: str, func: Any, args: Any, kwargs: Any) -> Any:
            if func is not surgery.SDPA:
                return NotImplemented
            words = ("attn_mask", "dropout_p", "is_causal", "scale")
            return attend(*args[:3], **{**dict(zip(words, args[3:], strict=False)), **kwargs})

        return edit

    for module in surgery.attentions(subject.model, "self"):
        surgery.edit_ops(module, edits)


def _without_query_norm(subject: Subject) -> None:
    """A norm of the queries takes the scale's place: without one it is nobody's mistake."""
    if any(path.endswith(("q_norm", "q_layernorm")) for path, _ in subject.model.named_modules()):
        raise NotHere("queries are normalised")


@damage("no-scale")
def scale_left_out(subject: Subject) -> None:
    _without_query_norm(subject)

    def attend(q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Tensor:
        return surgery.SDPA(q, k, v, **{**more, "scale": 1.0})

    _not_scaled_elsewhere(subject)
    _sdpa(subject, attend)


def _wrong_scale(subject: Subject, scale: Callable[[int], float]) -> None:
    """Another scale than 1 / sqrt(d_head); 1 / d_head is no mistake for some (muP)."""
    _without_query_norm(subject)

    def attend(q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Tensor:
        return surgery.SDPA(q, k, v, **{**more, "scale": scale(q.size(-1))})

    _not_scaled_elsewhere(subject)
    _sdpa(subject, attend)


@damage("wrong-scale")
def scale_multiplied(subject: Subject) -> None:
    _wrong_scale(subject, lambda d_head: d_head**0.5)


@damage("wrong-scale")
def scale_of_the_models_width(subject: Subject) -> None:
    _wrong_scale(subject, lambda d_head: WIDTH**-0.5)


def _not_scaled_elsewhere(subject: Subject) -> None:
    name = type(subject.model).__name__
    if "T5" in name:
        raise NotHere("T5 has its scale in the weights")
    if "OPT" in name:
        raise NotHere("OPT scales its queries before")


@damage("softmax-wrong-dim")
def softmax_over_the_queries(subject: Subject) -> None:
    _sdpa(subject, lambda q, k, v, **more: surgery.explicit_attention(q, k, v, **more, dim=-2))


def _transposed(func_name: str, args: Any) -> Tensor | None:
    """The operand where heads and positions change places."""
    is_swap = (func_name == "transpose" and args[1:] in ((1, 2), (2, 1))) or (
        func_name == "permute" and args[1:] in ((0, 2, 1, 3), ((0, 2, 1, 3),))
    )
    return args[0] if is_swap and args[0].ndim == 4 else None


def _heads(subject: Subject, after_core: bool) -> None:
    """Where heads and positions should change places, only say that they have."""

    def edits(module: nn.Module, first: Tensor | None) -> Any:
        passed: list[bool] = []

        def edit(name: str, func: Any, args: Any, kwargs: Any) -> Any:
            if func is surgery.SDPA or name == "softmax":
                passed.append(True)
            x = _transposed(name, args) if bool(passed) == after_core else None
            if x is None:
                return NotImplemented
            return x.reshape(x.size(0), x.size(2), x.size(1), x.size(3))

        return edit

    for module in surgery.attentions(subject.model, "self"):
        surgery.edit_ops(module, edits)


@damage("heads-scrambled")
def heads_split_without_transpose(subject: Subject) -> None:
    _heads(subject, after_core=False)


@damage("heads-merged-wrong")
def heads_merged_without_transpose(subject: Subject) -> None:
    _heads(subject, after_core=True)


@damage("batch-mixed", breaks="rows")
def rows_mixed(subject: Subject) -> None:
    for module in surgery.attentions(subject.model, "self"):
        surgery.edit_output(module, lambda out: out + 0.5 * out.roll(1, 0))


@damage("attention-ignored")
def attention_zeroed(subject: Subject) -> None:
    for module in surgery.attentions(subject.model, "self"):
        if "residual" in inspect.signature(type(module).forward).parameters or hasattr(module, "LayerNorm"):
            raise NotHere("the attention adds its own residual")
        surgery.edit_output(module, torch.zeros_like)


def _share(subject: Subject, *pairs: tuple[str, str]) -> None:
    done = False
    for module in surgery.attentions(subject.model):
        for of, to in pairs:
            source, other = getattr(module, of, None), getattr(module, to, None)
            if isinstance(source, nn.Linear) and isinstance(other, nn.Linear):
                if source.weight.shape != other.weight.shape:
                    raise NotHere("projections of different widths")
                setattr(module, to, source)
                done = True
    if not done:
        raise NotHere("no separate projections")


@damage("value-is-key", "qkv-shared", "weights-accidentally-shared", is_design=True)
def one_projection_for_key_and_value(subject: Subject) -> None:
    _share(subject, ("k_proj", "v_proj"), ("key", "value"), ("k_lin", "v_lin"), ("k", "v"))


@damage("qkv-shared", "weights-accidentally-shared", is_design=True)
def one_projection_for_all_three(subject: Subject) -> None:
    for names in (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q_lin", "k_lin", "v_lin")):
        if hasattr(surgery.attentions(subject.model)[0], names[0]):
            return _share(subject, (names[0], names[1]), (names[0], names[2]))
    raise NotHere("no separate projections")


@damage("output-projection-missing", is_design=True)
def output_projection_left_out(subject: Subject) -> None:
    for module in surgery.attentions(subject.model, "self"):
        found = [name for name in surgery.OUTPUTS if hasattr(module, name)]
        linear = getattr(module, found[0]) if found else None
        if linear is None or sorted(linear.weight.shape) != [WIDTH, WIDTH]:
            raise NotHere("no square output projection inside the attention")
        setattr(module, found[0], nn.Identity())


# ---- positions


@damage(
    "learned-positions-constant",
    "positions-missing",
    harmless_in={"mpnet": "the bias of relative positions in its scores still tells the order"},
)
def positions_all_zero(subject: Subject) -> None:
    def edits(module: nn.Module, first: Tensor | None) -> Any:
        def edit(name: str, func: Any, args: Any, kwargs: Any) -> Any:
            if name != "embedding":
                return NotImplemented
            return func(torch.full_like(args[0], 3), *args[1:], **kwargs)

        return edit

    for table in surgery.position_tables(subject.model):
        surgery.edit_ops(table, edits)


@damage("positions-missing", kinds=("encoder",))
def positions_left_out(subject: Subject) -> None:
    if hasattr(subject.model.config, "relative_attention_num_buckets"):
        raise NotHere("positions are in the attention too")
    for table in surgery.position_tables(subject.model):
        surgery.edit_output(table, torch.zeros_like)


@damage("positions-swamp-embedding", "bad-init")
def positions_far_too_large(subject: Subject) -> None:
    for table in surgery.position_tables(subject.model):
        with torch.no_grad():
            table.weight.normal_(std=4.0)


@damage("cache-position-wrong", "cache-mismatch", kinds=("decoder",), breaks="")
def positions_restart_with_the_cache(subject: Subject) -> Subject:
    accepted = inspect.signature(subject.model.forward).parameters
    if "position_ids" not in accepted or subject.generate is None:
        raise NotHere("positions are not an argument")
    if hasattr(subject.model.config, "alibi") and subject.model.config.alibi:
        raise NotHere("positions are not read")
    word = "cache" if "cache" in accepted else "past_key_values"

    @torch.no_grad()
    def generate(model: nn.Module, prompt_ids: Tensor, n_new: int) -> Tensor:
        model.eval()
        ids, step, cache = prompt_ids, prompt_ids, None
        for _ in range(n_new):
            positions = torch.arange(step.size(1))[None]
            output = model(input_ids=step, position_ids=positions, use_cache=True, **{word: cache})
            cache = output.past_key_values
            step = output.logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, step], dim=1)
        return ids

    return replace(subject, generate=generate)


@damage("rope-wrong", kinds=("decoder",))
def values_rotated_too(subject: Subject) -> None:
    for module in surgery.attentions(subject.model, "self"):
        if "position_embeddings" not in inspect.signature(type(module).forward).parameters:
            raise NotHere("no rotary positions among the arguments")
        if not isinstance(getattr(module, "v_proj", None), nn.Linear) or not hasattr(module, "head_dim"):
            raise NotHere("no projection of the values alone")

        def make(old: surgery.Forward) -> surgery.Forward:
            def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
                rotation = surgery.arguments(old, self, args, kwargs).arguments["position_embeddings"]
                if not isinstance(rotation, tuple):
                    raise NotHere("rotary positions of another form")
                cos, sin = (x[:, :, None] for x in rotation)  # [B, T, 1, Dr]

                def rotate(name: str, func: Any, args: Any, kwargs: Any) -> Any:
                    if name != "linear" or args[1] is not self.v_proj.weight:
                        return NotImplemented
                    v = func(*args, **kwargs).unflatten(-1, (-1, self.head_dim))
                    turned, rest = v[..., : cos.size(-1)], v[..., cos.size(-1) :]
                    half = torch.cat([-turned.chunk(2, -1)[1], turned.chunk(2, -1)[0]], -1)
                    return torch.cat([turned * cos + half * sin, rest], -1).flatten(-2)

                with surgery.Ops(rotate):
                    return old(self, *args, **kwargs)

            return forward

        surgery.change_forward(module, make)


# ---- blocks


def _at_the_residual(blocks: list[nn.Module], instead: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
    """In each of these blocks, where its input first meets a sum: `instead(block, x, y)`."""

    def edits(block: nn.Module, first: Tensor | None) -> Any:
        met: list[bool] = []

        def edit(name: str, func: Any, args: Any, kwargs: Any) -> Any:
            if name not in ("add", "__add__", "__radd__") or met or len(args) < 2:
                return NotImplemented
            for x, y in (args[:2], args[1::-1]):
                if x is first and isinstance(y, Tensor) and y.shape == x.shape:
                    met.append(True)
                    return instead(block, x, y)
            return NotImplemented

        return edit

    for block in blocks:
        surgery.edit_ops(block, edits)


@damage("residual-missing")
def residual_cut(subject: Subject) -> None:
    _at_the_residual(surgery.last_blocks(subject.model), lambda block, x, y: y)


@damage("residual-from-normed")
def residual_taken_after_the_norm(subject: Subject) -> None:
    if not surgery.is_pre_norm(subject.model):
        raise NotHere("no norm before the attention")

    def instead(block: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        first = next(surgery.norms_of(block))[2]
        return y + first(x)

    _at_the_residual([block for _, stack in surgery.stacks(subject.model) for block in stack], instead)


_LAYER_SCALE = "LayerScale, a learned factor on each branch, holds the stream as ReZero does"


@damage("norm-missing", harmless_in={"dinov2": _LAYER_SCALE, "beit": _LAYER_SCALE})
def norms_left_out(subject: Subject) -> None:
    for owner, name, _ in surgery.some(list(surgery.norms(subject.model)), "norm"):
        setattr(owner, name, nn.Identity())


@damage("norm-wrong-axis")
def norm_over_the_positions(subject: Subject) -> None:
    def make(old: surgery.Forward) -> surgery.Forward:
        def forward(self: nn.Module, x: Tensor) -> Tensor:
            if x.ndim != 3:
                raise NotHere("positions are flattened")
            normed = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
            normed = normed * self.weight if getattr(self, "weight", None) is not None else normed
            return normed + self.bias if getattr(self, "bias", None) is not None else normed

        return forward

    for _, _, norm in surgery.some(list(surgery.norms(subject.model)), "norm"):
        surgery.change_forward(norm, make)


class OverRows(nn.Module):
    """BatchNorm over rows and positions where a LayerNorm belongs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 3:
            raise NotHere("positions are flattened")
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


@damage("batchnorm-used")
def batch_norm_instead(subject: Subject) -> None:
    for owner, name, _ in surgery.some(list(surgery.norms(subject.model)), "norm"):
        setattr(owner, name, OverRows())


@damage("final-norm-missing", kinds=("decoder",))
def final_norm_left_out(subject: Subject) -> None:
    if not surgery.is_pre_norm(subject.model):
        raise NotHere("post-norm")
    for owner, name in surgery.final_norms(subject.model):
        setattr(owner, name, nn.Identity())


@damage("activation-missing")
def activation_left_out(subject: Subject) -> None:
    names = ("act", "act_fn", "activation_fn", "intermediate_act_fn", "activation", "gelu_impl")
    gated = ("gate_proj", "gate_up_proj", "Wi", "wi_0")
    found = False
    for _, stack in surgery.stacks(subject.model):
        for module in stack.modules():
            if any(hasattr(module, name) for name in gated):
                raise NotHere("a gate is a non-linearity too")
            for name in names:
                if callable(getattr(module, name, None)):
                    setattr(module, name, nn.Identity())
                    found = True
    if not found:
        raise NotHere("no activation by a known name")


@damage("dropout-in-eval", breaks="noise")
def dropout_never_off(subject: Subject) -> None:
    for _, stack in surgery.stacks(subject.model):
        for block in stack:
            surgery.edit_output(block, lambda x: F.dropout(x, 0.1))


@damage("gradient-cut", breaks="gradient")
def detached_between_blocks(subject: Subject) -> None:
    for _, stack in surgery.stacks(subject.model):
        surgery.edit_output(stack[0], torch.Tensor.detach)


@damage("first-nan", breaks="nan")
def root_of_negative_numbers(subject: Subject) -> None:
    for block in surgery.last_blocks(subject.model):
        surgery.edit_output(block, torch.sqrt)


# ---- weights


@damage("weights-accidentally-shared")
def one_block_in_every_place(subject: Subject) -> Subject:
    for _, stack in surgery.stacks(subject.model):
        for place in range(1, len(stack)):
            stack[place] = stack[0]
    subject.model.config.use_cache = False  # a cache has one entry a block, and this one would fill it twice
    return replace(subject, generate=None)


@damage("same-initialisation", is_design=True)
def blocks_that_start_alike(subject: Subject) -> None:
    for _, stack in surgery.stacks(subject.model):
        for block in stack[1:]:
            block.load_state_dict(stack[0].state_dict(), strict=False)


@damage("bad-init")
def matrices_of_unit_variance(subject: Subject) -> None:
    for _, stack in surgery.stacks(subject.model):
        for part in stack.parameters():
            if part.ndim == 2:
                nn.init.normal_(part)


@damage("parameters-not-in-optimizer", breaks="")
def half_of_the_optimizer(subject: Subject) -> Subject:
    blocks = {id(p) for _, stack in surgery.stacks(subject.model) for p in stack.parameters()}
    rest = [p for p in subject.model.parameters() if id(p) not in blocks]
    return replace(subject, optimizer=torch.optim.AdamW(rest, lr=1e-3))


# ---- outputs, targets and training


@damage("softmax-before-cross-entropy", breaks="loss")
def softmax_in_the_model(subject: Subject) -> None:
    def make(old: surgery.Forward) -> surgery.Forward:
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            output = old(self, *args, **kwargs)
            output.logits = output.logits.softmax(-1)
            return output

        return forward

    surgery.change_forward(subject.model, make)


def _language_model(subject: Subject) -> None:
    if subject.loss is not batches.token_loss:
        raise NotHere("no label for each token")


@damage("targets-not-shifted", kinds=("decoder",), breaks="")
def targets_are_the_inputs(subject: Subject) -> Subject:
    ids = subject.inputs["input_ids"]
    return replace(subject, targets=ids.masked_fill(ids == PAD, IGNORED))


@damage("targets-shifted-twice", kinds=("decoder",), breaks="")
def shifted_once_more_in_the_loss(subject: Subject) -> Subject:
    def loss(output: Any, targets: Tensor) -> Tensor:
        logits = logits_of(output)[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)

    return replace(subject, loss=loss)


@damage("pad-in-loss", kinds=("decoder", "encoder-decoder"), breaks="loss")
def pads_among_the_labels(subject: Subject) -> Subject:
    def loss(output: Any, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits_of(output).flatten(0, 1), targets.flatten())

    _with_padding(subject)
    return replace(subject, targets=subject.targets.masked_fill(subject.targets == IGNORED, PAD), loss=loss)


@damage("logits-flattened-wrong", breaks="loss")
def logits_flattened_the_other_way(subject: Subject) -> Subject:
    _language_model(subject)

    def loss(output: Any, targets: Tensor) -> Tensor:
        logits = logits_of(output).transpose(0, 1)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    return replace(subject, loss=loss)


@damage("decoder-input-not-shifted", kinds=("encoder-decoder",), breaks="loss")
def decoder_reads_its_labels(subject: Subject) -> Subject:
    labels = subject.targets.masked_fill(subject.targets == IGNORED, PAD)
    return replace(subject, inputs={**subject.inputs, "decoder_input_ids": labels})


@damage("learning-rate-too-high", breaks="")
def learning_rate_of_one(subject: Subject) -> Subject:
    return replace(subject, optimizer=torch.optim.AdamW(subject.model.parameters(), lr=1.0))


@damage("zero-grad-missing", breaks="")
def gradients_pile_up(subject: Subject) -> Subject:
    loss_of = subject.loss
    assert loss_of is not None

    def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
        inputs, targets = batch
        loss = loss_of(model(**inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return replace(subject, train_step=train_step)


def _with_padding(subject: Subject) -> None:
    if subject.pad_id is None or "attention_mask" not in subject.inputs:
        raise NotHere("no padding")


def _without_windows(subject: Subject) -> None:
    config = subject.model.config
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or []
    if getattr(config, "sliding_window", None) or any("sliding" in kind or "local" in kind for kind in kinds):
        raise NotHere("windows")
