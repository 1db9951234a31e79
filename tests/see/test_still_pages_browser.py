"""The pages without a script, of a walk, of a training and of the doctor, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import headwise
from headwise import LanguageModel, ModelConfig

SHAPE = ModelConfig(
    vocab_size=30, d_model=16, num_heads=2, d_ff=32, num_encoder_layers=0, num_decoder_layers=2
)


class Block(nn.Module):
    """The class of a <script>alert(1)</script>."""

    def __init__(self) -> None:
        super().__init__()
        hostile = nn.ModuleDict({"<img src=x onerror=alert(1)>": nn.Linear(8, 8)})
        self.layers, self.embed = hostile, nn.Embedding(9, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers.values():
            x = x + layer(x).relu()
        return x


def of_walk() -> str:
    return headwise.trace(LanguageModel(SHAPE), torch.randint(1, 30, (2, 7))).to_html()


def of_hostile_walk() -> str:
    return headwise.trace(Block(), torch.randint(1, 9, (2, 7))).to_html()


def of_training() -> str:
    model = LanguageModel(SHAPE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with headwise.watch(model, optimizer, every=1, budget=None, say=lambda line: None) as watch:
        for _ in range(4):
            ids = torch.randint(1, 30, (4, 9))
            loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.log(loss=loss)
    from headwise.see.watch.page import page

    return page(watch)


def of_doctor() -> str:
    return headwise.examine(LanguageModel(SHAPE), torch.randint(1, 30, (2, 7)), select="HW2").to_html()


PAGES = [of_walk, of_hostile_walk, of_training, of_doctor]


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("make", PAGES, ids=lambda make: make.__name__)
def test_it_loads_nothing_fits_and_can_be_read_light_and_dark(
    make: Callable[[], str], browser_page: Any, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(make(), encoding="utf-8")
    browser_page.goto(file.as_uri())
    assert browser_page.locator("main").inner_text().strip()
    for scheme, is_dark in (("light", False), ("dark", True)):
        browser_page.emulate_media(color_scheme=scheme)
        ink, paper = browser_page.evaluate(
            """() => {
              const main = getComputedStyle(document.querySelector('main'));
              return [main.color, getComputedStyle(document.body).backgroundColor];
            }"""
        )
        lighter, darker = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 7 and (luminance(paper) < 0.1) == is_dark
    for width in (1440, 400):
        browser_page.set_viewport_size({"width": width, "height": 800})
        assert browser_page.evaluate("document.documentElement.scrollWidth") <= width
    assert browser_page.locator("script").count() == 0 and browser_page.locator("img").count() == 0
