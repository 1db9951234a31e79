"""The style sheet of the HTML report. Its rules keep within `.hw-report`: a notebook has its own."""

from __future__ import annotations

_BASE = """
.hw-page { margin: 0; background: #fff; }
.hw-report {
  --ink: #1d2126; --soft: #59626e; --paper: #fff; --panel: #f5f6f8; --rule: #d5d9df; --mark: #ffe9a8;
  --error: #b3261e; --warning: #8a5a00; --note: #1f5fa8; --clear: #1c6b3c;
  --masked: #e3e5e9; --hatch: #8b93a0;
  --c0: #1f5fa8; --c1: #b8500c; --c2: #1c6b3c; --c3: #9c2a86; --c4: #6b5b00; --c5: #b3261e; --c6: #4b4fb5;
  --c7: #2f6f73;
  --up: #08468c; --down: #a63a00;
  max-width: 60rem; margin: 0 auto; padding: 1rem; box-sizing: border-box;
  color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
.hw-report *, .hw-report *::before { box-sizing: border-box; }
.hw-report h1 { font-size: 1.1rem; margin: 0; color: var(--soft); font-weight: 600; }
.hw-report h2 { font-size: 1.15rem; margin: 0 0 .6rem; line-height: 1.4; }
.hw-report header h2 { font-size: .85rem; margin: 1rem 0 .3rem; color: var(--soft); }
.hw-report code, .hw-report pre, .hw-report .place, .hw-report .target {
  font-family: ui-monospace, Menlo, Consolas, monospace;
}
.hw-report code { font-size: .95em; background: none; color: inherit; padding: 0; }
.hw-report .target { font-size: 1.3rem; margin: .1rem 0 .6rem; }
.hw-report .summary { font-weight: 600; margin: 0; }
.hw-report .summary.error, .hw-report .found { color: var(--error); }
.hw-report .summary.warning, .hw-report .could-not-run { color: var(--warning); }
.hw-report .summary.note { color: var(--note); }
.hw-report .summary.clear, .hw-report .verdict.clear { color: var(--clear); }
.hw-report .remark { margin: .4rem 0 0; }
.hw-report .assumed { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; margin: 0; }
.hw-report .assumed dt { font-size: .8rem; color: var(--soft); }
.hw-report .assumed dd { margin: 0; }
.hw-report nav ol { padding-left: 1.4rem; }
.hw-report a { color: var(--note); }
.hw-report :focus-visible { outline: 3px solid var(--note); outline-offset: 2px; }
.hw-report section { margin: 1.6rem 0; }
.hw-report .finding {
  border: 1px solid var(--rule); border-left: .35rem solid; border-radius: .3rem; padding: 1rem;
}
.hw-report .finding.error { border-left-color: var(--error); }
.hw-report .finding.warning { border-left-color: var(--warning); }
.hw-report .finding.note { border-left-color: var(--note); }
.hw-report .badge {
  font-size: .75rem; font-weight: 600; padding: .1rem .45rem; border-radius: .7rem; border: 1px solid;
  vertical-align: .1em;
}
.hw-report .badge.error { color: var(--error); }
.hw-report .badge.warning { color: var(--warning); }
.hw-report .badge.note { color: var(--note); }
.hw-report figure { margin: .8rem 0; }
.hw-report .place { font-size: .85rem; color: var(--soft); margin: .3rem 0; }
.hw-report pre {
  margin: 0; padding: .5rem 0; overflow-x: auto; background: var(--panel); color: inherit;
  border-radius: .3rem; font-size: .85rem; line-height: 1.5; white-space: pre; overflow-wrap: normal;
}
.hw-report pre > * { display: block; width: max-content; min-width: 100%; padding: 0 .8rem; color: inherit; }
.hw-report pre mark { background: var(--mark); border-left: .25rem solid var(--error); padding-left: .55rem; }
.hw-report .facts { display: grid; grid-template-columns: 3rem 1fr; gap: .35rem .6rem; margin: .8rem 0; }
.hw-report .facts dt { font-weight: 600; color: var(--soft); }
.hw-report .facts dd { margin: 0; }
.hw-report .wide { overflow-x: auto; }
.hw-report table { border-collapse: collapse; font-size: .85rem; text-align: left; overflow-wrap: normal; }
.hw-report th, .hw-report td {
  padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; text-align: left;
  background: none; color: inherit;
}
.hw-report .checks { width: 100%; }
.hw-report .checks th[scope=row] { font-weight: 400; min-width: 12rem; }
.hw-report .checks small { display: block; color: var(--soft); }
.hw-report .checks td:last-child { min-width: 12rem; }
.hw-report .verdict { white-space: nowrap; }
.hw-report .verdict.found, .hw-report .verdict.could-not-run { font-weight: 600; }
.hw-report .verdict.not-applicable { color: var(--soft); }
.hw-report .picture .title { font-weight: 600; margin: 0; }
.hw-report figcaption small { color: var(--soft); }
.hw-report svg { max-width: 100%; height: auto; display: block; }
.hw-report svg text { fill: var(--ink); font: 11px system-ui, sans-serif; }
.hw-report svg .axis { fill: none; stroke: var(--soft); }
.hw-report svg .masked { fill: var(--masked); }
.hw-report svg .hatch { fill: none; stroke: var(--hatch); }
.hw-report svg .line { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
"""

_DARK = """
@media (prefers-color-scheme: dark) {
  .hw-page { background: #15181c; }
  .hw-report {
    --ink: #e4e7eb; --soft: #a2abb7; --paper: #15181c; --panel: #1e2329; --rule: #39414b; --mark: #4d3f12;
    --error: #ff8f86; --warning: #f0b64a; --note: #86b8f5; --clear: #74cc95;
    --masked: #2b3139; --hatch: #77818e;
    --c0: #86b8f5; --c1: #f2995c; --c2: #74cc95; --c3: #e58ad3; --c4: #d6c352; --c5: #ff8f86; --c6: #a9acff;
    --c7: #74c5ca;
    --up: #7db7ff; --down: #ff9a62;
  }
}
@media print { .hw-report .finding { break-inside: avoid; } }
"""


def _colours() -> str:
    """Eight steps of blue above zero, of orange below; each curve has a dash of its own beside its colour."""
    rules = [".hw-report svg .p0 { fill: none; }"]
    for level in range(1, 9):
        share = round(0.12 + 0.88 * level / 8, 2)
        for name, colour in (("p", "up"), ("n", "down")):
            rules.append(f".hw-report svg .{name}{level} {{ fill: var(--{colour}); fill-opacity: {share}; }}")
    dashes = ("", "6 4", "2 4", "10 4", "10 4 2 4", "4 2", "1 5", "12 6")
    for number, dash in enumerate(dashes):
        dashed = f" stroke-dasharray: {dash};" if dash else ""
        rules.append(f".hw-report svg .c{number} {{ stroke: var(--c{number});{dashed} }}")
    return "\n".join(rules) + "\n"


CSS = f"{_BASE}{_colours()}{_DARK}"
