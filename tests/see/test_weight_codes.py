"""What is written is the weight rounded as it will be read, and it comes back."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.see.weight_codes import COARSE, FINE, Codes, pack_codes, pack_mask


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)


def shown(codes: Codes, weight: float) -> str:
    return codes.labels[int(codes.encode(torch.tensor([weight], dtype=torch.float64))[0])]


@pytest.mark.parametrize("codes", [FINE, COARSE])
def test_labels_rise_and_fit_their_bits(codes: Codes) -> None:
    numbers = [float(label) for label in codes.labels[2:-1]]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 1
    assert len(codes.labels) <= (4096 if codes is FINE else 256)


@given(st.floats(0, 1))
def test_law_a_weight_is_shown_rounded(weight: float) -> None:
    for codes, digits, fewer, turn, least in ((FINE, 3, 2, 1e-4, 1e-8), (COARSE, 2, 1, 1e-2, 1e-6)):
        kept = digits if weight >= turn else fewer
        if weight < least:
            continue
        half = 0.5 * 10.0 ** (np.floor(np.log10(weight)) + 1 - kept)
        assert abs(float(shown(codes, weight)) - weight) <= half * (1 + 1e-9)


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        (0.0, "0"),
        (1e-12, "under 1e-8"),
        (2.14e-6, "2.1e-6"),
        (0.002134, "0.00213"),
        (0.7, "0.700"),
        (1.0, "1.00"),
        (1.0005, "1.00"),
        (1.01, "not a weight"),
        (-0.1, "not a weight"),
        (float("nan"), "not a weight"),
        (float("inf"), "not a weight"),
    ],
)
def test_a_weight_is_shown_as(weight: float, text: str) -> None:
    assert shown(FINE, weight) == text


@pytest.mark.parametrize("count", [1, 2, 7])
def test_law_codes_come_back(count: int) -> None:
    codes = torch.randint(4096, (count,))
    high, low = map(unpacked, pack_codes(codes, narrow=False))
    nibbles = np.stack([low >> 4, low & 15], 1).flatten()[:count]
    assert (high.astype(int) << 4 | nibbles).tolist() == codes.tolist()
    narrow, nothing = pack_codes(codes % 256, narrow=True)
    assert unpacked(narrow).tolist() == (codes % 256).tolist() and nothing == ""


def test_law_a_mask_comes_back() -> None:
    keep = torch.rand(3, 5) > 0.5
    bits = np.unpackbits(unpacked(pack_mask(keep)))[:15]
    assert bits.astype(bool).reshape(3, 5).tolist() == keep.tolist()
