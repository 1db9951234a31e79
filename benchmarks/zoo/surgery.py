"""How an instance of a stranger's model is changed, so that copy.deepcopy keeps the change.

A module gets a class of its own, derived from the one it had, with another `forward`: it stays an instance
of its class, keeps its parameters and its place, and a copy of it is changed too. Operations inside a
forward are changed under a TorchFunctionMode, which sees them as Python calls them. Parts are found by
structure and by the names that public code gives them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from zoo.batches import MAX_LENGTH, WIDTH

INPUTS = ("q_proj", "query", "q", "q_lin", "c_attn", "query_key_value", "qkv_proj", "Wqkv")
OUTPUTS = ("o_proj", "out_proj", "c_proj", "dense", "out_lin", "o", "Wo")
CROSS = ("encoder_attn", "EncDecAttention", "crossattention")
Forward = Callable[..., Any]


class NotHere(Exception):
    """This damage has nothing to work on in this model."""


def change_forward(module: nn.Module, make: Callable[[Forward], Forward]) -> None:
    """Give this one module the forward `make(old)`; old and new take the module first."""
    old = type(module).forward
    new = functools.wraps(old)(make(old))
    module.__class__ = type(type(module).__name__, (type(module),), {"forward": new})


def some(parts: list[Any], what: str) -> list[Any]:
    """The parts, at least one."""
    if not parts:
        raise NotHere(f"no {what}")
    return parts


def attentions(model: nn.Module, where: str = "") -> list[nn.Module]:
    """The modules that project to queries and attend; where: "self", "cross", "encoder", "decoder" or all."""
    found: list[nn.Module] = []
    for path, module in model.named_modules():
        linear = [getattr(module, name, None) for name in INPUTS]
        if "Attention" not in type(module).__name__ or not any(isinstance(x, nn.Module) for x in linear):
            continue
        is_cross = any(name in path for name in CROSS)
        in_decoder = "decoder" in path.split(".")
        keep = {
            "": True,
            "self": not is_cross,
            "cross": is_cross,
            "encoder": not is_cross and not in_decoder,
            "decoder": not is_cross and (in_decoder or "encoder" not in path.split(".")),
        }[where]
        if keep:
            found.append(module)
    return some(found, f"{where} attention")


def stacks(model: nn.Module) -> list[tuple[str, nn.ModuleList]]:
    """The lists of blocks: two or more of one class, with an attention in each."""
    found: list[tuple[str, nn.ModuleList]] = []
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList) or len(module) < 2:
            continue
        kinds = {type(block).__name__ for block in module}
        inner = ["Attention" in type(part).__name__ for block in module for part in block.modules()]
        if len(kinds) == 1 and any(inner):
            found.append((path, module))
    return some(found, "stack of blocks")


def last_blocks(model: nn.Module) -> list[nn.Module]:
    """The last block of each stack."""
    return [stack[-1] for _, stack in stacks(model)]


def norms(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """(owner, name, norm) of the norms of the blocks that are over the model's width."""
    for _, stack in stacks(model):
        yield from norms_of(stack)


def norms_of(root: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """The same, of one block."""
    for owner in root.modules():
        for name, child in owner.named_children():
            weight = getattr(child, "weight", None)
            is_norm = "norm" in type(child).__name__.lower()
            if is_norm and (weight is None or weight.shape == (WIDTH,)):
                yield owner, name, child


def final_norms(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """(owner, name) of the norm after each stack."""
    found: list[tuple[nn.Module, str]] = []
    for path, _ in stacks(model):
        owner = model.get_submodule(path.rpartition(".")[0])
        for holder in (owner, model.get_submodule(path.split(".")[0])):
            found += [
                (holder, name)
                for name, child in holder.named_children()
                if "norm" in type(child).__name__.lower()
                and "emb" not in name
                and (holder, name) not in found
            ]
    return some(found, "norm after the blocks")


def is_pre_norm(model: nn.Module) -> bool:
    """Whether the first block's input goes through a norm before its attention."""
    block = stacks(model)[0][1][0]
    order = [type(part).__name__ for part in block.modules()]
    names = [name for name, _ in block.named_modules()]
    marks = ("input_layernorm", "ln_1", "norm_1", "layernorm_before", "norm1", "layer_norm", "attn_norm")
    post = any(word in kind for kind in order for word in ("Bert", "Electra", "Roberta", "MPNet", "Deberta"))
    before = getattr(getattr(model, "config", None), "normalize_before", None)
    if before is not None:
        return bool(before)
    return not post and any(name.split(".")[-1] in marks for name in names)


def position_tables(model: nn.Module) -> list[nn.Module]:
    """The learned tables of absolute positions."""
    found = [
        module
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding)
        and MAX_LENGTH <= module.num_embeddings <= MAX_LENGTH + 4
        and ("position" in path or "wpe" in path)
        and module.weight.requires_grad
    ]
    return some(found, "table of learned positions")


class Ops(TorchFunctionMode):
    """Give chosen operations to `edit(name, func, args, kwargs)`; NotImplemented lets one be as it is."""

    def __init__(self, edit: Callable[[str, Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self.edit = edit

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = self.edit(getattr(func, "__name__", ""), func, args, kwargs)
        return func(*args, **kwargs) if answer is NotImplemented else answer


def arguments(forward: Forward, module: nn.Module, args: Any, kwargs: Any) -> inspect.BoundArguments:
    """The call's arguments by name (those of **kwargs under that name)."""
    bound = inspect.signature(forward).bind(module, *args, **kwargs)
    bound.apply_defaults()
    return bound


def edit_mask(module: nn.Module, edit: Callable[[Tensor], Tensor], is_causal: bool) -> None:
    """Let `edit` change what the attention may look at: keep [B or 1, 1, Tq, Tk], True = may look.

    A float that `edit` gives back is added to the scores. A single query (cached decoding) is left alone.
    is_causal: what no mask at all means here.
    """

    def make(old: Forward) -> Forward:
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            bound = arguments(old, self, args, kwargs)
            name = "mask" if "mask" in bound.arguments else "attention_mask"
            hidden = bound.arguments.get("hidden_states")
            if name not in bound.arguments or hidden is None:
                raise NotHere("no mask among the arguments")
            other = next(
                (bound.arguments.get(x) for x in ("key_value_states", "encoder_hidden_states")), None
            )
            if hidden.size(1) == 1:
                return old(self, *args, **kwargs)
            mask, length = bound.arguments[name], hidden.size(1)
            is_mpt = type(self).__name__.startswith("Mpt")  # its mask says where not to look
            if mask is None:
                keys = length if other is None else other.size(1)
                keep = torch.ones(1, 1, length, keys, dtype=torch.bool)
                keep = keep.tril() if is_causal else keep
            elif mask.dtype == torch.bool:
                keep = ~mask if is_mpt else mask
            else:
                keep = mask > torch.finfo(mask.dtype).min / 4
            keep = keep.expand(*keep.shape[:2], length, keep.size(-1))
            after = edit(keep)
            # in no mask's place numbers too: all take them, while MPNet would add True as 1
            dtype = hidden.dtype if mask is None else mask.dtype
            if after.dtype == torch.bool and dtype != torch.bool and not is_mpt:
                after = torch.zeros_like(after, dtype=dtype).masked_fill(~after, torch.finfo(dtype).min)
            elif after.dtype == torch.bool and is_mpt:
                after = ~after
            elif after.dtype != torch.bool:
                after = after.to(hidden.dtype)
            bound.arguments[name] = after
            return old(*bound.args, **bound.kwargs)

        return forward

    change_forward(module, make)


def edit_output(module: nn.Module, edit: Callable[[Tensor], Tensor]) -> None:
    """Let `edit` change the module's output, the first of a tuple."""

    def make(old: Forward) -> Forward:
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            output = old(self, *args, **kwargs)
            return (edit(output[0]), *output[1:]) if isinstance(output, tuple) else edit(output)

        return forward

    change_forward(module, make)


def edit_ops(module: nn.Module, make_edit: Callable[[nn.Module, Tensor | None], Any]) -> None:
    """Run the module's forward under Ops(make_edit(module, its first tensor))."""

    def make(old: Forward) -> Forward:
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            with Ops(make_edit(self, tensors[0] if tensors else None)):
                return old(self, *args, **kwargs)

        return forward

    change_forward(module, make)


def explicit_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dim: int = -1,
    mask_after: bool = False,
) -> Tensor:
    """Attention written out, with the mistakes that two of the damages make."""
    if k.size(1) != q.size(1):
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.size(-1) ** -0.5 if scale is None else scale)
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if is_causal:
        keep = keep.tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        keep = attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask
    if mask_after:
        return (scores.softmax(dim) * keep) @ v
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(dim) @ v


SDPA = F.scaled_dot_product_attention
