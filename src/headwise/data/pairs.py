"""Sentences and their translations, before they become tokens."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.errors import DataError


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations: target[n] translates source[n]."""

    source: list[str]
    target: list[str]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise DataError(
                f"every source needs its own target: got {len(self.source)} sources and "
                f"{len(self.target)} targets; line n of one must translate line n of the other"
            )

    def __len__(self) -> int:
        return len(self.source)
