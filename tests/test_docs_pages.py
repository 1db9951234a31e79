"""What a page of the documentation shows is what its code prints, and what the doctor says of it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

from headwise import examine

DOCS = Path(__file__).resolve().parent.parent / "docs"
SHOWN = re.compile(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [page for page in ("drop_in",) if SHOWN.search((DOCS / f"{page}.md").read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_prints_what_stands_beneath_it(page: str) -> None:
    for code, shown in SHOWN.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page}.md", "exec"), {"__name__": "page"})
        assert printed.getvalue() == shown


def test_the_model_made_of_our_parts_is_healthy_and_short() -> None:
    code = SHOWN.findall((DOCS / "drop_in.md").read_text(encoding="utf-8"))[0][0]
    space: dict[str, object] = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "drop_in.md", "exec"), space)
    model = space["model"]
    assert isinstance(model, torch.nn.Module)
    text = torch.randint(100, (4, 13))

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    report = examine(model, text[:, :-1], kind="decoder", targets=text[:, 1:], loss=loss)
    assert [finding.name for finding in report.findings if finding.severity != "note"] == []
    body = code[code.index("class Mine") : code.index("model = Mine")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 30
