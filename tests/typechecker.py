"""The run-time type checker behind jaxtyping's annotations: beartype, with an int where a float is asked.

The static checkers accept that (PEP 484, numeric tower), so the one that runs has to agree with them.
"""

from __future__ import annotations

from beartype import BeartypeConf, beartype

typechecked = beartype(conf=BeartypeConf(is_pep484_tower=True))
