"""Encoders: against open_clip itself, against hooks, against bad input."""

from __future__ import annotations

import shutil
from importlib import resources

import numpy as np
import open_clip
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from readout_utils.encoders import PATCH_FEATURES, DualEncoder, WordTokenizer, load_encoder, to_rgb
from readout_utils.scenes import draw_scenes, random_scenes

RNG = np.random.default_rng(0)


class NoTokenizer:
    """SigLIP's tokenizer comes from a hub; the image tests need none."""

    context_length = 64


def real_architecture(name: str, **options):
    """A real open_clip architecture with random weights and its blocks cut to three."""
    config = open_clip.get_model_config(name)
    torch.manual_seed(0)
    vision = dict(config["vision_cfg"])
    if "timm_model_name" not in vision:
        vision["layers"] = 3
    config = {
        **config,
        "vision_cfg": vision,
        "text_cfg": {**config["text_cfg"], "layers": 1, "vocab_size": 49408},
    }
    config.pop("custom_text", None)
    config["text_cfg"].pop("hf_tokenizer_name", None)
    config["text_cfg"].pop("tokenizer_kwargs", None)
    if "timm_model_name" in vision:
        from open_clip.model import CustomTextCLIP

        model = CustomTextCLIP(**config)
        model.visual.trunk.blocks = model.visual.trunk.blocks[:3]
    else:
        model = open_clip.model.CLIP(**config)
    return DualEncoder(model, NoTokenizer(), name=name, **options)


@pytest.fixture(scope="module", params=["ViT-B-32", "ViT-B-16", "ViT-B-16-SigLIP"])
def real(request) -> DualEncoder:
    return real_architecture(request.param)


def photos(n: int, height: int, width: int) -> list[Image.Image]:
    return [Image.fromarray(RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)) for _ in range(n)]


def hooked_class_patches(encoder: DualEncoder, pixels: torch.Tensor) -> torch.Tensor:
    """The value path written with hooks: what enters the last block's attention, taken apart."""
    visual, caught = encoder.model.visual, {}
    block = visual.transformer.resblocks[-1]
    hook = block.attn.register_forward_hook(
        lambda module, args, kwargs, out: caught.update(x=args[0] if args else kwargs["query"]),
        with_kwargs=True,
    )
    with torch.no_grad():
        visual(pixels)
    hook.remove()
    width = caught["x"].shape[-1]
    w, b = block.attn.in_proj_weight, block.attn.in_proj_bias
    values = caught["x"] @ w[2 * width :].T + b[2 * width :]
    out = values @ block.attn.out_proj.weight.T + block.attn.out_proj.bias
    normed = F.layer_norm(
        out[:, 1:], (width,), visual.ln_post.weight, visual.ln_post.bias, visual.ln_post.eps
    )
    return F.normalize(normed @ visual.proj, dim=-1)


def hooked_map_patches(encoder: DualEncoder, pixels: torch.Tensor) -> torch.Tensor:
    """The pooling head on one token: with a single key, attention returns its value."""
    trunk, caught = encoder.model.visual.trunk, {}
    hook = trunk.attn_pool.register_forward_pre_hook(lambda module, args: caught.update(x=args[0]))
    with torch.no_grad():
        encoder.model.visual(pixels)
    hook.remove()
    pool = trunk.attn_pool
    width = caught["x"].shape[-1]
    values = caught["x"] @ pool.kv.weight[width:].T + pool.kv.bias[width:]
    out = pool.proj(values)
    return F.normalize(out + pool.mlp(pool.norm(out)), dim=-1)


def test_pooled_equals_encode_image(real):
    images = photos(2, 224, 224)
    features = real.encode_images(images)
    preprocess = open_clip.transform.image_transform_v2(real._preprocess, is_train=False)
    pixels = torch.stack([preprocess(image) for image in images])
    with torch.no_grad():
        expected = real.model.encode_image(pixels, normalize=True)
    torch.testing.assert_close(features.pooled, expected, atol=2e-6, rtol=0)


def test_patches_equal_hooks(real):
    images = photos(2, 224, 224)
    features = real.encode_images(images)
    pixels = real.to_pixels(images, (224, 224))
    hooked = hooked_map_patches if "SigLIP" in real.name else hooked_class_patches
    torch.testing.assert_close(features.patches, hooked(real, pixels), atol=2e-6, rtol=0)
    assert features.grid == (224 // real._tower.patch[0],) * 2
    torch.testing.assert_close(features.patches.norm(dim=-1), torch.ones(features.patches.shape[:2]))


def test_other_sizes_leave_the_model_alone(real):
    """Wide, tall and large pictures: aspect kept, position embeddings interpolated on a copy."""
    before = {name: value.clone() for name, value in real.model.state_dict().items()}
    square = photos(1, 224, 224)
    first = real.encode_images(square)
    patch = real._tower.patch[0]
    for height, width in [(224, 448), (300, 200), (100, 100)]:
        features = real.encode_images(photos(1, height, width))
        rows, columns = features.grid
        assert min(rows, columns) == 224 // patch
        assert abs(columns / rows - width / height) < 1 / min(rows, columns)
        assert features.patches.shape[1] == rows * columns
    after = real.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    again = real.encode_images(square)
    assert torch.equal(first.patches, again.patches) and torch.equal(first.pooled, again.pooled)


def test_batch_size_does_not_matter(real):
    images = photos(5, 224, 224)
    whole = real.encode_images(images)
    real.batch_size = 2
    parts = real.encode_images(images)
    real.batch_size = 64
    torch.testing.assert_close(whole.patches, parts.patches, atol=2e-6, rtol=0)
    torch.testing.assert_close(whole.pooled, parts.pooled, atol=2e-6, rtol=0)


def test_interpolated_positions_match_open_clips_resize(make_random_pocket):
    """A model resized by open_clip itself gives the features we compute on the fly."""
    small, large = make_random_pocket(0), make_random_pocket(0, size=(96, 96))
    state = {k: v.clone() for k, v in small.model.state_dict().items()}
    open_clip.model.resize_pos_embed(state, large.model, interpolation="bicubic", antialias=False)
    large.model.load_state_dict(state)
    images = photos(2, 96, 96)
    ours = DualEncoder(small.model, small.tokenizer, resolution=96, pooled_view="whole").encode_images(images)
    theirs = large.encode_images(images)
    torch.testing.assert_close(ours.patches, theirs.patches, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.pooled, theirs.pooled, atol=1e-5, rtol=0)


def test_model_built_for_a_rectangle(make_random_pocket):
    encoder = make_random_pocket(0, size=(32, 64))
    images = photos(2, 32, 64)
    features = encoder.encode_images(images)
    assert features.grid == (4, 8)
    pixels = encoder.to_pixels(images, (32, 64))
    with torch.no_grad():
        expected = encoder.model.encode_image(pixels, normalize=True)
    torch.testing.assert_close(features.pooled, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(features.patches, hooked_class_patches(encoder, pixels), atol=1e-6, rtol=0)
    assert encoder.encode_images(photos(1, 64, 64)).grid == (4, 4)


@pytest.mark.parametrize("pool", ["tok", "avg"])
def test_plain_tokens_of_an_averaging_tower_average_to_the_pooled_feature(make_random_pocket, pool):
    encoder = make_random_pocket(1, pool_type=pool)
    encoder.patch_features = "tokens"
    pixels = encoder.to_pixels(photos(2, 64, 64), (64, 64))
    with torch.no_grad():
        pooled, patches = encoder._tower.forward(pixels, "tokens")
        torch.testing.assert_close(pooled, encoder.model.encode_image(pixels), atol=1e-5, rtol=0)
    agrees = torch.allclose(patches.mean(1), pooled, atol=1e-5)
    assert agrees == (pool == "avg")


@pytest.mark.parametrize("kind", [k for k in PATCH_FEATURES if k != "value"])
def test_value_path_variants_equal_plain_derivations(make_random_pocket, kind):
    encoder = make_random_pocket(2)
    visual = encoder.model.visual
    pixels = encoder.to_pixels(photos(2, 64, 64), (64, 64))
    with torch.no_grad():
        _, ours = encoder._tower.forward(pixels, kind)
        x = visual._embeds(pixels)
        for block in visual.transformer.resblocks[:-1]:
            x = block(x)
        block = visual.transformer.resblocks[-1]
        if kind == "tokens":
            out = block(x)
        else:
            y, width, heads = block.ln_1(x), x.shape[-1], block.attn.num_heads
            q, k, v = (
                y @ block.attn.in_proj_weight[i * width : (i + 1) * width].T
                + block.attn.in_proj_bias[i * width : (i + 1) * width]
                for i in range(3)
            )
            size, mixed = width // heads, torch.zeros_like(v)
            for b in range(len(x)):
                for h in range(heads):
                    s = slice(h * size, (h + 1) * size)
                    qq, kk = q[b, :, s] @ q[b, :, s].T / size**0.5, k[b, :, s] @ k[b, :, s].T / size**0.5
                    if kind == "maskclip":
                        a = torch.eye(len(qq))
                    elif kind == "clearclip":
                        a = qq.softmax(-1)
                    elif kind == "sclip":
                        a = qq.softmax(-1) + kk.softmax(-1)
                    else:
                        for i in range(64):
                            for j in range(64):
                                far = (i // 8 - j // 8) ** 2 + (i % 8 - j % 8) ** 2
                                kk[i + 1, j + 1] += np.exp(-far / 50)
                        a = kk.softmax(-1)
                    mixed[b, :, s] = a @ v[b, :, s]
            out = mixed @ block.attn.out_proj.weight.T + block.attn.out_proj.bias
            if kind in ("maskclip", "sclip"):
                out = x + out
                out = out + block.mlp(block.ln_2(out))
        expected = visual.ln_post(out[:, 1:]) @ visual.proj
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


def test_own_view_and_whole_view(make_random_pocket):
    """CLIP's own preprocessing crops the centre of a wide picture; the patches see all of it."""
    own = make_random_pocket(0)
    whole = DualEncoder(own.model, own.tokenizer, pooled_view="whole")
    image = photos(1, 64, 128)
    preprocess = open_clip.transform.image_transform_v2(own._preprocess, is_train=False)
    with torch.no_grad():
        cropped = own.model.encode_image(preprocess(image[0])[None], normalize=True)
    a, b = own.encode_images(image), whole.encode_images(image)
    torch.testing.assert_close(a.pooled, cropped, atol=1e-6, rtol=0)
    assert not torch.allclose(b.pooled, cropped, atol=1e-3)
    assert torch.equal(a.patches, b.patches) and a.grid == (8, 16)


def test_mixed_grids_are_grouped_not_guessed(make_random_pocket):
    encoder = make_random_pocket(0)
    images = [*photos(1, 64, 64), *photos(1, 64, 128), *photos(1, 128, 128)]
    with pytest.raises(ValueError, match="group_by_grid"):
        encoder.encode_images(images)
    assert encoder.group_by_grid(images) == [[0, 2], [1]]


def test_images_of_every_mode():
    base = Image.fromarray(RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8))
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F"):
        image = base.convert("L").convert(mode) if mode in ("I", "LA") else base.convert(mode)
        if mode == "F":
            image = Image.fromarray(np.asarray(base.convert("L"), dtype=np.float32) / 255)
        rgb = to_rgb(image)
        assert rgb.mode == "RGB" and rgb.size == (30, 20), mode
    clear = Image.new("RGBA", (2, 2), (0, 0, 0, 0))
    assert to_rgb(clear).getpixel((0, 0)) == (255, 255, 255)  # white, not black
    deep = Image.fromarray(np.full((2, 2), 65535, dtype=np.uint16))
    assert to_rgb(deep).getpixel((0, 0)) == (255, 255, 255)
    array = np.asarray(base)
    same = np.asarray(to_rgb(array.astype(np.float64) / 255))
    assert np.array_equal(same, array)
    assert np.array_equal(np.asarray(to_rgb(torch.from_numpy(array.copy()))), array)


def test_orientation_tags_are_obeyed_everywhere(tmp_path):
    image = Image.fromarray(RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    image.save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as opened:
        one, two = to_rgb(opened), to_rgb(tmp_path / "turned.png")
    assert one.size == (20, 30)
    assert np.array_equal(np.asarray(one), np.asarray(two))
    assert np.array_equal(np.asarray(one), np.rot90(np.asarray(image), -1))


def test_colour_key_transparency_is_white():
    image = Image.new("RGB", (2, 2), (0, 0, 0))
    image.info["transparency"] = (0, 0, 0)
    assert to_rgb(image).getpixel((0, 0)) == (255, 255, 255)


def test_palette_with_transparency(tmp_path):
    image = Image.new("P", (2, 2), 0)
    image.putpalette([10, 20, 30] + [0] * 765)
    image.info["transparency"] = 0
    assert to_rgb(image).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full((4, 4, 3), np.nan), "NaN"),
        (np.full((4, 4, 3), 2.0), r"\[0, 1\]"),
        (np.full((4, 4, 3), 300), "0..255"),
        (np.zeros((3, 8, 5)), "channels last"),
        (np.zeros((0, 4, 3)), "none of"),
        ("nowhere.png", "No image at"),
        (7, "not <class 'int'>"),
    ],
)
def test_pictures_refused(bad, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        to_rgb(bad)


def test_file_that_is_no_image(tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(b"not a picture")
    with pytest.raises(ValueError, match="broken.png does not open"):
        to_rgb(path)


def test_empty_and_nan_are_refused(make_random_pocket):
    encoder = make_random_pocket(0)
    with pytest.raises(ValueError, match="No images"):
        encoder.encode_images([])
    for one in (np.zeros((64, 64, 3), np.uint8), "dog.png", photos(1, 8, 8)[0]):
        with pytest.raises(ValueError, match=r"write \[image\]"):
            encoder.encode_images(one)
    with pytest.raises(ValueError, match=r"would give 8 x 3200 patches"):
        encoder.encode_images([np.zeros((10, 4000, 3), np.uint8)])
    with pytest.raises(ValueError, match=r"no word in '...'"):
        encoder.encode_texts(["..."])
    with pytest.raises(ValueError, match="No texts"):
        encoder.encode_texts([])
    with pytest.raises(ValueError, match=r"write \['dog'\]"):
        encoder.encode_texts("dog")
    with pytest.raises(ValueError, match="non-empty"):
        encoder.encode_texts(["dog", " "])
    with torch.no_grad():
        encoder.model.visual.proj[0, 0] = torch.nan
        encoder.model.text_projection[0, 0] = torch.nan
    with pytest.raises(ValueError, match="weights damaged"):
        encoder.encode_images(photos(1, 64, 64))
    with pytest.raises(ValueError, match="weights damaged"):
        encoder.encode_texts(["dog"])


def test_unknown_word_is_named(pocket):
    with pytest.raises(ValueError, match=r"Unknown word 'dgo'.*Near words: dog"):
        pocket.encode_texts(["a dgo and a cup"])


def test_long_text_is_refused_not_cut(pocket):
    with pytest.raises(ValueError, match="does not fit the context of 18"):
        pocket.encode_texts([" ".join(["dog"] * 17)])
    pocket.encode_texts([" ".join(["dog"] * 16)])


def test_long_text_is_refused_by_open_clips_tokenizer():
    encoder = real_architecture("ViT-B-32")
    encoder.tokenizer = open_clip.get_tokenizer("ViT-B-32")
    with pytest.raises(ValueError, match="does not fit the context of 77"):
        encoder.encode_texts(["dog " * 76])
    assert encoder.encode_texts(["dog " * 75]).shape == (1, 512)


def test_word_tokenizer_layout():
    tokenizer = WordTokenizer(["a", "dog"], 5)
    assert tokenizer(["A dog."]).tolist() == [[1, 2, 3, 4, 0]]
    assert tokenizer("dog").tolist() == [[1, 3, 4, 0, 0]]


def test_text_features_do_not_depend_on_company(pocket):
    together = pocket.encode_texts(["dog", "a cup above a key", "dog"])
    alone = pocket.encode_texts(["dog"])
    torch.testing.assert_close(together[:1], alone, atol=1e-6, rtol=0)
    assert torch.equal(together[0], together[2])


# loading


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("poket", {}, "Near names: pocket"),
        ("", {}, "not ''"),
        ("ViT-B-99/openai", {}, "Near names: .*ViT-B-"),
        ("ViT-B-32/laion9b", {}, "no weights called 'laion9b'.*laion2b_s34b_b79k"),
        ("ViT-B-32/openai", {}, "Activation mismatch.*Use 'ViT-B-32-quickgelu'"),
        ("ViT-B-32-quickgelu/laion2b_s34b_b79k", {}, "has no weights called"),
        ("local-dir:/nowhere", {}, "No folder /nowhere"),
        ("nowhere.pt", {}, "No checkpoint at nowhere.pt"),
        ("pocket", {"patch_features": "keys"}, "Unknown patch features 'keys'"),
        ("pocket", {"pooled_view": "mine"}, "pooled_view is 'own' or 'whole'"),
        ("pocket", {"resolution": 3}, "below one patch"),
    ],
)
def test_names_refused(name, options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_encoder(name, **options)


def test_checkpoint_file_needs_architecture_and_activation(tmp_path):
    path = tmp_path / "weights.pt"
    path.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="Say which architecture"):
        load_encoder(str(path))
    with pytest.raises(ValueError, match="Say which activation"):
        load_encoder(str(path), architecture="ViT-B-32")
    with pytest.raises(ValueError, match="Activation mismatch.*Use 'ViT-B-32-quickgelu'"):
        load_encoder(str(path), architecture="ViT-B-32", activation="quickgelu")
    with pytest.raises(ValueError, match="do not load"):
        load_encoder(str(path), architecture="ViT-B-32", activation="gelu")


def test_checkpoint_file_round_trip(tmp_path):
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-S-32")
    path = tmp_path / "weights.pt"
    torch.save(model.state_dict(), path)
    encoder = load_encoder(str(path), architecture="ViT-S-32", activation="gelu")
    image = photos(1, 224, 224)
    with torch.no_grad():
        expected = model.eval().encode_image(encoder.to_pixels(image, (224, 224)), normalize=True)
    torch.testing.assert_close(encoder.encode_images(image).pooled, expected, atol=2e-6, rtol=0)
    assert encoder.encode_texts(["a dog"]).shape == (1, 384)


def test_unsupported_towers_say_what_is_supported():
    torch.manual_seed(0)
    for config in (
        {"layers": [1, 1, 1, 1], "width": 16, "image_size": 64},  # a ResNet
        {"timm_model_name": "resnet18", "image_size": 64, "timm_pool": "avg", "timm_proj": "linear"},
        {"image_size": 64, "patch_size": 16, "width": 64, "layers": 2, "head_width": 16, "attentional_pool": True},
    ):  # fmt: skip
        model = open_clip.model.CLIP(
            embed_dim=64, vision_cfg=config, text_cfg={"context_length": 8, "vocab_size": 99, "width": 32, "heads": 2, "layers": 1}
        )  # fmt: skip
        with pytest.raises(ValueError, match="Supported image towers"):
            DualEncoder(model, NoTokenizer())


@pytest.fixture
def pocket_copy(tmp_path):
    with resources.as_file(resources.files("readout_utils").joinpath("data", "pocket")) as folder:
        return shutil.copytree(folder, tmp_path / "copy")


def test_local_dir_equals_pocket(pocket, pocket_copy):
    copy = load_encoder(f"local-dir:{pocket_copy}")
    images = draw_scenes(random_scenes(4, 0))
    assert torch.equal(copy.encode_images(images).patches, pocket.encode_images(images).patches)


def test_damaged_weights_are_named(pocket_copy):
    weights = pocket_copy / "open_clip_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1  # one bit: the file still opens
    weights.write_bytes(data)
    with pytest.raises(ValueError, match=r"open_clip_model.safetensors is damaged.*Install"):
        load_encoder(f"local-dir:{pocket_copy}")
    (pocket_copy / "SHA256").unlink()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="do not load"):
        load_encoder(f"local-dir:{pocket_copy}")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="has no weights"):
        load_encoder(f"local-dir:{pocket_copy}")
    (pocket_copy / "open_clip_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no open_clip_config.json"):
        load_encoder(f"local-dir:{pocket_copy}")


def test_pocket_is_small_and_quick(pocket):
    files = resources.files("readout_utils").joinpath("data", "pocket")
    assert sum(len(f.read_bytes()) for f in files.iterdir()) < 8_000_000
