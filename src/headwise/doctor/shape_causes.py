"""Why shapes, ids or types did not fit: the likely mistake behind a failure, told by the sizes that met."""

from __future__ import annotations

import math
import re

from torch import nn

from headwise.doctor.probe import Probe
from headwise.doctor.shape_tables import Cause, of_lookup, of_mask, of_positions
from headwise.doctor.shapes_told import Failure, Operand, short


def cause_of(probe: Probe, failure: Failure) -> Cause:
    """The likely cause, from what failed and the sizes that met; torch's words where nothing is known."""
    for known in (
        _of_types,
        _of_own_words,
        of_lookup,
        _of_view,
        _of_product,
        of_mask,
        of_positions,
        _of_torch,
    ):
        found = known(probe, failure)
        if found is not None:
            return found
    return Cause(
        "the sizes of the operands do not fit", "Print the shapes before this line and make them agree."
    )


def _of_types(probe: Probe, failure: Failure) -> Cause | None:
    text = failure.message
    if (
        ("indices" in text and "scalar types" in text)
        or "must be Long" in text
        or "tensors used as indices" in text
    ):
        return Cause(
            "the ids are floating-point numbers; a table is looked up by whole ones",
            "Give ids as integers: ids.long().",
        )
    if "bool tensor is not supported" in text:
        return Cause(
            "a boolean mask is used in arithmetic",
            "Turn the mask round with ~mask, or use it in masked_fill.",
        )
    if "boolean masks" in text or "condition to be a boolean" in text:
        return Cause("the mask is not boolean", "Compare it first: mask == 0, or mask.bool().")
    if "without overflow" in text:
        return Cause("the number does not fit into the tensor's type", "Fill with torch.finfo(x.dtype).min.")
    if re.search(
        r"same dtype|scalar type|but (got|found) .*(Half|Float|Double|Long|BFloat16)|Expected .* dtype", text
    ):
        kinds = ", ".join(dict.fromkeys(short(o.dtype) for o in failure.operands))
        told = (
            f"tensors of different types meet ({kinds})"
            if "," in kinds
            else "tensors of different types meet"
        )
        return Cause(
            told, "Bring both to one type, with .to(x.dtype), or make the constant with dtype=x.dtype."
        )
    return None


def _of_own_words(probe: Probe, failure: Failure) -> Cause | None:
    """What the model's author, or an operation that names its sizes, says already."""
    if failure.is_assertion and failure.message:
        return Cause(f"the model's own check says: {failure.message}", "Give what the check asks for.")
    if "normalized_shape" in failure.message:
        return Cause(failure.message, "Make the norm as wide as what it is given.")
    if "einsum" in failure.message:
        return Cause(
            "one letter of the equation stands for two sizes, or the equation has more or fewer letters "
            "than an operand axes",
            "Give each axis its own letter, and equal letters to equal sizes only.",
        )
    return None


def _of_view(probe: Probe, failure: Failure) -> Cause | None:
    target = failure.target
    if "not compatible with input tensor's size and stride" in failure.message:
        return Cause(
            "view() after transpose or permute: the elements no longer lie in order",
            "Call .contiguous() first, or use reshape().",
        )
    if "to unpack" in failure.message:
        return Cause(
            "the tensor has another number of axes than the names it is unpacked to",
            "Unpack as many names as it has axes.",
        )
    if not target or not failure.operands:
        return None
    source = _viewed(failure)
    width = source.shape[-1] if source.shape else 0
    whole = math.prod(source.shape)
    free = [i for i, n in enumerate(target) if n == -1]
    known = math.prod(n for n in target if n > 0)
    if "multiply up" in failure.message or (len(target) >= 2 and len(source.shape) + 1 == len(target)):
        heads, each = target[-2], target[-1]
        parts = max(1, heads if heads > 0 else each)
        if heads > 0 and width % heads:
            return Cause(
                f"the width {width} is not divisible by {heads} heads: {heads} x {width // heads} = "
                f"{heads * (width // heads)}",
                f"Choose a width that is a multiple of {heads} ({heads * (width // heads)} or "
                f"{heads * (width // heads + 1)}), "
                f"or a number of heads that divides {width}.",
            )  # fmt: skip
        if heads > 0 and each > 0 and heads * each != width:
            return Cause(
                f"{heads} heads of width {each} make {heads * each}, but the tensor is {width} wide",
                f"Make the projection {heads * each} wide, or the heads {width / parts:g} wide.",
            )
    if len(free) == 1 and known and whole % known:
        return Cause(
            f"{whole} elements cannot be divided into groups of {known}", "Check each size of the new shape."
        )
    return Cause(
        f"{whole} elements are to become {known if not free else 'a multiple of ' + str(known)}",
        "Check each size of the new shape against the tensor's own: one axis is missing, or merged with "
        "another.",
    )


def _viewed(failure: Failure) -> Operand:
    """The operand that is given another shape: the one with as many elements as the operation saw."""
    if failure.op is not None and failure.op.inputs:
        size = failure.op.inputs[0].tensor.numel()
        for operand in failure.operands:
            if math.prod(operand.shape) == size:
                return operand
        shape = failure.op.inputs[0].shape
        return Operand("the tensor", shape, failure.names.axes(shape))
    return failure.operands[0]


def _of_product(probe: Probe, failure: Failure) -> Cause | None:
    linear = _linear(probe, failure)
    if linear is not None:
        return linear
    is_product = failure.op is not None and failure.op.name in {"mm", "bmm", "addmm", "baddbmm", "matmul"}
    is_product = is_product or "@" in failure.code or "matmul" in failure.code
    if not is_product or len(failure.operands) < 2 or _is_masking(failure):
        return None
    first, second = failure.operands[:2]
    if len(first.shape) < 2 or len(second.shape) < 2:
        return None
    last, row = first.shape[-1], second.shape[-2]
    meet = (
        f"the last axis of {first.name} ({_told(first, -1)}) must equal the last but one of {second.name} "
        f"({_told(second, -2)})"
    )
    if last != row:
        if first.shape[-1] == second.shape[-1]:
            return Cause(
                f"{meet}; the last axes are equal, so the second factor, the keys, is not transposed",
                f"Write {first.name} @ {second.name}.transpose(-2, -1).",
            )
        return Cause(meet, "Transpose or project one of the two so that these axes agree.")
    return Cause(
        "the axes before the last two must agree or be 1",
        "Bring both to the same order of axes (batch, heads, time, width), with the same number of heads.",
    )


def _told(operand: Operand, place: int) -> str:
    return f"{operand.axes[place]} {operand.shape[place]}".strip()


def _linear(probe: Probe, failure: Failure) -> Cause | None:
    """A layer of torch that reads another width than it was made for."""
    try:
        module = probe.user_model.get_submodule(failure.module)
    except AttributeError:
        return None
    wants = None
    if isinstance(module, nn.Linear):
        wants = (module.in_features, f"Linear({module.in_features}, {module.out_features})")
    elif isinstance(module, nn.LayerNorm):
        wants = (int(module.normalized_shape[-1]), f"LayerNorm({module.normalized_shape[-1]})")
    op = failure.op
    if wants is None or op is None or op.name not in {"mm", "addmm", "bmm", "native_layer_norm", "mv"}:
        return None
    data = next((v for v in op.inputs if not v.name and v.tensor.dim() >= 2 and v.trained), None)
    data = data or next((v for v in op.inputs if v.sources and v.tensor.dim() >= 1), None)
    if data is None or data.shape[-1] == wants[0]:
        return None
    joined = data
    while joined.op is not None and joined.op.moves and joined.op.name != "cat":
        joined = joined.op.inputs[0]
    how = ""
    if joined.op is not None and joined.op.name == "cat":
        sizes = [v.shape[-1] for v in joined.op.inputs]
        if sum(sizes) == data.shape[-1]:
            how = f" ({len(sizes)} pieces of {sizes[0]} joined)"
            if wants[0] % len(sizes):
                how += f"; {wants[0]} is not divisible by {len(sizes)}"
    return Cause(
        f"{failure.module or 'the layer'}, a {wants[1]}, reads a last axis of {wants[0]} and gets "
        f"{data.shape[-1]}{how}",
        f"Make the layer with in_features={data.shape[-1]}, or give it {wants[0]} numbers for each position.",
        (failure.module,),
    )


def _is_masking(failure: Failure) -> bool:
    return failure.op is not None and failure.op.name.rstrip("_") in {
        "masked_fill",
        "where",
        "add",
        "mul",
        "sub",
        "div",
    }


def _of_torch(probe: Probe, failure: Failure) -> Cause | None:
    """What torch's own attention says about what it was given: the axes are often in the other order."""
    text = failure.message
    try:
        module = probe.user_model.get_submodule(failure.module)
    except AttributeError:
        module = None
    layers = [module] if isinstance(module, nn.MultiheadAttention) else []
    if module is not None:
        layers += [m for m in module.modules() if isinstance(m, nn.MultiheadAttention)]
    time_first = bool(layers) and not layers[0].batch_first
    if re.search(r"key_padd|attn_mask|batch number|key.*shape|mask", text) and layers:
        if time_first and probe.adapted.layout == "batch-first":
            return Cause(
                f"the layer takes time first, and gets the batch first: {text}",
                "Give batch_first=True to the layer's constructor.", (failure.module,),
            )  # fmt: skip
        return Cause(
            text, "key_padding_mask is [batch, keys], attn_mask [queries, keys] or [batch x heads, "
                  "queries, keys].",
        )  # fmt: skip
    if "embedding dimension" in text or "feature number" in text:
        return Cause(text, "Give the layer vectors of its own width, d_model.", (failure.module,))
    if "cat" in (failure.op.name if failure.op is not None else "") or "Sizes of tensors must match" in text:
        return Cause(
            "the pieces differ on an axis other than the one they are joined on",
            "Check the axis given to cat.",
        )
    return None
