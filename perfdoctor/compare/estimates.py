"""Estimates with their errors, and the interval in which the difference of two lies (Welch's t).

Steps that follow each other are alike: what slows one down lasts for many. So a run is cut into batches of neighbours,
which are much less so (batch means: Schmeiser 1982, "Batch size effects in the analysis of simulation output"), and as
far as one batch still predicts the next, fewer of them count, for the mean and for its variance (Bayley and Hammersley
1946, "The effective number of independent observations in an autocorrelated time series").

A machine that others use as well wanders: however long its pace is averaged over, the next stretch of that length has
another one. That part of the variance is separated from what longer stretches average out by comparing stretches of
two lengths (Allan 1966, "Statistics of atomic frequency standards"), and no length of a run takes it away.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from perfdoctor.results.comparison import Interval

_MOST_DEPENDENT = 0.9  # more cannot be distinguished from a drift
_FEWEST = 4  # batches; what fewer vary by is hardly known: an interval from three is ten times as wide
_PAIR = 2  # batches in the longer ones of the stretches that are compared


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that was measured several times over.

    Attributes:
        variance: of the number itself, not of what it was measured by; None where that was measured once.
        freedom: degrees of freedom of the variance.
    """

    value: float
    variance: float | None = None
    freedom: float = 0.0

    def log(self) -> Estimate:
        """The logarithm of a number above 0, its variance by the delta method."""
        variance = None if self.variance is None else self.variance / self.value**2
        return Estimate(math.log(self.value), variance, self.freedom)

    def between(self, reach: float, most: float) -> tuple[float, float]:
        """The least and the greatest amount that lies no more than so many standard errors from the estimate.

        An amount that cannot fall below 0 or exceed ``most`` varies less, the nearer it is to them. Taken as of the
        true amount rather than of the estimate, its error never leads beyond (Wilson 1927, "Probable inference, the law
        of succession, and statistical inference", of shares; without a most it is the same for counts).
        """
        room = self.value * (1 - self.value / most)
        if not self.variance or room <= 0:
            return self.value, self.value
        error = reach**2 * self.variance
        spread = error / room
        middle, ends, scale = 2 * self.value + spread, math.sqrt(4 * error + spread**2), 1 + spread / most
        return 2 * self.value**2 / (middle + ends), min(most, (middle + ends) / (2 * scale))

    def times(self, other: Estimate) -> Estimate:
        """The product with an independent one (Goodman 1960, without the term of second order)."""
        value = self.value * other.value
        if self.variance is None or other.variance is None:
            return Estimate(value)
        parts = self.variance * other.value**2, other.variance * self.value**2
        return Estimate(value, sum(parts), _joint_freedom(parts, (self.freedom, other.freedom)))


def mean(values: Sequence[float]) -> Estimate:
    """The mean of independent values, at least one."""
    if len(values) < 2:
        return Estimate(values[0])
    return Estimate(statistics.fmean(values), statistics.variance(values) / len(values), len(values) - 1)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The sum of some amounts over the sum of others, batch by batch: seconds over steps, for instance.

    Attributes:
        amounts: one for each batch, in order of time.
        over: the same, above 0 in sum.
    """

    amounts: Sequence[float]
    over: Sequence[float]

    @property
    def value(self) -> float:
        """The ratio."""
        return sum(self.amounts) / sum(self.over)

    @property
    def each(self) -> list[float]:
        """The ratio of each batch that has one."""
        return [amount / one for amount, one in zip(self.amounts, self.over, strict=True) if one > 0]

    @property
    def left(self) -> list[float]:
        """What the ratio leaves of each batch (Cochran 1977, "Sampling techniques", 6.4)."""
        value, usual = self.value, statistics.fmean(self.over)
        return [(amount - value * one) / usual for amount, one in zip(self.amounts, self.over, strict=True)]

    @property
    def relative(self) -> list[float]:
        """The same as fractions of the ratio; empty where that is 0."""
        value = self.value
        return [one / value for one in self.left] if value else []

    def estimate(self, dependence: float, noise: Noise | None = None) -> Estimate:
        """The ratio with its error: where both are known, the larger one of two models of how batches depend.

        Args:
            dependence: the correlation of neighbouring batches, 0 to less than 1.
            noise: of batches.
        """
        count = len(self.amounts)
        if count < _FEWEST:
            return Estimate(self.value)
        variance = sum(one * one for one in self.left) / (count - 1)
        effective = count * (1 - dependence) / (1 + dependence)
        for_variance = count * (1 - dependence**2) / (1 + dependence**2)
        models = [Estimate(self.value, variance / effective, max(1.0, for_variance - 1))]
        if noise is not None:
            models.append(Estimate(self.value, noise.of_mean(count), noise.freedom(count)))
        return max(models, key=lambda model: model.variance or 0.0)


@dataclass(frozen=True, slots=True)
class Noise:
    """The variance of single batches, in two parts.

    Attributes:
        averaged: what a mean has less of, the more batches it is over.
        wandering: what every mean has, however many they are.
    """

    averaged: float
    wandering: float

    def times(self, factor: float) -> Noise:
        """That of as many times the amounts."""
        return Noise(factor**2 * self.averaged, factor**2 * self.wandering)

    def of_mean(self, count: int) -> float:
        """The variance of a mean over so many batches."""
        return self.averaged / count + self.wandering

    @staticmethod
    def freedom(count: int) -> float:
        """The degrees of freedom of that: as many as there are pairs of batches that do not overlap, less one."""
        return max(1.0, count / _PAIR - 1)


def estimate_both(one: Ratio, other: Ratio) -> tuple[Estimate, Estimate]:
    """A ratio in two runs of one job, of which each varies in proportion to itself, as a pace does.

    How batches vary and depend on their neighbours is estimated from both together.
    """
    alike, noise = dependence(one.left, other.left), noise_of(one.relative, other.relative)
    return one.estimate(alike, noise.times(one.value)), other.estimate(alike, noise.times(other.value))


def estimate_costs(one: Ratio, other: Ratio) -> tuple[Estimate, Estimate]:
    """The same of what one cause takes: where next to nothing is left of it, that varies by as much as before."""
    alike, noise = dependence(one.left, other.left), noise_of(one.left, other.left)
    return one.estimate(alike, noise), other.estimate(alike, noise)


def noise_of(*series: Sequence[float]) -> Noise:
    """What batches vary by, from the differences of neighbours and of neighbouring pairs: Allan's variances.

    Args:
        series: one number for each batch, in order of time.
    """
    single, paired = (_allan_variance(series, length) for length in (1, _PAIR))
    wandering = max(0.0, (_PAIR * paired - single) / (_PAIR - 1))
    return Noise(max(0.0, single - wandering), wandering)


def _allan_variance(series: Iterable[Sequence[float]], length: int) -> float:
    """Half the mean square of the difference of neighbouring means over so many batches; 0 where there are too few."""
    differences: list[float] = []
    for one in series:
        means = [statistics.fmean(one[begin : begin + length]) for begin in range(len(one) - length + 1)]
        differences += [after - before for before, after in zip(means, means[length:], strict=False)]
    return statistics.fmean(each * each for each in differences) / 2 if differences else 0.0


def dependence(*series: Sequence[float]) -> float:
    """How neighbours in series around 0 correlate, without the bias of short ones (Kendall 1954); 0 where negative."""
    total = sum(value * value for one in series for value in one)
    if total == 0:
        return 0.0
    found = sum(value * following for one in series for value, following in pairwise(one)) / total
    batches = statistics.fmean(map(len, series))
    return min(_MOST_DEPENDENT, max(0.0, found + (1 + 4 * max(0.0, found)) / batches))


def difference(before: Estimate, after: Estimate, confidence: float) -> Interval:
    """By how much the second is larger than the first, by Welch's t-test.

    Args:
        before: the first.
        after: the second.
        confidence: with which the difference lies in the interval.
    """
    value = after.value - before.value
    if before.variance is None or after.variance is None:
        return Interval(value)
    reach = _quantile(before, after, confidence) * math.sqrt(before.variance + after.variance)
    return Interval(value, value - reach, value + reach)


def change(before: Estimate, after: Estimate, confidence: float, most: float = math.inf) -> Interval:
    """By how much more the second of two amounts is, without leaving what is possible.

    Each amount has an interval of its own, and both are put together as Newcombe (1998, "Interval estimation for the
    difference between independent proportions") and Zou and Donner (2008, "Construction of confidence limits about
    effect measures") do it. Where much was watched it is that of Welch's t-test.

    Args:
        before: the first, neither below 0 nor above the most.
        after: the second, likewise.
        confidence: with which the difference lies in the interval.
        most: what an amount can be at most, 1 of shares.
    """
    value = after.value - before.value
    if before.variance is None or after.variance is None:
        return Interval(value)
    reach = _quantile(before, after, confidence)
    (least, greatest), (lower, upper) = before.between(reach, most), after.between(reach, most)
    down = math.hypot(after.value - lower, greatest - before.value)
    up = math.hypot(upper - after.value, before.value - least)
    return Interval(value, value - down, value + up)


def quotient(before: Estimate, after: Estimate, confidence: float, most: float = math.inf) -> Interval:
    """How many times as much the second of two amounts above 0 is, likewise: a change of their logarithms.

    Args:
        before: the first.
        after: the second.
        confidence: with which the quotient lies in the interval.
        most: what an amount can be at most.
    """
    value = after.value / before.value
    if before.variance is None or after.variance is None:
        return Interval(value)
    reach = _quantile(before, after, confidence)
    (least, greatest), (lower, upper) = before.between(reach, most), after.between(reach, most)
    down = math.hypot(math.log(after.value / lower), math.log(greatest / before.value))
    up = math.hypot(math.log(upper / after.value), math.log(before.value / least))
    return Interval(value, value * math.exp(-down), value * math.exp(up))


def _quantile(before: Estimate, after: Estimate, confidence: float) -> float:
    """Student's t for a difference of the two; 0 where neither varies."""
    parts = before.variance or 0.0, after.variance or 0.0
    if sum(parts) == 0:
        return 0.0
    # Rounded down: a little too cautious.
    freedom = int(_joint_freedom(parts, (before.freedom, after.freedom)) + 1e-9)
    return student_t(max(1, freedom), confidence)


def _joint_freedom(parts: Sequence[float], freedoms: Sequence[float]) -> float:
    """Welch and Satterthwaite's degrees of freedom of a sum of variances."""
    against = sum(part**2 / freedom for part, freedom in zip(parts, freedoms, strict=True))
    return sum(parts) ** 2 / against if against else min(freedoms)


@lru_cache
def student_t(freedom: int, confidence: float) -> float:
    """The two-sided quantile of Student's t: what is exceeded with a probability of ``1 - confidence``."""
    low, high = 0.0, 1.0
    while within_t(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within_t(middle, freedom) < confidence else (low, middle)
    return high


def within_t(t: float, freedom: int) -> float:
    """The probability that Student's t lies between ``-t`` and ``t`` (Abramowitz and Stegun 1964, 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    if freedom == 1:
        return 2 * angle / math.pi
    term = total = cosine if odd else 1.0
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
