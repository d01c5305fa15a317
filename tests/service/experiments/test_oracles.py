"""Agreement with SciPy and statsmodels to 1e-9 on 10,000 random tables, for what they offer."""

import numpy as np
import pytest
from scipy import special, stats
from statsmodels.regression.linear_model import WLS

from service.experiments.quality import ranking
from service.experiments.split_check import ln_bayes_factor
from service.experiments.statistics import ratio, standardised

TABLES = 10_000
CLOSE = {"rel": 1e-9, "abs": 1e-12}


def tables(seed: int, units: int) -> tuple[np.ndarray, np.ndarray]:
    """(clicks, exposures), (TABLES, units) each, every unit with an exposure."""
    rng = np.random.default_rng(seed)
    exposures = rng.geometric(0.1, (TABLES, units))
    return rng.binomial(exposures, rng.beta(1.5, 28.5, (TABLES, units))), exposures


def test_the_bayes_factor_is_scipys_dirichlet_multinomial_by_its_multinomial():
    rng = np.random.default_rng(1)
    for arms, tables_of_them in ((2, TABLES // 2), (3, TABLES // 4), (5, TABLES // 4)):
        shares = rng.dirichlet(np.full(arms, 4.0))
        counts = rng.multinomial(20_000, rng.dirichlet(50 * shares, tables_of_them))
        prior = stats.dirichlet_multinomial(100 * shares, 20_000)
        expected = prior.logpmf(counts) - stats.multinomial(20_000, shares).logpmf(counts)
        # The coefficients, alike in both, cancel: what is left of their rounding is 1e-9 of them.
        coefficient = special.gammaln(20_001)
        assert ln_bayes_factor(counts, shares, 100.0) == pytest.approx(
            expected, rel=1e-9, abs=1e-9 + 1e-13 * coefficient
        )


def test_a_ratio_without_clusters_is_the_binomial_proportion():
    """One exposure a unit: variance p (1 - p) / (n - 1)."""
    clicks, _ = tables(2, 64)
    clicked = np.minimum(clicks, 1)
    found = ratio(clicked, np.ones_like(clicked))
    assert found.variance == pytest.approx(stats.sem(clicked, axis=1) ** 2, **CLOSE)


def test_the_variance_of_a_ratio_is_that_of_the_jackknifed_linear_form():
    """SciPy's standard error of the mean of the influences (C - R M) / mean(M)."""
    clicks, exposures = tables(3, 40)
    found = ratio(clicks, exposures)
    influence = (clicks - found.value[:, None] * exposures) / exposures.mean(axis=1, keepdims=True)
    assert found.variance == pytest.approx(stats.sem(influence, axis=1) ** 2, **CLOSE)


def test_the_variance_of_a_ratio_is_statsmodels_sandwich():
    """Clicks on exposures through the origin, weighed by 1/exposures, robust with n/(n-1): one fit a table."""
    clicks, exposures = tables(4, 12)
    found = ratio(clicks, exposures)
    expected = np.array(
        [
            (fit.params[0], fit.bse[0] ** 2)
            for c, m in zip(clicks.astype(float), exposures.astype(float), strict=True)
            for fit in [WLS(c, m, weights=1 / m).fit(cov_type="HC1")]
        ]
    )
    assert found.value == pytest.approx(expected[:, 0], **CLOSE)
    assert found.variance == pytest.approx(expected[:, 1], **CLOSE)


def test_epochs_are_combined_as_statsmodels_clusters_them():
    """One coefficient an epoch, errors clustered by unit; the combination is a contrast of them."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        exposures = rng.geometric(0.1, (3, 32)).astype(float)
        clicks = rng.binomial(exposures.astype(int), 0.1).astype(float)
        weights = rng.dirichlet(np.ones(3))
        design = np.zeros((96, 3))
        for epoch in range(3):
            design[epoch * 32 : (epoch + 1) * 32, epoch] = exposures[epoch]
        groups = {"groups": np.tile(np.arange(32), 3), "use_correction": False}
        fit = WLS(clicks.ravel(), design, weights=1 / exposures.ravel()).fit(cov_type="cluster", cov_kwds=groups)
        found = standardised(clicks, exposures, weights)
        assert found.value == pytest.approx(weights @ fit.params, **CLOSE)
        assert found.variance == pytest.approx(weights @ fit.cov_params() @ weights * 32 / 31, **CLOSE)


def test_the_auc_is_scipys_mann_whitney():
    rng = np.random.default_rng(6)
    scores = np.round(rng.random((TABLES, 30)), 1)
    clicked = np.arange(30) < 8
    expected = stats.mannwhitneyu(scores[:, clicked], scores[:, ~clicked], axis=1, method="asymptotic").statistic
    found = np.array([ranking(row, clicked).auc for row in scores])
    assert found == pytest.approx(expected / (8 * 22), **CLOSE)
