"""Jacobians: known spectra, other derivations, attention kernels, company, changed scenes, bad input."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from readout_utils.jacobian import (
    CHANGES,
    METHODS,
    change_scenes,
    effective_rank,
    jacobian_effective_rank,
    jacobian_matrix,
    readout,
    scene_sensitivity,
    sensitivity,
    singular_values,
)
from readout_utils.scenes import CANVAS, draw_scenes, random_scenes

SHAPE = (3, 8, 8)
PIXELS = 192


def linear_map(spectrum: torch.Tensor, seed: int = 0):
    """A linear function of pixels with these singular values, and its matrix (D, P), in float64."""
    generator = torch.Generator().manual_seed(seed)
    width = len(spectrum)
    left, right = (
        torch.linalg.qr(torch.randn(size, width, generator=generator, dtype=torch.float64)).Q
        for size in (width, PIXELS)
    )
    matrix = left * spectrum @ right.T
    return (lambda x: x.flatten(1) @ matrix.T), matrix


def random_pixels(b: int = 2, seed: int = 0, shape=SHAPE, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(b, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(scope="module")
def scenes():
    return random_scenes(4, 0, stickers=(2, 3))


@pytest.fixture(scope="module")
def pocket_pixels(pocket, scenes):
    return pocket.to_pixels(draw_scenes(scenes[:2]))


@pytest.fixture(scope="module")
def wave():
    """A smooth function that is not linear, with a matrix to derive it by hand: sin(W x)."""
    weights = torch.randn(20, PIXELS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (lambda x: torch.sin(x.flatten(1) @ weights.T)), weights


# --- known spectra --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 8, 40])
def test_linear_maps_have_their_spectrum(method, k):
    spectrum = 2.0 ** -torch.arange(40, dtype=torch.float64)
    function, _ = linear_map(spectrum)
    found = singular_values(function, random_pixels(3), k, method, iterations=20)
    torch.testing.assert_close(found, spectrum[:k].expand(3, k), rtol=1e-6, atol=1e-10)
    rank = jacobian_effective_rank(function, random_pixels(3), k, method, iterations=20)
    expected = spectrum[:k].sum() ** 2 / spectrum[:k].square().sum()
    torch.testing.assert_close(rank, expected.expand(3), rtol=1e-6, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_flat_spectrum_has_full_rank_and_a_single_direction_has_rank_one(method):
    flat, _ = linear_map(torch.ones(12, dtype=torch.float64))
    assert jacobian_effective_rank(flat, random_pixels(1), 12, method).item() == pytest.approx(12)
    single, _ = linear_map(torch.tensor([3.0] + [0.0] * 11, dtype=torch.float64))
    assert jacobian_effective_rank(single, random_pixels(1), 12, method).item() == pytest.approx(1, abs=1e-6)


def test_power_iterations_find_a_slowly_decaying_spectrum():
    spectrum = torch.arange(1, 193, dtype=torch.float64) ** -0.5
    function, matrix = linear_map(spectrum)
    x, k = random_pixels(1), 24
    truth = effective_rank(spectrum, k)
    by_iterations = [
        jacobian_effective_rank(function, x, k, "randomized", iterations=i).item() for i in (0, 1, 5)
    ]
    wrong = [abs(rank / truth - 1) for rank in by_iterations]
    assert wrong[0] > 0.1 > wrong[1] > wrong[2]
    assert wrong[2] < 0.01
    # and random probes alone, without Q^T J, inflate the rank
    inflated = []
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        probes = torch.linalg.qr(torch.randn(PIXELS, k, generator=generator, dtype=torch.float64)).Q
        inflated.append(effective_rank(torch.linalg.svdvals(matrix @ probes)))
    assert min(inflated) > truth


@pytest.mark.parametrize("iterations", [0, 5])
def test_randomized_singular_values_are_never_too_large(iterations):
    spectrum = torch.arange(1, 101, dtype=torch.float64) ** -0.5
    function, _ = linear_map(spectrum)
    found = singular_values(function, random_pixels(1), 20, "randomized", iterations)[0]
    assert (found <= spectrum[:20] + 1e-12).all()
    assert (found.diff() <= 0).all()


def test_effective_rank_by_hand():
    assert effective_rank(torch.tensor([3.0, 1.0])).item() == pytest.approx(16 / 10)
    assert effective_rank(torch.tensor([1.0, 4.0, 2.0]), k=2).item() == pytest.approx(36 / 20)
    assert effective_rank(torch.full((2, 5), 1e-200, dtype=torch.float64)).tolist() == pytest.approx([5, 5])


# --- derivatives ----------------------------------------------------------------------------------


def test_jacobian_of_a_wave_by_hand(wave):
    function, weights = wave
    x = random_pixels(3)
    expected = torch.cos(x.flatten(1) @ weights.T)[..., None] * weights
    torch.testing.assert_close(jacobian_matrix(function, x), expected, rtol=1e-10, atol=1e-10)


def test_jacobian_of_the_pocket_encoder_by_finite_differences(pocket, pocket_pixels):
    precise = copy.deepcopy(pocket)
    precise.model.double()
    function, step, x = readout(precise), 1e-4, pocket_pixels[:1].double()
    directions = random_pixels(3, 5, x.shape[1:])
    with torch.no_grad():
        finite = torch.cat([function(x + step * d) - function(x - step * d) for d in directions]) / (2 * step)
    product = jacobian_matrix(function, x)[0] @ directions.flatten(1).T
    torch.testing.assert_close(product.T, finite, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(sensitivity(function, x, directions)[0], finite.norm(dim=1))


def test_both_methods_agree_on_the_pocket_encoder(pocket, pocket_pixels):
    function = readout(pocket)
    exact, randomized = (jacobian_effective_rank(function, pocket_pixels[:1], method=m) for m in METHODS)
    torch.testing.assert_close(randomized, exact, rtol=0.01, atol=0)
    assert ((exact > 10) & (exact < 32)).all()


def test_sensitivity_of_singular_directions_is_the_spectrum():
    spectrum = torch.tensor([5.0, 2.0, 0.5], dtype=torch.float64)
    function, matrix = linear_map(spectrum)
    directions = torch.linalg.svd(matrix, full_matrices=False).Vh.view(3, *SHAPE)
    x = random_pixels(2)
    torch.testing.assert_close(sensitivity(function, x, directions), spectrum.expand(2, 3))
    each = torch.stack([directions, 2 * directions])
    torch.testing.assert_close(sensitivity(function, x, each), torch.stack([spectrum, 2 * spectrum]))


class Cube(torch.autograd.Function):
    """x^3 with a reverse derivative and no forward one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs)

    @staticmethod
    def backward(context, gradient):
        return 3 * context.saved_tensors[0] ** 2 * gradient


def test_an_operation_without_forward_derivative(wave):
    def function(x):
        return Cube.apply(wave[0](x))

    def plain(x):
        return wave[0](x) ** 3

    x, directions = random_pixels(2), random_pixels(4, 3)
    torch.testing.assert_close(sensitivity(function, x, directions), sensitivity(plain, x, directions))
    for method in METHODS:
        torch.testing.assert_close(
            singular_values(function, x, 4, method), singular_values(plain, x, 4, method)
        )


class Attention(nn.Module):
    """A transformer of torch's own layers, which take their fast path when nothing needs a gradient."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x):
        patches = x.view(len(x), 3, 4, 2, 4, 2).permute(0, 2, 4, 1, 3, 5)
        tokens = self.encoder(patches.flatten(3).flatten(1, 2))
        return self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(1)


def siglip_like():
    return timm.models.vision_transformer.VisionTransformer(
        img_size=8, patch_size=4, embed_dim=12, depth=2, num_heads=2, class_token=False, global_pool="map",
        num_classes=0,
    )  # fmt: skip


@pytest.mark.parametrize("make", [Attention, siglip_like], ids=["torch", "timm"])
@pytest.mark.parametrize("frozen", [True, False])
def test_attention_of_every_make(make, frozen):
    torch.manual_seed(0)
    module = make().double().eval().requires_grad_(not frozen)
    x, function = random_pixels(2), readout(module)
    expected = torch.stack(
        [torch.autograd.functional.jacobian(function, one[None])[0].flatten(1) for one in x]
    )
    torch.testing.assert_close(jacobian_matrix(function, x), expected, rtol=1e-6, atol=1e-9)
    truth = torch.linalg.svdvals(expected)
    for method in METHODS:
        found = singular_values(function, x, 12, method, iterations=2)
        torch.testing.assert_close(found, truth, rtol=1e-5, atol=1e-9)
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.backends.mha.get_fastpath_enabled()


def test_attention_is_pushed_forward(monkeypatch):
    """The fallback of two reverse passes is not what makes attention work."""
    function, x, directions = readout(Attention().double().eval()), random_pixels(2), random_pixels(3, 5)
    expected = sensitivity(function, x, directions)
    monkeypatch.delattr(torch.func, "vjp")
    torch.testing.assert_close(sensitivity(function, x, directions), expected)


@pytest.mark.parametrize("name", ["wave", "module"])
def test_modes_of_the_caller_do_not_matter(wave, name):
    function = wave[0] if name == "wave" else readout(Attention().double().eval())
    x = random_pixels(2)
    expected = jacobian_effective_rank(function, x, 5)
    with torch.no_grad():
        torch.testing.assert_close(jacobian_effective_rank(function, x, 5), expected)
    with torch.inference_mode():
        torch.testing.assert_close(jacobian_effective_rank(function, x.clone(), 5), expected)
    asked = x.clone().requires_grad_()
    assert not jacobian_effective_rank(function, asked, 5).requires_grad


# --- invariances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_scale_of_embedding_and_pixels_does_not_matter(wave, method):
    function, x = wave[0], random_pixels(2)
    expected = jacobian_effective_rank(function, x, 10, method)
    larger = jacobian_effective_rank(lambda x: 1000 * function(x), x, 10, method)
    brighter = jacobian_effective_rank(lambda x: function(x / 50), 50 * x, 10, method)
    torch.testing.assert_close(larger, expected)
    torch.testing.assert_close(brighter, expected)


@pytest.mark.parametrize("method", METHODS)
def test_company_and_order_of_images_do_not_matter(method, make_random_pocket):
    encoder = make_random_pocket(3)
    function = readout(encoder)
    x = random_pixels(5, 1, (3, 64, 64), torch.float32)
    ranks = [
        jacobian_effective_rank(function, x, 8, method, iterations=1, batch_size=size) for size in (1, 3, 5)
    ]
    for rank in ranks[1:]:
        torch.testing.assert_close(rank, ranks[0], rtol=1e-4, atol=0)
    backwards = jacobian_effective_rank(function, x.flip(0), 8, method, iterations=1)
    torch.testing.assert_close(backwards.flip(0), ranks[0], rtol=1e-4, atol=0)


def test_the_seed_decides_and_hardly_matters(wave):
    function, x = wave[0], random_pixels(1)
    one, same, other = (
        singular_values(function, x, 5, "randomized", iterations=1, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    torch.testing.assert_close(one, other, rtol=0.2, atol=0)


# --- readout points -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trained", "random"])
def test_readout_is_what_the_encoder_gives(pocket, make_random_pocket, scenes, name):
    encoder = pocket if name == "trained" else make_random_pocket(1)
    images = draw_scenes(scenes)
    x = encoder.to_pixels(images)
    features = encoder.encode_images(images).pooled
    torch.testing.assert_close(readout(encoder, "normalized")(x), features, rtol=1e-4, atol=1e-5)
    pooled = readout(encoder)(x)
    torch.testing.assert_close(F.normalize(pooled, dim=-1), features, rtol=1e-4, atol=1e-5)
    assert (pooled.norm(dim=1) - 1).abs().min() > 0.05


def test_a_normalised_embedding_cannot_answer_along_itself(pocket, pocket_pixels):
    function = readout(pocket, "normalized")
    matrix = jacobian_matrix(function, pocket_pixels[:1])[0]
    with torch.no_grad():
        along = function(pocket_pixels[:1])[0] @ matrix
    assert along.norm() < 1e-4 * matrix.norm()


def test_a_module_is_read_at_its_flattened_output():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Tanh()).eval()
    x = random_pixels(2, dtype=torch.float32)
    torch.testing.assert_close(readout(module)(x), module(x).flatten(1))
    assert jacobian_matrix(readout(module), x).shape == (2, 36, PIXELS)


# --- changed scenes -------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_changes_one_thing(change):
    before = random_scenes(200, 1, stickers=(2, 3))
    after = change_scenes(before, change, seed=3)
    touched = {
        name for name in vars(before) if not np.array_equal(getattr(before, name), getattr(after, name))
    }
    expected = {
        "move": {"x", "y"}, "swap": {"x", "y"}, "noun": {"noun"}, "style": {"style"}, "mirror": {"mirrored"},
        "background": {"corners"}, "noise": {"noise"},
    }[change]  # fmt: skip
    assert touched == expected
    for name in expected - {"corners", "noise"}:
        others = slice(2 if change == "swap" else 1, None)
        assert np.array_equal(getattr(before, name)[:, others], getattr(after, name)[:, others])
    changed = (draw_scenes(before) != draw_scenes(after)).any((1, 2, 3))
    assert changed.all() or change == "mirror"
    again = change_scenes(before, change, seed=3)
    assert all(np.array_equal(getattr(after, name), getattr(again, name)) for name in vars(after))


def test_a_moved_sticker_goes_as_far_as_asked_and_stays_on_the_canvas():
    before = random_scenes(500, 2, stickers=(1, 2))
    after = change_scenes(before, "move", pixels=5)
    step = np.abs(after.x - before.x) + np.abs(after.y - before.y)
    assert (step[:, 0] == 5).all() and (step[:, 1:] == 0).all()
    low, high = before.size[:, 0] // 2, CANVAS - before.size[:, 0] + before.size[:, 0] // 2
    for place in (after.x[:, 0], after.y[:, 0]):
        assert ((place >= low) & (place <= high)).all()
    two = before.noun[:, 1] >= 0
    gap = np.maximum(np.abs(after.x[:, 0] - after.x[:, 1]), np.abs(after.y[:, 0] - after.y[:, 1]))
    assert (gap >= 0.42 * after.size.sum(1))[two].mean() > 0.95
    assert len(np.unique(np.sign(after.x - before.x)[:, 0])) == 3  # left, right, and neither


def test_a_new_noun_is_not_in_the_scene():
    before = random_scenes(2000, 3, stickers=(3,))
    noun = change_scenes(before, "noun").noun
    assert (noun[:, 0] != before.noun[:, 0]).all()
    assert (noun[:, 0, None] != noun[:, 1:]).all()


def test_scene_sensitivity_of_a_linear_map(scenes):
    matrix = torch.randn(6, 3 * CANVAS**2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def to_pixels(images):
        return torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255

    def function(x):
        return x.flatten(1) @ matrix.T

    found = scene_sensitivity(function, scenes, "swap", to_pixels)
    difference = draw_scenes(change_scenes(scenes, "swap")).astype(float) - draw_scenes(scenes)
    direction = torch.from_numpy(difference).permute(0, 3, 1, 2)
    direction /= direction.flatten(1).norm(dim=1)[:, None, None, None]
    gain = sensitivity(function, to_pixels(draw_scenes(scenes)), direction[:, None])[:, 0]
    torch.testing.assert_close(found, gain)
    by_function = scene_sensitivity(function, scenes, lambda s: change_scenes(s, "swap"), to_pixels)
    assert torch.equal(by_function, found)


def test_the_pocket_encoder_answers_to_the_noun_more_than_to_the_noise(pocket):
    scenes = random_scenes(60, 5, stickers=(1, 2))
    noun, noise, move = (
        scene_sensitivity(readout(pocket), scenes, change, pocket.to_pixels)
        for change in ("noun", "noise", "move")
    )
    assert noun.mean() > 2 * noise.mean()
    assert noun.mean() > 2 * move.mean()


# --- bad input ------------------------------------------------------------------------------------


def flat(x):
    return x.flatten(1)[:, :6]


def wide(x):
    return x.flatten(1).tile(1, 2)


def inside_inference_mode(x):
    with torch.inference_mode():
        return flat(x)


def through_inference_tensors(x):
    with torch.inference_mode():
        weights = torch.ones(PIXELS, 6, dtype=torch.float64)
    return x.flatten(1) @ weights


X = random_pixels(2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: flat(x).detach(), "detached"),
        (lambda x: flat(x).argmax(1, keepdim=True), "argmax"),
        (lambda x: flat(x).argmax(1, keepdim=True).double(), "argmax"),
        (torch.no_grad()(flat), "computed without gradients"),
        (inside_inference_mode, "inference mode"),
        (through_inference_tensors, "tensors made in inference mode"),
        (lambda x: torch.from_numpy(flat(x).numpy()), "leaves torch"),
        (lambda x: flat(x).detach() * torch.ones(1, dtype=x.dtype, requires_grad=True), "detached"),
        (lambda x: flat(x).round(), "Jacobian of image 0 is 0"),
        (lambda x: flat(x) * (x.flatten(1).sum(1, keepdim=True) == x[0].sum()), "Jacobian of image 1 is 0"),
        (lambda x: flat(x) - flat(x).mean(0), "in other company"),
        (lambda x: flat(x) / 0, "NaN or infinity"),
        (lambda x: x, r"returns \(1, 3, 8, 8\)"),
        (lambda x: (flat(x), None), "returns tuple"),
        (object(), "object is no function of pixels"),
    ],
)
def test_functions_without_a_jacobian_are_refused(function, message, method):
    with pytest.raises(ValueError, match=message):
        jacobian_effective_rank(function, X, 3, method)


def test_a_dual_encoder_is_not_a_function(pocket):
    with pytest.raises(ValueError, match=r"readout\(encoder\)"):
        jacobian_matrix(pocket, X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: singular_values(flat, X, 7), r"6 embedding dimensions by 192 pixels .* k = 7"),
        (lambda: singular_values(wide, X, 193, "randomized"), "384 .* by 192 .* k = 193"),
        (lambda: jacobian_effective_rank(flat, X), "6 embedding dimensions by 192 pixels .* k = 32"),
        (lambda: singular_values(flat, X, 0), "k = 0"),
        (lambda: singular_values(flat, X, 2, "svd"), "there are exact, randomized"),
        (lambda: singular_values(flat, X, 2, "randomized", iterations=-1), "not -1"),
        (lambda: jacobian_effective_rank(flat, X, 2, batch_size=0), "batch_size"),
        (lambda: jacobian_effective_rank(flat, X[:0], 2), r"\(0, 3, 8, 8\)"),
        (lambda: jacobian_matrix(flat, X[0]), r"\(3, 8, 8\) of torch.float64"),
        (lambda: jacobian_matrix(flat, X.to(torch.uint8)), "torch.uint8"),
        (lambda: jacobian_matrix(flat, X.numpy()), "ndarray"),
        (lambda: jacobian_matrix(flat, X.log()), "pixels hold NaN"),
        (lambda: sensitivity(flat, X, X[:, :2]), r"not \(2, 2, 2, 8, 8\)"),
        (lambda: sensitivity(flat, X, X[:0]), "at least one direction"),
        (lambda: sensitivity(flat, X, X.log()), "none with NaN"),
        (lambda: effective_rank(torch.tensor([1.0, 2.0]), 3), "k = 3"),
        (lambda: effective_rank(torch.zeros(4)), "All singular values are 0"),
        (lambda: effective_rank(torch.tensor([1.0, torch.nan])), "finite"),
        (lambda: effective_rank(torch.tensor([1.0, -1.0])), "not negative"),
        (lambda: effective_rank(torch.tensor(1.0)), "m of at least 1"),
        (lambda: readout(nn.Flatten().eval(), "token"), "there are pooled, normalized"),
        (lambda: readout(nn.Flatten()), "training mode"),
        (lambda: readout(flat), "not function"),
        (lambda: readout(nn.LSTM(8, 2).eval())(X[0].float()), "returns a tuple"),
        (lambda: change_scenes(random_scenes(2, 0), "recolour"), "there are move, swap"),
        (lambda: change_scenes(random_scenes(2, 0, stickers=(1,)), "swap"), "first 2 sticker"),
        (lambda: change_scenes(random_scenes(2, 0), "move", pixels=0), "at least 1 pixel"),
        (
            lambda: scene_sensitivity(flat, random_scenes(2, 0), lambda s: s, torch.from_numpy),
            "picture of scene 0 as it was",
        ),
        (
            lambda: scene_sensitivity(flat, random_scenes(2, 0), lambda s: s[:1], torch.from_numpy),
            "made 1 scenes of 2",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
