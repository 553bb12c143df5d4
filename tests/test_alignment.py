"""Alignment: published values, an independent transport library, invariances, bad input."""

from __future__ import annotations

import json

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from readout_utils.alignment import VARIANTS, centroids, coupling, patch_centers, similarity, weights


def random_tables(seed: int, b: int = 3, n: int = 12, m: int = 2, spread: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * (2 * torch.rand(b, n, m, generator=generator, dtype=torch.float64) - 1)


def test_published_values(shared):
    cases = json.loads((shared / "reference" / "adr_reference_cases.json").read_text())
    assert len(cases) == 10
    for case in cases:
        table = torch.tensor(case["similarity"], dtype=torch.float64)[None]
        for variant, expected in case["expected"].items():
            places = centroids(weights(table, variant, case["temperature"]), tuple(case["grid"]))[0]
            pair = places[[case["subject"], case["object"]]]
            wanted = torch.tensor(expected["centroids"], dtype=torch.float64)
            if len(wanted) == len(places):
                torch.testing.assert_close(places, wanted, atol=1e-9, rtol=0)
            else:
                torch.testing.assert_close(pair, wanted, atol=1e-9, rtol=0)
            score = torch.tensor(case["axis"], dtype=torch.float64) @ (pair[0] - pair[1])
            assert abs(score.item() - expected["score"]) < 1e-9, (variant, case["grid"])


@pytest.mark.parametrize("temperature", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("m", [2, 3, 5])
def test_coupling_equals_independent_library(temperature, m):
    table = random_tables(m, n=20, m=m)
    ours = coupling(table, temperature, max_iterations=10_000, tolerance=1e-13)
    for pi, s in zip(ours, table, strict=True):
        theirs = ot.sinkhorn(
            np.full(20, 1 / 20), np.full(m, 1 / m), -s.numpy(), temperature, numItermax=10_000, stopThr=1e-13
        )
        np.testing.assert_allclose(pi.numpy(), theirs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("temperature", [1e-4, 1e-2, 10.0])
def test_coupling_survives_extreme_temperatures(temperature):
    pi = coupling(random_tables(0, n=16, m=2), temperature)
    assert torch.isfinite(pi).all()
    torch.testing.assert_close(pi.sum(1), torch.full((3, 2), 0.5, dtype=torch.float64), atol=1e-12, rtol=0)
    if temperature > 1e-3:  # the published number of iterations suffices there
        torch.testing.assert_close(
            pi.sum(2), torch.full((3, 16), 1 / 16, dtype=torch.float64), atol=1e-4, rtol=0
        )


@given(seed=st.integers(0, 10_000), variant=st.sampled_from(VARIANTS))
@settings(max_examples=40, deadline=None)
def test_an_image_is_aligned_the_same_in_any_company(seed, variant):
    table = random_tables(seed, b=5)
    table[1] *= 0.1  # converges sooner than the others
    together = weights(table, variant)
    for i in range(5):
        assert torch.equal(weights(table[i : i + 1], variant)[0], together[i])


@given(seed=st.integers(0, 10_000), variant=st.sampled_from(VARIANTS))
@settings(max_examples=40, deadline=None)
def test_permuting_words_permutes_weights(seed, variant):
    table = random_tables(seed, m=4)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        weights(table[..., order], variant), weights(table, variant)[..., order], atol=1e-9, rtol=0
    )


@given(seed=st.integers(0, 10_000), variant=st.sampled_from(VARIANTS))
@settings(max_examples=40, deadline=None)
def test_mirroring_patches_mirrors_centroids(seed, variant):
    table = random_tables(seed, n=12)
    mirrored = table.unflatten(1, (3, 4)).flip(2).flatten(1, 2)
    a = centroids(weights(table, variant), (3, 4))
    b = centroids(weights(mirrored, variant), (3, 4))
    torch.testing.assert_close(b[..., 0], 1 - a[..., 0], atol=1e-9, rtol=0)
    torch.testing.assert_close(b[..., 1], a[..., 1], atol=1e-9, rtol=0)


def test_similarity_is_the_cosine():
    generator = torch.Generator().manual_seed(0)
    patches, words = torch.randn(2, 5, 7, generator=generator), torch.randn(2, 3, 7, generator=generator)
    expected = torch.cosine_similarity(patches.double()[:, :, None], words.double()[:, None], dim=-1)
    torch.testing.assert_close(similarity(patches, words), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(similarity(patches, words[0])[0], expected[0], atol=1e-12, rtol=0)


def test_patch_centers_read_rows_first():
    centers = patch_centers((2, 4))
    assert centers[0].tolist() == [0.125, 0.25]
    assert centers[1].tolist() == [0.375, 0.25]
    assert centers[4].tolist() == [0.125, 0.75]


def test_empty_column_is_floored_not_nan():
    assert centroids(torch.zeros(1, 4, 1, dtype=torch.float64), (2, 2)).tolist() == [[[0.0, 0.0]]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: similarity(torch.full((1, 2, 3), torch.nan), torch.ones(1, 3)), "patch feature holds NaN"),
        (lambda: similarity(torch.ones(1, 2, 3), torch.zeros(1, 3)), "word feature is zero"),
        (lambda: similarity(torch.ones(1, 0, 3), torch.ones(1, 3)), "No patch features"),
        (lambda: similarity(torch.ones(1, 2, 3), torch.ones(0, 3)), "No word features"),
        (lambda: similarity(torch.ones(1, 2, 3), torch.ones(1, 4)), r"not \(1, 2, 3\) and \(1, 4\)"),
        (lambda: weights(torch.full((1, 2, 2), torch.inf)), "NaN or infinity"),
        (lambda: weights(torch.ones(1, 2, 2), "argmax", 0), "positive number"),
        (lambda: weights(torch.ones(1, 2, 2), temperature=torch.nan), "positive number"),
        (lambda: weights(torch.ones(2, 2)), "none of them 0"),
        (lambda: weights(torch.ones(1, 2, 2), "sparse"), "there are excess, dense"),
        (lambda: centroids(torch.ones(1, 4, 2), (2, 3)), r"\(B, 6, m\)"),
        (lambda: patch_centers((0, 3)), "at least one row"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
