"""A page lets its own style and script in, by their digests, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.pages import data_block, document


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_names_the_style_and_the_script_that_are_there() -> None:
    page = document("a < b", "p { color: red }", "<p>x</p>\n", "let a = 1;")
    assert "<title>a &lt; b</title>" in page and "<p>x</p>" in page
    assert (
        f"style-src 'sha256-{digest('p { color: red }')}'; script-src 'sha256-{digest('let a = 1;')}'" in page
    )
    assert "default-src 'none'" in page and page.index("Content-Security-Policy") < page.index("<style>")
    assert page.count("<script>") == 1 and page.endswith("</html>\n")


def test_without_a_script_none_may_run() -> None:
    page = document("t", "p {}", "<p>x</p>")
    assert "script" not in page and "default-src 'none'" in page


def read(block: str) -> object:
    found = re.fullmatch(r'<script type="application/json" id="facts">(.*)</script>\n', block, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner), max_leaves=5))
def test_law_what_is_put_in_comes_out_and_no_text_ends_the_block(value: object) -> None:
    block = data_block("facts", value)
    assert read(block) == value
    assert block.count("<") == 2 and "\u2028" not in block


def test_the_hostile_text_stays_text() -> None:
    value = ["</script><script>alert(1)</script>", "<!--", "]]>", "&lt;"]
    block = data_block("facts", value)
    assert block.count("script") == 5 and block.count("</script>") == 1 and read(block) == value


def test_numbers_that_json_cannot_say_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        data_block("facts", float("nan"))
