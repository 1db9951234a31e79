"""How the order of its tokens is told to a model: a table, turned queries and keys, a bias on the scores."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.doctor.adapt import Stream
from headwise.doctor.check import NotApplicable
from headwise.doctor.positions import Added, additions, is_fixed, varies
from headwise.doctor.probe import Probe
from headwise.doctor.sites import HIDDEN, Site, is_product
from headwise.doctor.trace import Op
from headwise.doctor.turning import rotations


def has_bias(site: Site) -> bool:
    """Is something added to the scores that tells visible places apart, or could learn to?"""
    rows, columns = site.shape[1:]
    for _, mask in site.masks:
        if not mask.tensor.is_floating_point():
            continue
        seen = mask.tensor[mask.tensor > HIDDEN]
        if seen.numel() and float(seen.max() - seen.min()) > 1e-9:
            return True
        if mask.trained and mask.tensor.numel() >= rows * columns:
            return True
    return False


def order_enters(probe: Probe, stream: Stream) -> list[str]:
    """The ways in which the order of a stream is told to the model, as words; empty where none is found.

    A learned table that still holds zeros counts: training will fill it.
    """
    found: list[str] = []
    own = [added for added in additions(probe) if added.stream == stream]
    if any(added.varies_in_time or (added.has_own_time and could_vary(probe, added)) for added in own):
        found.append("a table is added")
    bit = 1 << stream.leaf
    sites = [site for site in probe.sites if site.q_value.sources & bit and site.k_value.sources & bit]
    if any(q.factors or k.factors for q, k, _ in (rotations(probe, site) for site in sites)):
        found.append("queries and keys are turned")
    if any(has_bias(site) for site in sites):
        found.append("the scores carry a bias")
    return found


def could_vary(probe: Probe, added: Added) -> bool:
    """Would what is added differ from place to place if the parameters it is made of held other numbers?"""
    generator = torch.Generator().manual_seed(9)
    changes = {
        leaf: torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf.tensor)
        for leaf in probe.base.record.ancestors([added.table])
        if leaf.op is None and leaf.name.startswith("parameter") and not is_fixed(probe, leaf)
    }
    if not changes:
        return False
    (drawn,) = probe.base.record.replay(changes, [added.table])
    return varies(drawn.expand(added.op.out.shape), added.time_axis)


def shuffled(probe: Probe, stream: Stream) -> tuple[Tensor, Tensor]:
    """The logits with the tokens between the first and the last re-arranged, and that arrangement [T].

    First and last stay where they are: models read their answer off one of them. Of an image the patches are
    re-arranged, as the first product or convolution gives them. NotApplicable where there are none.
    """
    if probe.batch.length(stream) > 1:
        values = probe.batch.read(stream)
        order = _arrangement(values.shape[1])
        batch = probe.batch.write(stream, values[:, order].contiguous(), "the tokens re-arranged")
        return probe.run(batch, record=False).logits, order
    base = probe.base
    for op in base.record.ops:
        if not any(v.sources >> stream.leaf & 1 for v in op.inputs) or not any(v.trained for v in op.inputs):
            continue
        if op.name == "convolution" or is_product(op):
            given = op.out.tensor
            rows = probe.batch.rows
            patches = (
                given.flatten(2) if op.name == "convolution" else given.reshape(rows, -1, given.shape[-1]).mT
            )
            if patches.shape[-1] < 4 or patches.shape[0] != rows:
                break
            order = _arrangement(patches.shape[-1])
            moved = patches[:, :, order] if op.name == "convolution" else patches[:, :, order].mT
            (logits,) = base.record.replay(
                {op.out: moved.reshape(given.shape).contiguous()}, [base.logits_value]
            )
            return logits, order
        break
    raise NotApplicable("no patches were recognised in the input")


def _arrangement(length: int) -> Tensor:
    drawn = 1 + torch.randperm(length - 2, generator=torch.Generator().manual_seed(3))
    return torch.cat([torch.zeros(1, dtype=torch.long), drawn, torch.tensor([length - 1])])


def entry(probe: Probe, stream: Stream) -> Op | None:
    """Where a stream's tokens are ready for the first block: the first result that two operations read."""
    sites = [site for site in probe.sites if site.q_value.sources >> stream.leaf & 1]
    if not sites:
        return None
    before = probe.base.record.ancestors([sites[0].q_value])
    for op in probe.base.record.ops:
        for out in op.outputs:
            is_ours = out.sources >> stream.leaf & 1 and out.tensor.is_floating_point()
            if is_ours and out in before and len({user for user in out.users if user.outputs}) >= 2:
                return op
    return None
