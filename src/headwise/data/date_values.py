"""The values that the `dates` corpus writes: days, times of day, numbers, money, percentages.

Each kind says how often it comes and how distinct values of it are drawn. Numbers are drawn by
their count of digits, so that short and long ones are equally frequent; a quarter is negative.
Only `random.Random(seed).random()` is used, the one method whose sequence Python promises to
keep, so that a seed means the same corpus everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import TypeVar

T = TypeVar("T")

FIRST_DAY = date(1900, 1, 1).toordinal()
LAST_DAY = date(2099, 12, 31).toordinal()
LARGEST = Decimal("9999999.99")  # of decimals and amounts of money

# The code of ISO 4217 and the places after the point that it allows.
CURRENCIES = {"USD": 2, "EUR": 2, "GBP": 2, "JPY": 0, "CHF": 2, "CNY": 2, "CAD": 2, "AUD": 2}


@dataclass(frozen=True)
class Money:
    """An amount, at most two places after the point, of the currency with this ISO 4217 code."""

    code: str
    amount: Decimal


@dataclass(frozen=True)
class Percentage:
    """So many per hundred: 12.5 is a share of 0.125."""

    number: Decimal


Value = date | time | Decimal | Money | Percentage


class Dice:
    """Random choices that are the same on every platform and every version of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, bound: int) -> int:
        """A whole number from 0 to bound - 1; bound is at most 2**53."""
        return int(self._random() * bound)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely as the others."""
        return items[self.below(len(items))]

    def sample(self, items: Iterable[T], count: int | None = None) -> list[T]:
        """That many of the items, all when left out, in random order (Fisher and Yates)."""
        pool = list(items)
        count = len(pool) if count is None else count
        for i in range(count):
            other = i + self.below(len(pool) - i)
            pool[i], pool[other] = pool[other], pool[i]
        return pool[:count]


def _draw_days(dice: Dice, count: int) -> list[Value]:
    return [date.fromordinal(day) for day in dice.sample(range(FIRST_DAY, LAST_DAY + 1), count)]


def _draw_clock(dice: Dice, count: int) -> list[Value]:
    return [time(*divmod(minute, 60)) for minute in dice.sample(range(24 * 60), count)]


def _draw_seconds(dice: Dice, count: int) -> list[Value]:
    # A full minute is a value of the clock, so that one time of day is never two values.
    drawn = (divmod(number, 59) for number in dice.sample(range(24 * 60 * 59), count))
    return [time(*divmod(minute, 60), second + 1) for minute, second in drawn]


def _draw_number(dice: Dice, most_digits: int, places: int) -> Decimal:
    """A number with 1 to most_digits digits before the point and exactly that many places after it."""
    digits = 1 + dice.below(most_digits)
    low = 10 ** (digits - 1) if digits > 1 else 0
    number = low + dice.below(10**digits - low)
    for _ in range(places):
        number = 10 * number + dice.below(10)
    return Decimal(number).scaleb(-places)


def _draw_decimal(dice: Dice, most_digits: int) -> Decimal:
    """A number without closing zeros after its 0 to 2 places; a quarter is negative."""
    places = dice.below(3)
    if places:
        # The last place is drawn from 1 to 9: 1.50 and 1.5 are one value.
        number = _draw_number(dice, most_digits, places - 1) + Decimal(1 + dice.below(9)).scaleb(-places)
    else:
        number = _draw_number(dice, most_digits, 0)
    return -number if number and dice.below(4) == 0 else number


def _draw_money(dice: Dice) -> Money:
    code = dice.pick(tuple(CURRENCIES))
    places = CURRENCIES[code]
    amount = _draw_number(dice, 7, places)
    if places and dice.below(4) == 0:
        amount = Decimal(int(amount))  # a whole amount
    return Money(code, -amount if amount and dice.below(4) == 0 else amount)


def _distinct(draw: Callable[[Dice], Value]) -> Callable[[Dice, int], list[Value]]:
    def draw_distinct(dice: Dice, count: int) -> list[Value]:
        values: dict[Value, None] = {}
        while len(values) < count:
            values[draw(dice)] = None
        # Short numbers run out first and so come early: in this order all would be held out.
        return dice.sample(values)

    return draw_distinct


@dataclass(frozen=True)
class Kind:
    """One kind of value.

    name: of its styles in `date_styles.STYLES`.
    share: of the corpus, in sixteenths.
    limit: most distinct values that are drawn; a longer training set uses them again.
    draw: that many distinct values, at most `limit`, in random order.
    """

    name: str
    share: int
    limit: int
    draw: Callable[[Dice, int], list[Value]]


# Days, clock and seconds are complete; of the other kinds far more values exist than their limit.
KINDS = (
    Kind("date", 8, LAST_DAY - FIRST_DAY + 1, _draw_days),
    Kind("clock", 1, 24 * 60, _draw_clock),
    Kind("seconds", 1, 24 * 60 * 59, _draw_seconds),
    Kind("decimal", 2, 1_000_000, _distinct(lambda dice: _draw_decimal(dice, 7))),
    Kind("currency", 2, 1_000_000, _distinct(_draw_money)),
    Kind("percentage", 2, 50_000, _distinct(lambda dice: Percentage(_draw_decimal(dice, 3)))),
)
SHARES = sum(kind.share for kind in KINDS)
