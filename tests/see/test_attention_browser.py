"""The attention page in a real browser: what is drawn, pointed at, clicked and typed is what tensors hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from attention_samples import HOSTILE, SOURCE, TARGET, deep, stack, translation
from headwise.see.attention import Attention
from headwise.see.attention_page import fragment, to_html

Open = Callable[..., Any]

NONE, ALL = {"light": (255, 255, 255), "dark": (21, 24, 28)}, {"light": (8, 48, 107), "dark": (230, 242, 255)}


@pytest.fixture
def shown(browser_page: Any, tmp_path: Path) -> Open:
    """Open the page of an attention, from a file, at an address within it."""

    def show(attention: Attention, address: str = "") -> Any:
        file = tmp_path / "attention.html"
        file.write_text(to_html(attention), encoding="utf-8")
        browser_page.goto(f"{file.as_uri()}#{address}")
        return settled(browser_page)

    return show


def settled(page: Any) -> Any:
    """The page, once it shows what was asked for."""
    page.wait_for_selector("body[data-ready]")
    return page


def pixel(page: Any, q: int, k: int) -> list[int]:
    """Red, green, blue and opacity of a cell of the enlarged map."""
    return settled(page).evaluate(
        """([q, k]) => {
          const one = new OffscreenCanvas(1, 1).getContext('2d');
          one.drawImage(document.querySelector('.cells canvas'), -k, -q);
          return [...one.getImageData(0, 0, 1, 1).data];
        }""",
        [q, k],
    )


def hover(page: Any, q: int, k: int) -> str:
    """Point at a cell; what the page says of it."""
    rows, columns = page.evaluate(
        "(({height, width}) => [height, width])(document.querySelector('.cells canvas'))"
    )
    box = page.locator(".cells").bounding_box()
    page.mouse.move(
        box["x"] + box["width"] * (k + 0.5) / columns, box["y"] + box["height"] * (q + 0.5) / rows
    )
    return page.locator("#hw-readout p").text_content()


def head_cell(page: Any, layer: int, head: int) -> Any:
    return page.locator("#hw-grid [role=row]").nth(layer).locator("[role=gridcell]").nth(head - 1)


def title(page: Any) -> str:
    return settled(page).locator("#hw-title").text_content()


def brightness(colour: str) -> float:
    """Relative luminance of `rgb(...)`: WCAG 2.2, 'relative luminance'."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_what_is_pointed_at_is_what_the_tensor_holds(shown: Open) -> None:
    attention = translation()
    page = shown(attention, "cross/1/1/map")
    weights = attention.stacks[2].layers[0].weights[0]
    for q, k in ((0, 0), (3, 2), (7, 6)):
        said = hover(page, q, k)
        found = re.fullmatch(r"(.+) \((\d+)\) looks at (.+) \((\d+)\): (\S+) rank (\d+) of (\d+)", said)
        assert found, said
        assert found.group(1, 2, 3, 4) == (TARGET[q], str(q + 1), SOURCE[k], str(k + 1))
        assert float(found[5]) == pytest.approx(float(weights[q, k]), rel=0.5e-2)
        rank = int((weights[q, :-1] > weights[q, k]).sum()) + 1
        assert found.group(6, 7) == (str(rank), "7"), "the masked key does not count"
    largest = page.locator("#hw-readout li .name").all_text_contents()
    assert largest == [SOURCE[int(key)] for key in weights[7].topk(5).indices]
    assert "masked" in hover(page, 0, 7)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_shades_run_from_none_to_all_and_masked_cells_are_neither(
    theme: str, shown: Open, browser_page: Any
) -> None:
    browser_page.emulate_media(color_scheme=theme)
    attention = translation()
    weights = attention.stacks[1].layers[0].weights[0]
    weights[2, :3] = torch.tensor([0.0, 1.0, 0.0])
    page = shown(attention, "decoder/1/1/map")
    assert pixel(page, 2, 1) == [*ALL[theme], 255]
    assert pixel(page, 2, 0) == [*NONE[theme], 255], "zero is the paper's colour"
    assert pixel(page, 2, 3)[3] == 0, "masked: nothing drawn over the hatching"
    hatching = page.locator(".cells").evaluate("(cells) => getComputedStyle(cells).backgroundImage")
    assert "repeating-linear-gradient" in hatching
    row = [pixel(page, 7, int(k))[0] for k in weights[7].argsort()]
    assert row == sorted(row, reverse=theme == "light"), "the heavier, the farther from the paper"


def test_a_change_of_theme_draws_anew(shown: Open) -> None:
    attention = translation()
    attention.stacks[0].layers[0].weights[0, 0, 0] = 0
    page = shown(attention)
    assert pixel(page, 0, 0) == [*NONE["light"], 255]
    page.emulate_media(color_scheme="dark")
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert pixel(page, 0, 0) == [*NONE["dark"], 255]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_is_readable(theme: str, shown: Open, browser_page: Any) -> None:
    browser_page.emulate_media(color_scheme=theme)
    page = shown(translation(), "decoder/1/1/map")
    hover(page, 2, 1)
    texts = page.evaluate("""() => {
      const backOf = (node) => {
        for (let at = node; at; at = at.parentElement) {
          const colour = getComputedStyle(at).backgroundColor;
          if (colour !== 'rgba(0, 0, 0, 0)') return colour;
        }
      };
      const own = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
      return [...document.querySelectorAll('main *')]
        .filter((node) => own(node) && node.checkVisibility() && !node.closest('.numbers'))
        .map((node) => [node.textContent, getComputedStyle(node).color, backOf(node),
                        parseFloat(getComputedStyle(node).fontSize)]);
    }""")
    assert len(texts) > 60
    for text, colour, back, size in texts:
        light, dark = sorted((brightness(colour), brightness(back)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{text!r}: {colour} on {back}"
        assert size >= 9, text
    assert (brightness(texts[0][2]) < 0.05) == (theme == "dark")


def test_weights_in_cells_are_readable_on_their_shade(shown: Open) -> None:
    names = "abcde"
    weights = torch.linspace(0, 1, 25).reshape(1, 5, 5)
    held = stack("self", names, names, layers=1, heads=1)
    held.layers[0].weights.copy_(weights)
    page = shown(Attention((held,), "all shades"))
    numbers = page.locator(".numbers span")
    assert numbers.count() == 25
    texts = numbers.evaluate_all("(all) => all.map((one) => [one.textContent, getComputedStyle(one).color])")
    for cell, (text, colour) in enumerate(texts):
        assert float(text) == pytest.approx(float(weights.flatten()[cell]), abs=0.006)
        back, front = brightness(str(pixel(page, cell // 5, cell % 5)[:3])), brightness(colour)
        assert (max(back, front) + 0.05) / (min(back, front) + 0.05) >= 4.5


def test_a_click_enlarges_a_head(shown: Open) -> None:
    attention = translation()
    page = shown(attention)
    assert title(page) == "Encoder self-attention, layer 1, head 1"
    before = pixel(page, 0, 1)
    head_cell(page, 2, 3).click()
    assert title(page) == "Encoder self-attention, layer 2, head 3"
    assert pixel(page, 0, 0) == [*ALL["light"], 255] and pixel(page, 0, 1) == [*NONE["light"], 255] != before
    assert page.url.endswith("#encoder/2/3/map"), "a view can be linked"
    assert head_cell(page, 2, 3).get_attribute("aria-selected") == "true"
    assert "blocks.1.attention" in page.locator("#hw-source").text_content()
    line = attention.stacks[0].layers[1].line
    assert f"attention_samples.py:{line}" in page.locator("#hw-source").text_content()


def test_a_cell_that_was_clicked_is_kept(shown: Open) -> None:
    page = shown(translation(), "encoder/1/1/map")
    kept = hover(page, 2, 3)
    page.mouse.down()
    page.mouse.up()
    assert hover(page, 5, 5) != kept
    page.mouse.move(5, 5)
    assert page.locator("#hw-readout p").text_content() == kept
    head_cell(page, 1, 4).click()
    assert settled(page).locator("#hw-readout p").text_content().startswith("laufen (3) looks at im (4)")


def test_the_keyboard_does_all_of_it(shown: Open) -> None:
    page = shown(translation())
    press = page.keyboard.press
    page.locator("[role=tab][aria-selected=true]").focus()
    press("ArrowRight")
    assert title(page).startswith("Decoder")
    page.locator("#hw-grid [tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        press(key)
    assert title(page) == "Decoder self-attention, layer 1, head 1", "moving opens nothing"
    press("Enter")
    assert title(page) == "Decoder self-attention, layer 2, head 3"
    press("End")
    press(" ")
    assert title(page) == "Decoder self-attention, rollout up to layer 2"
    page.locator("#hw-map").focus()
    press("ArrowDown")
    assert page.locator("#hw-spoken").text_content().startswith("two (1) comes from <bos> (1): ")
    for key in ("ArrowDown", "End", "ArrowLeft"):
        press(key)
    assert page.locator("#hw-spoken").text_content().startswith("dogs (2) comes from snow (7): masked")
    press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "rollout up to layer 2"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px", "the focus is seen"


def test_stacks_are_switched(shown: Open) -> None:
    page = shown(translation())
    tabs = page.locator("[role=tab]")
    assert tabs.all_text_contents() == [
        "Encoder self-attention",
        "Decoder self-attention",
        "Cross-attention",
    ]
    tabs.nth(2).click()
    assert title(page) == "Cross-attention, layer 1, head 1"
    assert page.locator(".names.left .name").all_text_contents() == TARGET
    assert page.locator(".names.above .name").all_text_contents() == SOURCE
    headers = page.locator("#hw-grid [role=columnheader]").all_text_contents()
    assert headers == ["layer", "1", "2", "3", "4", "mean"], "no rollout over other tokens"


def test_means_and_rollout_are_shown(shown: Open) -> None:
    attention = translation()
    page = shown(attention, "encoder/1/1/map")
    layers = attention.stacks[0].layers
    head_cell(page, 1, 5).click()
    assert title(page) == "Encoder self-attention, layer 1, mean of the heads"
    said = re.search(r": (\S+) rank", hover(page, 1, 2))
    assert said and float(said[1]) == pytest.approx(float(layers[0].weights.mean(0)[1, 2]), rel=0.5e-2)
    head_cell(page, 1, 6).click()
    said = re.search(r": (\S+) rank", hover(page, 1, 1))
    expected = 0.5 * float(layers[0].weights.mean(0)[1, 1]) + 0.5
    assert said and float(said[1]) == pytest.approx(expected, rel=0.5e-2)
    page.get_by_label("mean of all layers").click()
    assert title(page) == "Encoder self-attention, mean of all layers"


def test_collapsed_heads_are_marked_and_listed(shown: Open) -> None:
    page = shown(translation())
    assert head_cell(page, 1, 2).locator(".state").text_content() == "="
    assert head_cell(page, 2, 3).locator(".state").text_content() == "x"
    assert "every query looks at the same token 1 (zwei)" in head_cell(page, 2, 3).get_attribute("title")
    assert head_cell(page, 1, 1).locator(".state").count() == 0
    entropy = float(head_cell(page, 1, 2).locator(".caption").text_content().rstrip("="))
    assert entropy == pytest.approx(torch.tensor(7.0).log().item(), abs=0.006), "seven keys are free"
    page.locator("#hw-collapsed summary").click()
    assert page.locator("#hw-collapsed summary").text_content() == "4 of 8 heads have collapsed"
    page.locator("#hw-collapsed button").nth(3).click()
    assert title(page) == "Encoder self-attention, layer 2, head 3"


def test_lines_are_as_wide_as_the_weights(shown: Open) -> None:
    attention = translation()
    weights = attention.stacks[2].layers[0].weights[0]
    page = shown(attention, "cross/1/1/lines")
    lines = page.locator("#hw-lines path")
    assert lines.count() == int((weights >= 5e-9).sum()), "a line for each weight, none for what is masked"
    page.locator(".side.queries .word").nth(3).hover()
    read = "(lines) => lines.map((line) => [line.dataset.pair, line.getAttribute('stroke-width')])"
    widths = {pair: float(width) for pair, width in lines.evaluate_all(read)}
    assert set(widths) == {f"3/{key}" for key in range(7)}
    for key in range(7):
        assert widths[f"3/{key}"] == pytest.approx(0.4 + 7 * float(weights[3, key]), abs=0.05)
    page.locator(".side.keys .word").nth(2).hover()
    pairs = {pair for pair, _ in lines.evaluate_all(read)}
    assert pairs == {f"{query}/2" for query in range(8)}
    # where a line ends is the middle of its word
    end = page.evaluate(
        "(({x, y}) => [x, y])(document.querySelector('#hw-lines path').getPointAtLength(1e4))"
    )
    word, svg = page.locator(".side.keys .word").nth(2).bounding_box(), page.locator("svg").bounding_box()
    assert svg["y"] + end[1] == pytest.approx(word["y"] + word["height"] / 2, abs=1)
    assert svg["x"] + end[0] == pytest.approx(word["x"], abs=1)


def test_words_of_the_lines_by_keyboard(shown: Open) -> None:
    page = shown(translation(), "cross/1/1/lines")
    page.locator(".word[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#hw-spoken").text_content().startswith("dogs (2) looks at ")
    page.keyboard.press("ArrowRight")
    assert " looks at Hunde (2): " in page.locator("#hw-spoken").text_content()
    page.keyboard.press("Enter")
    page.mouse.move(5, 5)
    assert page.locator(".word[aria-pressed=true]").all_text_contents() == ["Hunde"]


def test_grey_maps_become_visible_when_each_row_is_stretched(shown: Open) -> None:
    page = shown(translation(), "encoder/1/2/map")
    assert pixel(page, 0, 0)[0] > 200, "a seventh is pale"
    page.locator("#hw-scale").select_option("row")
    assert pixel(page, 0, 0) == [*ALL["light"], 255]
    assert page.locator("#hw-most").text_content() == "largest"


def test_the_table_says_the_same_in_words(shown: Open) -> None:
    attention = translation()
    page = shown(attention, "cross/1/1/map")
    page.locator("#hw-table summary").click()
    page.wait_for_selector("#hw-table td")
    rows = page.locator("#hw-table tbody tr")
    assert rows.count() == len(TARGET)
    first = attention.stacks[2].layers[0].weights[0, 1].argmax()
    assert rows.nth(1).locator("td").first.text_content().startswith(f"{SOURCE[first]} ({first + 1}) 0.")


def test_markup_in_a_token_runs_nothing(shown: Open) -> None:
    page = shown(translation([HOSTILE, *SOURCE[1:]], [HOSTILE, *TARGET[1:]]), "cross/1/1/map")
    assert hover(page, 0, 0).startswith(f"{HOSTILE} (1) looks at {HOSTILE} (1): ")
    page.locator("#hw-as-lines").click()
    page.locator("#hw-table summary").click()
    page.wait_for_selector("#hw-table td")
    assert page.locator("img").count() == 0
    assert page.locator(".word").first.text_content() == HOSTILE


def test_a_mean_and_a_rollout_say_what_they_are(shown: Open) -> None:
    page = shown(translation(), "encoder/1/mean/map")
    assert " looks, in the mean of the heads, at " in hover(page, 1, 2)
    page.get_by_label("mean of all layers").click()
    settled(page)
    assert " looks, in the mean of all layers, at " in hover(page, 1, 2)
    head_cell(page, 1, 6).click()
    settled(page)
    assert " comes from " in hover(page, 1, 1) and "looks" not in hover(page, 1, 2)
    head_cell(page, 1, 1).click()
    settled(page)
    assert " looks at " in hover(page, 1, 2)


@pytest.mark.parametrize("lines_first", [True, False])
def test_another_size_of_the_window_lays_all_out_again(
    lines_first: bool, shown: Open, browser_page: Any
) -> None:
    """Also while the map is hidden; as large as if the page had been opened so."""
    sizes = """() => [...document.querySelectorAll('.cells, #hw-grid [role=gridcell]')].map(
        (cell) => Math.round(cell.getBoundingClientRect().width))"""
    page = shown(translation(), f"encoder/1/1/{'lines' if lines_first else 'map'}")
    wide = page.evaluate(sizes)
    browser_page.set_viewport_size({"width": 500, "height": 900})
    if lines_first:
        page.get_by_role("button", name="Map").click()
    settled(page)
    page.wait_for_function("() => document.querySelector('#hw-grid').dataset.drawn")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found = page.evaluate(sizes)
    page.reload()
    assert settled(page).evaluate(sizes) == found != wide
    assert page.evaluate("document.documentElement.scrollWidth") <= 500


def test_an_address_of_the_languages_own_names_opens_the_first(shown: Open) -> None:
    for address in ("cross/__proto__/constructor/constructor", "cross/1/1/toString", "constructor/1/1/map"):
        page = shown(translation(), address)
        assert title(page).endswith("layer 1, head 1") and page.locator("#hw-map").is_visible()


def test_an_address_that_names_no_head_opens_the_first(shown: Open) -> None:
    page = shown(translation(), "cross/2/3/map")
    assert title(page) == "Cross-attention, layer 2, head 3"
    for address in ("cross/9/1/map", "cross/1/rollout/lines", "cross/-1/x", "cross"):
        page.evaluate("(address) => { location.hash = address; }", address)
        page.wait_for_function("() => location.hash.startsWith('#cross/1/1/')")
        assert title(page) == "Cross-attention, layer 1, head 1"
    page.evaluate("location.hash = 'nowhere/9/9/<b>'")
    page.wait_for_function("() => location.hash.startsWith('#cross/1/1/')")
    assert title(page) == "Cross-attention, layer 1, head 1", "a stack that is not here changes nothing"


def test_right_to_left_and_chinese(shown: Open) -> None:
    arabic = ["\u0627\u0644\u0643\u0644\u0627\u0628", "\u062a\u062c\u0631\u064a", ".", "<eos>"]
    chinese = ["\u4e24\u53ea", "\u5c0f\u72d7", "\u5954\u8dd1", "<eos>"]
    page = shown(translation(arabic, chinese), "cross/1/1/map")
    said = hover(page, 1, 0)
    assert said.startswith(f"{chinese[1]} (2) looks at {arabic[0]} (1): ")
    read = "(names) => names.map((name) => getComputedStyle(name).direction)"
    assert page.locator(".names.above .name").evaluate_all(read) == ["rtl", "rtl", "ltr", "ltr"]
    # the position of a word, and the order of words, do not turn with its letters
    lefts = [name.bounding_box()["x"] for name in page.locator(".names.above .name").all()]
    assert lefts == sorted(lefts)


@pytest.mark.parametrize("size", [(1200, 700), (380, 700)])
@pytest.mark.parametrize("length", [5, 500])
def test_from_5_to_500_tokens_nothing_overflows(
    length: int, size: tuple[int, int], shown: Open, browser_page: Any
) -> None:
    browser_page.set_viewport_size({"width": size[0], "height": size[1]})
    names = [f"token{place}" for place in range(length)]
    names[2] = "Donaudampfschifffahrtsgesellschaftskapit\u00e4n" * 3
    page = shown(Attention((stack("self", names, names, layers=1, heads=2),), "\u00e4" * 300))
    for view in ("map", "lines"):
        page.locator(f"#hw-as-{view}").click()
        wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert wide[0] <= wide[1], f"{view} is wider than the window"
    page.locator("#hw-as-map").click()
    cells = page.locator(".cells").bounding_box()
    for side, start, extent in (("left", "y", "height"), ("above", "x", "width")):
        read = "(one) => [one.getBoundingClientRect(), parseFloat(getComputedStyle(one).fontSize)]"
        boxes = page.locator(f".names.{side} .name").evaluate_all(f"(all) => all.map({read})")
        assert all(font >= 9 for _, font in boxes)
        middles = [box[start] + box[extent] / 2 for box, _ in boxes]
        assert min(below - above for above, below in pairwise(middles)) >= 12, "names do not overlap"
        # each name that is shown stands beside its own cell
        step = -(-length // len(boxes))
        cell = cells[extent] / length
        for place in (0, len(boxes) - 1):
            expected = cells[start] + cell * (place * step + 0.5)
            assert middles[place] == pytest.approx(expected, abs=1)


def test_zoom_shows_every_name(shown: Open) -> None:
    names = [f"token{place}" for place in range(200)]
    page = shown(Attention((stack("self", names, names, layers=1, heads=1),), "long"))
    assert page.locator(".names.left .name").count() < 100
    page.locator("#hw-map").focus()
    for _ in range(10):
        page.keyboard.press("+")
    assert page.locator(".names.left .name").all_text_contents() == names
    page.keyboard.press("ArrowDown")
    for _ in range(5):
        page.keyboard.press("Shift+ArrowDown")
    cursor, pane = page.locator(".cursor").bounding_box(), page.locator("#hw-map").bounding_box()
    assert page.locator("#hw-map").evaluate("(map) => map.scrollTop") > 0
    assert pane["y"] <= cursor["y"] <= pane["y"] + pane["height"], "the cell stays in sight"
    page.locator("#hw-fit").click()
    assert page.locator(".names.left .name").count() < 100


def test_12_layers_of_12_heads_over_128_tokens_are_fluent(shown: Open) -> None:
    page = shown(deep(12, 12, 128))
    ready = page.evaluate("performance.now()")
    assert ready < 5000, f"{ready} ms until it can be used"
    page.wait_for_selector("#hw-grid[data-drawn]")
    drawn = page.evaluate("performance.now()")
    assert drawn < ready + 3000, f"{drawn - ready} ms more until all heads are drawn"
    assert page.locator("#hw-grid [role=gridcell]").count() == 12 * 14 + 1
    took = page.evaluate("""() => {
      const cells = document.querySelector('.cells'), box = cells.getBoundingClientRect();
      const start = performance.now();
      for (let i = 0; i < 50; i++) {
        const at = { clientX: box.left + i * 5, clientY: box.top + i * 3, bubbles: true };
        cells.dispatchEvent(new PointerEvent('pointermove', at));
        cells.getBoundingClientRect(); // layout is part of it
      }
      return (performance.now() - start) / 50;
    }""")
    assert took < 50, f"{took} ms for a cell pointed at"
    changed = page.evaluate("""async () => {
      const start = performance.now();
      for (const cell of [...document.querySelectorAll('[role=gridcell]')].slice(10, 20)) {
        cell.click();
        await new Promise(requestAnimationFrame);
      }
      return (performance.now() - start) / 10;
    }""")
    assert changed < 250, f"{changed} ms for a head that is opened"


def test_several_on_one_page_of_a_notebook(browser_page: Any) -> None:
    frames = fragment(translation()) + fragment(deep(1, 1, 4))
    browser_page.set_content(f"<style>h1 {{ color: red }}</style>{frames}")
    first, second = (browser_page.frame_locator("iframe").nth(number) for number in (0, 1))
    first.locator("body[data-ready]").wait_for()
    second.locator("body[data-ready]").wait_for()
    first.locator("[role=tab]").nth(1).click()
    assert first.locator("#hw-title").text_content() == "Decoder self-attention, layer 1, head 1"
    assert second.locator("#hw-title").text_content() == "Self-attention, layer 1, head 1"
    assert first.locator("h1").evaluate("(h1) => getComputedStyle(h1).color") != "rgb(255, 0, 0)"
