"""One self-contained HTML page: no network, nothing loaded, nothing run but the script it brings itself."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import Any


def document(title: str, css: str, body: str, script: str = "") -> str:
    """A whole page about `body`, which is markup; the title is plain text.

    Its policy allows this one style sheet and this one script by their digests, and loads nothing: markup
    that slipped in would neither run nor fetch. Pages without a script cannot run one.
    """
    policy = f"default-src 'none'; style-src 'sha256-{_digest(css)}'"
    if script:
        policy += f"; script-src 'sha256-{_digest(script)}'"
    policy += "; base-uri 'none'; form-action 'none'"
    run = f"<script>{script}</script>\n" if script else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f'<style>{css}</style>\n</head>\n<body class="hw-page">\n{body}{run}</body>\n</html>\n'
    )


def data_block(name: str, value: Any) -> str:
    """JSON for the page's script to read, under this id; no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(name)}">{text}</script>\n'


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
