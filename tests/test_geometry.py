"""Geometry: known spectra, invariances, the plain ratio's bias, published formulas, degenerate clouds."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group
from sklearn.neighbors import NearestNeighbors

from readout_utils.geometry import (
    alignment,
    covariance_spectrum,
    entropy_effective_rank,
    geometry_table,
    global_isotropy,
    local_isotropy,
    participation_ratio,
    uniformity,
    vicreg_covariance,
    vicreg_variance,
)

SCALE_FREE = {
    "participation ratio": participation_ratio,
    "participation ratio, plain": lambda x: participation_ratio(x, corrected=False),
    "global isotropy": global_isotropy,
    "local isotropy": local_isotropy,
    "effective rank": entropy_effective_rank,
    "uniformity": uniformity,
    "alignment": lambda x: alignment(x[::2], x[1::2]),
}
SCALED = {"variance term": vicreg_variance, "covariance term": vicreg_covariance}


def cloud(seed: int, n: int = 60, dimensions: int = 8, decay: float = 0.7) -> np.ndarray:
    """Skewed, correlated rows around a centre that is not the origin."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_exponential((n, dimensions)) * decay ** np.arange(dimensions)
    return rows @ ortho_group.rvs(dimensions, random_state=seed) * 0.3 + rng.normal(size=dimensions)


def with_spectrum(spectrum, n: int = 200, seed: int = 0) -> np.ndarray:
    """Rows whose sample covariance has exactly these eigenvalues."""
    rng = np.random.default_rng(seed)
    white = rng.normal(size=(n, len(spectrum)))
    basis, _ = np.linalg.qr(white - white.mean(0))  # orthonormal columns, each of mean 0
    turn = ortho_group.rvs(len(spectrum), random_state=seed)
    return np.sqrt(n - 1) * (basis * np.sqrt(spectrum)) @ turn + 3.0


# --- known spectra --------------------------------------------------------------------------------


def test_known_spectrum():
    spectrum = np.array([4.0, 2.0, 1.0, 1.0])
    rows = with_spectrum(spectrum)
    np.testing.assert_allclose(covariance_spectrum(rows), spectrum, rtol=1e-9)
    assert participation_ratio(rows, corrected=False) == pytest.approx(64 / 22 / 4)
    assert global_isotropy(rows) == pytest.approx(0.5)
    shares = np.sqrt(spectrum) / np.sqrt(spectrum).sum()
    assert entropy_effective_rank(rows) == pytest.approx(np.prod(shares**-shares))


@pytest.mark.parametrize("dimensions", [1, 2, 7])
def test_a_sphere_fills_everything_and_a_line_nothing(dimensions):
    sphere = with_spectrum(np.ones(dimensions))
    assert participation_ratio(sphere, corrected=False) == pytest.approx(1)
    assert entropy_effective_rank(sphere) == pytest.approx(dimensions)
    assert global_isotropy(sphere) == pytest.approx(1 - 1 / dimensions)
    line = np.linspace(0, 1, 50)[:, None] * np.arange(1, dimensions + 1)
    for corrected in (True, False):
        assert participation_ratio(line, corrected) == pytest.approx(1 / dimensions)
    assert entropy_effective_rank(line) == pytest.approx(1, abs=1e-6)
    assert global_isotropy(line) == pytest.approx(0, abs=1e-12)
    assert local_isotropy(line) == pytest.approx(0, abs=1e-12)


def test_spectrum_of_fewer_rows_than_dimensions():
    rows = cloud(0, n=5, dimensions=12)
    expected = np.sort(np.linalg.eigvalsh(np.cov(rows, rowvar=False)))[::-1]
    np.testing.assert_allclose(covariance_spectrum(rows), expected, atol=1e-12)
    assert (covariance_spectrum(rows)[4:] < 1e-12).all()


# --- invariances ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-3, 0.3, 1e4]))
@settings(max_examples=15, deadline=None)
def test_measures_that_ignore_rotation_and_scale(seed, scale):
    rows = cloud(seed)
    turned = rows @ ortho_group.rvs(rows.shape[1], random_state=seed + 1)
    for name, measure in SCALE_FREE.items():
        assert measure(turned) == pytest.approx(measure(rows), rel=1e-8), name
        assert measure(scale * rows) == pytest.approx(measure(rows), rel=1e-8), name


def test_terms_of_a_loss_depend_on_scale_and_axes():
    rows = cloud(0)
    turned = rows @ np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2].T
    assert vicreg_covariance(2 * rows) == pytest.approx(16 * vicreg_covariance(rows))
    assert vicreg_covariance(turned) == pytest.approx(0, abs=1e-20) != vicreg_covariance(rows)
    assert vicreg_variance(0.1 * rows) > vicreg_variance(rows)
    assert vicreg_variance(turned) > 1.01 * vicreg_variance(rows)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_order_of_rows_does_not_matter(seed):
    rows = cloud(seed)
    shuffled = np.random.default_rng(seed).permutation(rows)
    for name, measure in (SCALE_FREE | SCALED).items():
        if name != "alignment":  # its rows have partners
            assert measure(shuffled) == pytest.approx(measure(rows), rel=1e-9), name


# --- the bias of the plain ratio ------------------------------------------------------------------


def test_corrected_ratio_is_the_quotient_of_u_statistics():
    rows = cloud(1, n=8, dimensions=3, decay=0.3)
    squares, square = [], []
    for i, j, k, m in permutations(range(len(rows)), 4):  # four different rows: two independent differences
        one, other = rows[i] - rows[j], rows[k] - rows[m]
        squares.append((one @ other) ** 2)
        square.append((one @ one) * (other @ other))
    expected = np.sum(square) / np.sum(squares) / 3
    assert 1 / 3 < expected < 1  # not where the ratio is clipped
    assert participation_ratio(rows) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy-tailed"])
@pytest.mark.parametrize("n", [50, 200])
def test_plain_ratio_is_low_by_its_size_over_n_and_the_correction_removes_it(n, heavy):
    spectrum = 0.93 ** np.arange(64)
    truth = spectrum.sum() ** 2 / (spectrum**2).sum()
    rng = np.random.default_rng(0)
    plain, corrected = [], []
    for _ in range(100):
        rows = rng.laplace(size=(n, 64)) if heavy else rng.normal(size=(n, 64))
        rows *= np.sqrt(spectrum)
        plain.append(64 * participation_ratio(rows, corrected=False))
        corrected.append(64 * participation_ratio(rows))
    lost = 1 - np.mean(plain) / truth
    assert lost == pytest.approx(1 - 1 / (1 + truth / n), rel=0.25)
    assert abs(1 - np.mean(corrected) / truth) < 0.1 * lost


def test_corrected_ratio_ends_at_the_range_when_noise_hides_the_spectrum():
    # differences of four different corners are orthogonal: the estimate of tr C^2 is 0
    assert participation_ratio(np.eye(6)) == 1.0
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert 1 / 30 <= participation_ratio(rng.normal(size=(4, 30))) <= 1


# --- against other ways of computing the same -----------------------------------------------------


def test_local_isotropy_by_brute_force():
    rows = cloud(3, n=40, dimensions=5)
    _, near = NearestNeighbors(n_neighbors=7).fit(rows).kneighbors(rows)
    shares = []
    for index, chosen in enumerate(near):
        assert chosen[0] == index
        values = np.linalg.eigvalsh(np.cov(rows[chosen[1:]], rowvar=False))
        shares.append(1 - values[-1] / values.sum())
    assert local_isotropy(rows, neighbours=6) == pytest.approx(np.mean(shares), rel=1e-9)


def test_local_isotropy_sees_what_the_global_one_does_not():
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1)
    assert global_isotropy(ring) == pytest.approx(0.5)
    assert local_isotropy(ring) < 0.01


def test_repeated_points_are_left_out_of_local_isotropy():
    rows = cloud(4, n=50)
    far = np.tile(rows.mean(0) + 100, (6, 1))
    with_repeats = np.concatenate([rows, far])
    assert local_isotropy(with_repeats, neighbours=5) == pytest.approx(local_isotropy(rows, neighbours=5))


def test_uniformity_and_alignment_by_the_definitions():
    rows, others = torch.tensor(cloud(5)), torch.tensor(cloud(6))
    unit, partner = (torch.nn.functional.normalize(x, dim=1) for x in (rows, others))
    assert uniformity(rows) == pytest.approx(torch.pdist(unit).pow(2).mul(-2).exp().mean().log().item())
    assert uniformity(rows, t=3) == pytest.approx(torch.pdist(unit).pow(2).mul(-3).exp().mean().log().item())
    assert alignment(rows, others) == pytest.approx((unit - partner).norm(dim=1).pow(2).mean().item())
    assert alignment(rows, others, power=1) == pytest.approx((unit - partner).norm(dim=1).mean().item())
    assert alignment(rows, -rows) == pytest.approx(4)
    assert alignment(rows, rows) == 0


def test_uniform_points_are_more_uniform_than_a_cap():
    sphere = np.random.default_rng(0).normal(size=(300, 6))
    cap = sphere + np.array([4, 0, 0, 0, 0, 0])
    assert uniformity(sphere) < uniformity(cap) < 0
    assert uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)


def test_vicreg_terms_by_the_published_formula():
    rows = torch.tensor(cloud(7))
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred / (len(rows) - 1)
    hinge = torch.relu(1 - torch.sqrt(rows.var(0) + 1e-4)).mean()
    assert vicreg_variance(rows) == pytest.approx(hinge.item())
    off = covariance - torch.diag(covariance.diag())
    assert vicreg_covariance(rows) == pytest.approx(off.pow(2).sum().item() / rows.shape[1])
    assert vicreg_variance(np.ones((4, 3))) == pytest.approx(0.99)
    assert vicreg_covariance(np.ones((4, 3))) == 0


# --- the table ------------------------------------------------------------------------------------


def test_table_holds_every_measure():
    rows = cloud(8)
    table = geometry_table(rows)
    assert set(table.index) == (set(SCALE_FREE) | set(SCALED)) - {"alignment"}
    for name, value in table.items():
        assert value == (SCALE_FREE | SCALED)[name](rows), name
    twin = geometry_table(torch.tensor(rows, requires_grad=True), rows[::-1].copy(), neighbours=5)
    assert twin["alignment"] == alignment(rows, rows[::-1])
    assert twin["local isotropy"] == local_isotropy(rows, 5)


@pytest.mark.parametrize("n", [21, 30])
@pytest.mark.parametrize("dimensions", [1, 2, 300])
def test_table_has_no_nan(n, dimensions):
    rows = np.random.default_rng(0).normal(size=(n, dimensions)).astype(np.float32)
    assert np.isfinite(geometry_table(rows, rows)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: geometry_table(np.ones((50, 4))), "All embeddings are the same"),
        (lambda: geometry_table(np.full((50, 4), 0.1, np.float32)), "All embeddings are the same"),
        (lambda: geometry_table(np.zeros((50, 4))), "All embeddings are the same"),
        (lambda: geometry_table(cloud(0, n=20)), "over 20 neighbours needs at least 21 embeddings"),
        (lambda: geometry_table(cloud(0, n=3)), "needs at least 4 embeddings, and there are 3"),
        (lambda: participation_ratio(cloud(0, n=1), corrected=False), "at least 2"),
        (lambda: covariance_spectrum(cloud(0, n=1)), "at least 2"),
        (lambda: uniformity(cloud(0, n=1)), "at least 2"),
        (lambda: vicreg_variance(cloud(0, n=1)), "at least 2"),
        (lambda: vicreg_covariance(cloud(0, n=1)), "at least 2"),
        (lambda: geometry_table(np.where(np.arange(8) == 3, np.nan, cloud(0))), "Embedding 0 holds NaN"),
        (lambda: uniformity([[1.0, 0.0], [0.0, 0.0]]), "Embedding 1 is zero"),
        (lambda: uniformity(cloud(0), t=0), "t is a positive number"),
        (lambda: alignment(cloud(0), cloud(0), power=np.nan), "power is a positive number"),
        (lambda: alignment(cloud(0), cloud(0, n=3)), r"\(60, 8\) and \(3, 8\)"),
        (lambda: local_isotropy(cloud(0), 1), "at least 2 neighbours, not 1"),
        (lambda: local_isotropy(np.repeat(cloud(0, n=3), 9, axis=0), 5), "Every neighbourhood is one point"),
        (lambda: global_isotropy(np.ones(5)), r"\(n, D\)"),
        (lambda: global_isotropy(np.ones((5, 0))), r"\(n, D\)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
