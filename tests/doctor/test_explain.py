"""The card of a check, and finding it by what somebody typed."""

from __future__ import annotations

import pytest

from conftest import Golden
from doctor import sample
from headwise.doctor import check
from headwise.doctor.explain import card, find, listing
from headwise.errors import ConfigError, HeadwiseError


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "checks", lambda: sample.CARDS)


@pytest.mark.parametrize(
    "word", ["HW101", "hw101", "Hw101", "101", "causal-leak", "Causal-Leak", "causal_leak", " causal leak\n"]
)
@pytest.mark.usefixtures("known")
def test_a_check_is_found_by_number_or_name(word: str) -> None:
    assert find(word) is sample.CARDS[0]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("causal-leek", "did you mean causal-leak"),
        ("mask", "did you mean mask-inverted"),
        ("padding", "did you mean padding-attended"),
        ("HW10", "did you mean HW101"),
        ("hw411", "did you mean HW412"),
        ("", "`headwise explain` alone lists all of them"),
        ("zzz", "`headwise explain` alone lists all of them"),
    ],
)
@pytest.mark.usefixtures("known")
def test_a_word_that_names_nothing_is_refused_with_what_comes_close(word: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as refused:
        find(word)
    assert isinstance(refused.value, HeadwiseError)
    assert repr(word) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.usefixtures("known")
def test_card(golden: Golden) -> None:
    golden("doctor_card", card(sample.CARDS[0]) + "\n" + card(sample.CARDS[5], width=40))


@pytest.mark.usefixtures("known")
def test_listing(golden: Golden) -> None:
    golden("doctor_listing", listing(width=72))


def test_every_check_has_a_card_that_says_how_why_and_what_to_do() -> None:
    for each in check.checks():
        assert find(each.id) is each is find(each.name)
        told = card(each)
        for label in ("  How  ", "  Why  ", "  Fix  "):
            assert label in told, f"{each.id} {each.name} has no{label}"
        assert max(map(len, told.splitlines())) <= 100
        assert each.id in listing()
