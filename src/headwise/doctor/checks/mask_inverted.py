"""Look at the mask in force in each attention: what it should hide must not be all that is seen."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.mask_lines import by_place, is_flag, not_of, two_valued, wrong_mask, wrong_polarity
from headwise.doctor.masks import causal_forms, hidden
from headwise.doctor.padded import padded
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site


@check(
    id="HW105",
    title="The mask keeps what it should hide",
    why="Attention reads only the future (or only padding), and never the tokens that it should.",
    fix="Turn the mask round: True means 'may look' in scaled_dot_product_attention, and 'hide' in "
    "masked_fill, attn_mask and key_padding_mask of nn.MultiheadAttention.",
    needs={"sites"},
    explains={
        "causal-leak", "causal-missing-in-one-layer", "padding-attended", "padding-pooled",
        "cross-mask-missing",
        "cross-mask-wrong", "fully-masked-row-nan", "first-nan", "mask-wrong-axis", "mask-excludes-self",
        "cache-mismatch", "left-padding-changes-answer", "batch-changes-answer", "encoder-output-unused",
        "attention-collapsed", "attention-ignored", "cannot-memorise", "unused-parameters", "gradient-cut",
        "half-precision-overflow", "mask-weak-value"},
    quick=True,
)  # fmt: skip
def mask_inverted(probe: Probe) -> Iterator[Found | Tried]:
    blind = [site for site in probe.sites if _is_blind(site)]
    if blind:
        site = blind[0]
        place, others = wrong_polarity(probe, probe.base.record, site, not_of(probe.sites, blind), is_flag)
        yield Found(
            f"in {len(blind)} of {len(probe.sites)} attentions every key is hidden from every query",
            at=place,
            module=site.module,
            related=tuple(related(others, "the mask is made or put on here", place)),
        )
        return
    forms = causal_forms(probe)
    future = [site for site, form in forms if form == "inverted"]
    if future:
        site = future[0]
        good = not_of(probe.sites, future)
        seen = ~hidden(site)
        # j >= i is wrong in either polarity, so its maker wrote it; j > i is the opposite of a right mask
        blame = wrong_mask if bool(seen.diagonal(dim1=1, dim2=2).all()) else wrong_polarity
        place, others = blame(probe, probe.base.record, site, good, by_place)
        yield Found(
            f"in {len(future)} of {len(forms)} causal attentions position 0 sees {int(seen[0, 0].sum())} of "
            f"{seen.shape[2]} positions and the last sees {int(seen[0, -1].sum())}: the future, not the past",
            at=place,
            module=site.module,
            related=tuple(related(others, "the mask is made or put on here", place)),
        )
        return
    tried = f"looked at {len(forms)} causal masks"
    try:
        pass_ = padded(probe)
        sights = pass_.sights
        bad = pass_.of_form("inverted")
    except NotApplicable:
        yield Tried(tried)
        return
    if not bad:
        yield Tried(f"{tried} and at what {len(sights)} attentions hide of padded rows")
        return
    site = bad[0].site
    good = [sight.site for sight in sights if sight.form == "hidden"]
    good += [
        each
        for each in pass_.sites
        if probe.site_kind(each) == "decoder" and each not in [s.site for s in bad]
    ]
    place, others = wrong_polarity(probe, pass_.run.record, site, good, two_valued)
    yield Found(
        f"in {len(bad)} of {len(sights)} attentions real tokens see no real keys, and padding is visible",
        at=place,
        module=site.module,
        related=tuple(related(others, "the mask is made or put on here", place)),
    )


def _is_blind(site: Site) -> bool:
    """Is everything hidden from everyone, and the weights are what softmax makes of that?

    Zero weights are no accident: whoever makes them has thought of rows with nothing to see.
    """
    if site.shape[2] < 2 or not bool(hidden(site).all()):
        return False
    return bool(site.weights.isnan().any()) or bool((site.weights.sum(-1) > 0.5).all())
