"""Pages in a real browser: any chromium that is installed, run by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_HARMLESS = ("file:", "data:", "blob:", "about:")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Where the tests of a file open pages, in one browser; a skip that says why where there is none.

    Not for a whole session: while it runs, asyncio.run is refused in this thread.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    with playwright.sync_playwright() as driver:
        own = driver.chromium.executable_path
        if found is None and not Path(own).exists():
            pytest.skip(
                f"no browser: none of {', '.join(names)} is on the PATH (Debian: apt install chromium)"
            )
        browser = driver.chromium.launch(executable_path=found, args=list(_QUIET))
        yield browser.new_context()
        browser.close()


@pytest.fixture
def browser_page(chromium: Any) -> Iterator[Any]:
    """An empty page, 1440 x 900, light; errors, warnings, dialogs and requests to a network fail the test."""
    page = chromium.new_page()
    page.set_default_timeout(15_000)  # milliseconds
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")
    wrong: list[str] = []

    def dismiss(dialog: Any) -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def note_request(request: Any) -> None:
        if not request.url.startswith(_HARMLESS):
            wrong.append(f"request: {request.url}")

    def note_message(message: Any) -> None:
        if message.type in ("error", "warning"):
            wrong.append(f"console: {message.text}")

    page.on("console", note_message)
    page.on("pageerror", lambda error: wrong.append(f"page error: {error}"))
    page.on("dialog", dismiss)
    page.on("request", note_request)
    yield page
    page.close()
    assert wrong == []
