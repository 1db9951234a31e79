"""One sampled step: everything that was measured in it, and the same as plain JSON and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from headwise.see.watch.measure import AttentionSeen, HeadSeen, NormSeen


@dataclass(frozen=True)
class LayerSeen:
    """A layer: rms of its result, length of its gradient, how far the step moved its matrices as a share of
    their length. None: not measured, or there is none."""

    activation: float | None = None
    gradient: float | None = None
    update: float | None = None


@dataclass
class Sample:
    """What was measured in one step. loss, rate: where they are known. gradient: length of all gradients.

    without: parameters that got no gradient; still: those that did, and were not moved by the step.
    """

    step: int
    loss: float | None = None
    rate: float | None = None
    gradient: float | None = None
    norms: dict[str, NormSeen] = field(default_factory=dict[str, NormSeen])
    attentions: dict[str, AttentionSeen] = field(default_factory=dict[str, AttentionSeen])
    layers: dict[str, LayerSeen] = field(default_factory=dict[str, LayerSeen])
    without: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    logged: dict[str, float] = field(default_factory=dict[str, float])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as one line of JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sample:
        """A sample from what `as_dict` gave, after JSON. Errors: KeyError, TypeError for anything else."""
        held = dict(values)
        attentions: dict[str, AttentionSeen] = {}
        for name, each in cast("dict[str, dict[str, Any]]", held["attentions"]).items():
            ends = each["projection"]
            heads = tuple(HeadSeen(**_numbers(head)) for head in each["heads"])
            rest = {key: value for key, value in each.items() if key not in ("heads", "projection")}
            projection = None if ends is None else (_number(ends[0]), _number(ends[1]))
            attentions[name] = AttentionSeen(**_numbers(rest), heads=heads, projection=projection)
        held["norms"] = {
            name: NormSeen(
                **_numbers({k: v for k, v in each.items() if k != "is_even"}), is_even=bool(each["is_even"])
            )
            for name, each in held["norms"].items()
        }
        held["attentions"] = attentions
        held["layers"] = {name: LayerSeen(**_optional(each)) for name, each in held["layers"].items()}
        held["without"], held["still"] = tuple(map(_text, held["without"])), tuple(map(_text, held["still"]))
        held |= _optional({name: held[name] for name in ("loss", "rate", "gradient")})
        held["logged"] = _numbers(held["logged"])
        if type(held["step"]) is not int:
            raise TypeError("a step is a whole number")
        return cls(**held)

    def scalars(self) -> Iterator[tuple[str, float]]:
        """Every number by name, as boards of curves want them: group/what/where."""
        for name, value in (("loss", self.loss), ("rate", self.rate), ("gradient_norm", self.gradient)):
            if value is not None:
                yield f"train/{name}", value
        for name, norm in self.norms.items():
            yield f"norm_std/{name}", norm.std
        for name, seen in self.attentions.items():
            for letter in ("q", "k", "v"):
                yield f"{letter}_std/{name}", getattr(seen, letter)
            for number, head in enumerate(seen.heads):
                yield f"attention_entropy/{name}/head_{number}", head.entropy
            if seen.projection is not None and seen.projection[0] > 0:
                yield f"projection_out_over_in/{name}", seen.projection[1] / seen.projection[0]
        for name, layer in self.layers.items():
            for what, value in asdict(layer).items():
                if value is not None:
                    yield f"{what}/{name}", value
        for name, value in self.logged.items():
            yield f"logged/{name}", value


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: _number(value) for name, value in values.items()}


def _optional(values: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: None if value is None else _number(value) for name, value in values.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name is text")
    return value


def _number(value: Any) -> float:
    """JSON has null in place of NaN. Errors: TypeError for what is no number."""
    if isinstance(value, str):
        raise TypeError("a number is no text")
    return float("nan") if value is None else float(value)
