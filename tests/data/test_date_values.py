from __future__ import annotations

import calendar
from datetime import date, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.date_values import CURRENCIES, KINDS, LARGEST, Dice, Kind, Money, Percentage, Value

BY_NAME = {kind.name: kind for kind in KINDS}


@given(st.integers(1, 2**53), st.integers(0, 2**70))
def test_dice_stay_below_their_bound(bound: int, seed: int) -> None:
    assert 0 <= Dice(seed).below(bound) < bound


def test_dice_reach_every_face_about_equally_often() -> None:
    dice = Dice(1)
    counts = [0] * 6
    for _ in range(6_000):
        counts[dice.below(6)] += 1
    assert min(counts) > 850  # six deviations below 1,000
    assert max(counts) < 1_150


@given(st.lists(st.integers()), st.integers(0, 99))
def test_shuffling_keeps_the_items(items: list[int], seed: int) -> None:
    assert sorted(Dice(seed).sample(items)) == sorted(items)


@given(st.integers(0, 20), st.integers(0, 99))
def test_a_sample_takes_no_item_twice(count: int, seed: int) -> None:
    assert len(set(Dice(seed).sample(range(20), count))) == count


def test_shuffling_reaches_every_order_about_equally_often() -> None:
    dice = Dice(1)
    counts: dict[tuple[str, ...], int] = {}
    for _ in range(6_000):
        order = tuple(dice.sample("abc"))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert min(counts.values()) > 850


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_drawn_values_are_distinct_and_depend_on_the_seed(kind: Kind) -> None:
    drawn = kind.draw(Dice(1), 500)
    assert len(set(drawn)) == len(drawn) == 500
    assert drawn == kind.draw(Dice(1), 500)
    assert drawn != kind.draw(Dice(2), 500)


def test_days_are_those_of_the_calendar_from_1900_to_2099() -> None:
    kind = BY_NAME["date"]
    drawn = {str(day) for day in kind.draw(Dice(1), kind.limit)}
    expected = {
        f"{year}-{month:02}-{day:02}"
        for year in range(1900, 2100)
        for month in range(1, 13)
        for day in range(1, calendar.monthrange(year, month)[1] + 1)
    }
    assert drawn == expected
    assert "1900-02-29" not in drawn  # no leap year, unlike 2000
    assert "2000-02-29" in drawn


def test_the_clock_is_every_minute_and_the_seconds_are_the_rest_of_the_day() -> None:
    clock = set(BY_NAME["clock"].draw(Dice(1), 24 * 60))
    assert clock == {time(hour, minute) for hour in range(24) for minute in range(60)}
    seconds = set(BY_NAME["seconds"].draw(Dice(1), BY_NAME["seconds"].limit))
    assert not clock & seconds
    assert len(clock | seconds) == 24 * 60 * 60


def number_of(value: Value) -> Decimal:
    if isinstance(value, Money):
        return value.amount
    if isinstance(value, Percentage):
        return value.number
    assert isinstance(value, Decimal)
    return value


@pytest.mark.parametrize("name", ["decimal", "currency", "percentage"])
def test_numbers_are_short_and_long_whole_and_broken_negative_and_positive(name: str) -> None:
    numbers = [number_of(value) for value in BY_NAME[name].draw(Dice(1), 3_000)]
    most = 3 if name == "percentage" else 7
    assert max(abs(number) for number in numbers) < 10**most <= LARGEST + 1
    assert {len(str(abs(int(number)))) for number in numbers} == set(range(1, most + 1))
    assert all(number == round(number, 2) for number in numbers)
    assert 0.15 < sum(number < 0 for number in numbers) / 3_000 < 0.35
    assert 0.1 < sum(number == int(number) for number in numbers) / 3_000 < 0.5
    assert not any(number.is_zero() and number.is_signed() for number in numbers)


@pytest.mark.parametrize("name", ["decimal", "percentage"])
def test_numbers_have_no_closing_zeros(name: str) -> None:
    for value in BY_NAME[name].draw(Dice(1), 3_000):
        text = str(number_of(value))
        assert "." not in text or text[-1] != "0", text


def test_money_keeps_to_the_places_of_its_currency() -> None:
    from babel.numbers import get_currency_precision

    assert {code: get_currency_precision(code) for code in CURRENCIES} == CURRENCIES
    drawn = [value for value in BY_NAME["currency"].draw(Dice(1), 3_000) if isinstance(value, Money)]
    assert {money.code for money in drawn} == set(CURRENCIES)
    assert all(money.amount == int(money.amount) for money in drawn if money.code == "JPY")


def test_half_of_the_corpus_are_dates() -> None:
    assert 2 * BY_NAME["date"].share == sum(kind.share for kind in KINDS)
    assert date(1900, 1, 1) in BY_NAME["date"].draw(Dice(1), 73_049)
