"""The style of the walk's page beside the report's. Its rules keep within `.hw-walk`."""

RULES = """
.hw-report.hw-walk { max-width: 80rem; }
.hw-walk details.group { border-left: .2rem solid var(--rule); padding: 0 0 0 .8rem; margin: .5rem 0; }
.hw-walk details.group.attention { border-left-color: var(--c0); }
.hw-walk details.group.feed-forward { border-left-color: var(--c2); }
.hw-walk summary { cursor: pointer; padding: .25rem 0; }
.hw-walk small { color: var(--soft); }
.hw-walk table.steps { width: 100%; table-layout: fixed; min-width: 46rem; }
.hw-walk table.steps th, .hw-walk table.steps td { overflow-wrap: anywhere; }
.hw-walk table.steps th[scope=row] { font-weight: 600; }
.hw-walk table.steps td > small, .hw-walk table.steps td > code { display: block; }
.hw-walk table.steps td > code { white-space: pre-wrap; }
.hw-walk table.steps thead th { color: var(--soft); font-weight: 400; }
.hw-walk col.k0 { width: 18%; }
.hw-walk col.k1 { width: 23%; }
.hw-walk col.k2 { width: 18%; }
.hw-walk col.k3, .hw-walk col.k4 { width: 9%; }
.hw-walk thead.again { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.hw-walk table.steps tr.failure th { color: var(--error); }
.hw-walk details.parts { font-weight: 400; }
.hw-walk details.parts summary { color: var(--soft); padding: 0; }
.hw-walk details.parts ol { margin: .2rem 0; padding-left: 1.2rem; }
.hw-walk svg.bar { width: 100%; height: .35rem; margin-top: .15rem; background: var(--panel); }
.hw-walk svg.bar.flops { fill: var(--c0); }
.hw-walk svg.bar.bytes { fill: var(--c1); }
@media (max-width: 46rem) { .hw-walk table.steps td:last-child > code { white-space: nowrap; } }
@media (max-width: 46rem) { .hw-walk table.steps td:last-child { overflow: hidden; } }
.hw-walk .place { display: block; margin: 0; }
.hw-walk .meaning { color: var(--soft); font-size: .85rem; padding-left: 1.2rem; }
"""
