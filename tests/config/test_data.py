"""Every bad combination of data settings is refused."""

from __future__ import annotations

from typing import Any

import pytest

from config_cases import refusal
from headwise.config.data import (
    DataConfig,
    DatesConfig,
    ImagesConfig,
    LabelledConfig,
    ParallelConfig,
    TextConfig,
)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (DatesConfig, {"languages": ()}, "languages must name at least one of de, zh, fr, ja: got none"),
        (DatesConfig, {"languages": ("de", "en")}, "languages must be one of de, zh, fr, ja: got 'en'"),
        (DatesConfig, {"languages": ("de", "de")}, "languages must differ from each other: got de, de"),
        (DatesConfig, {"train_size": 0}, "train_size must be at least 1: got 0"),
        (DatesConfig, {"validation_size": 0}, "validation_size must be at least 1: got 0"),
        (DatesConfig, {"test_size": 0}, "test_size must be at least 1: got 0"),
        (DatesConfig, {"seed": -1}, "seed must be at least 0: got -1"),
        (ParallelConfig, {"max_length": 1}, "max_length must be at least 2: got 1"),
        (TextConfig, {"files": ()}, "data.text.files must name at least one file: got none"),
        (TextConfig, {"tokens": "words"}, "data.text.tokens must be one of characters, bpe: got 'words'"),
        (TextConfig, {"window": 1}, "window must be at least 2: got 1"),
        (TextConfig, {"validation_tokens": 1}, "validation_tokens must be at least 2: got 1"),
        (
            TextConfig,
            {"validation_share": 0.0},
            "validation_share must lie between 0 and 1: got 0.0; 0.1 is usual",
        ),
        (
            TextConfig,
            {"masked_share": 1.0},
            "masked_share must lie between 0 and 1: got 1.0; 0.15 is BERT's",
        ),
        (
            LabelledConfig,
            {"tokens": "words"},
            "data.labelled.tokens must be one of characters, bpe: got 'words'",
        ),
        (LabelledConfig, {"max_length": 1}, "max_length must be at least 2: got 1"),
        (LabelledConfig, {"seed": -1}, "seed must be at least 0: got -1"),
        (
            LabelledConfig,
            {"validation_share": 1.0},
            "validation_share must lie between 0 and 1: got 1.0; 0.1 is usual",
        ),
        (
            LabelledConfig,
            {"text": "label"},
            "data.labelled.text and data.labelled.label must differ: got 'label' for both",
        ),
        (ImagesConfig, {"split_seed": -1}, "split_seed must be at least 0: got -1"),
        (ImagesConfig, {"shift": -1.0}, "shift must be finite and at least 0: got -1.0; 1 is usual"),
        (ImagesConfig, {"shift": float("inf")}, "shift must be finite and at least 0: got inf; 1 is usual"),
        (
            ImagesConfig,
            {"rotate": 181.0},
            "rotate must be at least 0 and at most 180: got 181.0; 10 is usual",
        ),
        (ImagesConfig, {"zoom": 1.0}, "zoom must be at least 0 and at most 0.9: got 1.0; 0.1 is usual"),
        (ImagesConfig, {"test_share": 0.0}, "test_share must lie between 0 and 1: got 0.0; 0.1 is usual"),
        (
            ImagesConfig,
            {"validation_share": 1.0},
            "validation_share must lie between 0 and 1: got 1.0; 0.1 is usual",
        ),
        (
            DataConfig,
            {"kind": "csv"},
            "data.kind must be one of dates, parallel, text, labelled, images: got 'csv'",
        ),
        (DataConfig, {"vocab_size": 15}, "vocab_size must be at least 16: got 15"),
        (
            DataConfig,
            {"vocab_size": 1_000_001},
            "data.vocab_size must be at most 1000000: got 1000001; some thousands are usual",
        ),
    ],
)
def test_bad_data_are_refused(kind: type, settings: dict[str, Any], message: str) -> None:
    assert refusal(kind, settings) == message


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (DatesConfig, {"languages": ("ja",), "train_size": 1, "validation_size": 1, "test_size": 1}),
        (ParallelConfig, {"max_length": 2}),
        (DataConfig, {"vocab_size": 16}),
        (DataConfig, {"vocab_size": 1_000_000}),
    ],
)
def test_the_nearest_good_ones_are_not(kind: type, settings: dict[str, Any]) -> None:
    kind(**settings)
