"""The backbones against the published implementation, and DropBlock's behaviour."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fslstm_plugin.backbones import Conv4, ResNet12, drop_block
from fslstm_plugin.backbones.convolution import Convolution
from fslstm_plugin.backbones.dropout import scale_dropout
from fslstm_plugin.backbones.folding import fold_batch_norm
from fslstm_plugin.errors import UsageError

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "backbones.npz")


def fill_deterministically(model: nn.Module) -> None:
    """The formulas of the reference numbers: sines of the flat index."""
    seen: Counter[torch.Size] = Counter()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight
            i = torch.arange(weight.numel(), dtype=torch.float64)
            fan = weight[0].numel()
            values = torch.sin(0.7 * i + seen[weight.shape] + 1.3 * (i % 7)) * (2 / fan) ** 0.5 * 1.2
            seen[weight.shape] += 1
            weight.data.copy_(values.view_as(weight))
        elif isinstance(module, nn.BatchNorm2d):
            i = torch.arange(module.num_features, dtype=torch.float64)
            module.weight.data.copy_(1 + 0.2 * torch.sin(i))
            module.bias.data.copy_(0.1 * torch.cos(i))
            module.running_mean.copy_(0.05 * torch.sin(2 * i))
            module.running_var.copy_(1 + 0.3 * torch.cos(3 * i))


@pytest.mark.parametrize("size", [32, 84])
@pytest.mark.parametrize(("name", "backbone_class"), [("conv4", Conv4), ("resnet12", ResNet12)])
def test_forward_equals_published(name, backbone_class, size):
    model = backbone_class(image_size=size).eval()
    fill_deterministically(model)
    i = torch.arange(2 * 3 * size * size, dtype=torch.float64)
    images = torch.sin(0.013 * i + torch.cos(0.37 * i)).view(2, 3, size, size).float()
    with torch.no_grad():
        features = model(images).numpy()
    expected = GOLDEN[f"{name}_{size}"]
    assert features.shape == expected.shape == (2, model.out_features)
    assert np.abs(features - expected).max() <= 1e-4 * np.abs(expected).max()


def test_drop_block_zeroes_whole_squares_and_keeps_the_mean():
    torch.manual_seed(0)
    dropped = drop_block(torch.ones(64, 32, 10, 10), rate=0.1, block_size=3)
    zero = dropped == 0
    assert 0.07 < zero.float().mean() < 0.11
    assert dropped.mean() == pytest.approx(1, abs=1e-5)
    # Every zero belongs to a 3x3 square of zeros: opening the mask with the square leaves it unchanged.
    mask = zero.float()
    eroded = -nn.functional.max_pool2d(-mask, 3, stride=1)
    opened = nn.functional.max_pool2d(nn.functional.pad(eroded, [2] * 4), 3, stride=1)
    assert torch.equal(opened, mask)


def test_drop_block_clamps_to_a_map_smaller_than_the_block():
    torch.manual_seed(0)
    dropped = drop_block(torch.ones(512, 1, 2, 2), rate=0.5, block_size=5)
    whole = (dropped == 0).flatten(1)
    assert bool((whole.all(1) | ~whole.any(1)).all())
    assert 0.4 < whole[:, 0].float().mean() < 0.6


def test_drop_block_schedule_counts_training_passes_only_and_is_saved():
    model = ResNet12(image_size=32)
    images = torch.randn(2, 3, 32, 32)
    model.train()(images)
    model.eval()(images)
    state = model.state_dict()
    counts = [value.item() for key, value in state.items() if key.endswith("passes")]
    assert counts == [1, 1]


@pytest.mark.parametrize(("backbone_class", "published"), [(Conv4, [0.4, 0.5]), (ResNet12, [0.1] * 4)])
def test_dropout_is_scaled_by_a_factor_which_no_state_keeps(backbone_class, published):
    model, images = backbone_class(image_size=32).train(), torch.randn(2, 3, 16, 16)
    rates = [layer for layer in model.modules() if hasattr(layer, "p")]
    assert [layer.p for layer in rates] == published
    names = list(model.state_dict())
    scale_dropout(model, 0.3)
    assert [layer.p for layer in rates] == pytest.approx([0.3 * rate for rate in published])
    scale_dropout(model, 0)
    first, second = (model(images) for _ in range(2))
    assert first.equal(second)  # nothing is dropped
    assert list(model.state_dict()) == names
    other = backbone_class(image_size=32)
    other.load_state_dict(model.state_dict())
    assert [layer.p for layer in other.modules() if hasattr(layer, "p")] == published


@pytest.mark.parametrize("backbone_class", [Conv4, ResNet12])
def test_too_small_images_are_refused(backbone_class):
    with pytest.raises(UsageError, match="at least 16"):
        backbone_class(image_size=8)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("call", ["forward", "feature_map", "stages", "wide_map"])
def test_images_of_another_type_are_refused(call, dtype):
    with pytest.raises(UsageError, match=f"must be normalised and floating point, but got {dtype}: divide pixels"):
        getattr(Conv4(image_size=16), call)(torch.zeros(2, 3, 16, 16, dtype=dtype))


@pytest.mark.parametrize("backbone_class", [Conv4, ResNet12])
def test_folding_batch_norm_changes_nothing_but_the_number_of_layers(backbone_class):
    model = backbone_class(image_size=32)
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            for values in (layer.weight.data, layer.running_var):
                values.uniform_(0.5, 2)
            for values in (layer.bias.data, layer.running_mean):
                values.uniform_(-1, 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded = fold_batch_norm(model)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in folded.modules())
    images = torch.randn(4, 3, 32, 32)
    expected = model.eval()(images)
    torch.testing.assert_close(folded(images), expected, rtol=0, atol=1e-5 * expected.abs().max().item())
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_folding_leaves_alone_what_it_cannot_know():
    """Neighbours that are not in a Sequential, the batch's own statistics, and whatever only resembles the two."""

    class Backwards(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)

        def forward(self, images):
            return self.conv(self.norm(images) ** 2)

    class Activated(torch.nn.BatchNorm2d):
        def forward(self, images):
            return super().forward(images).relu()

    class Reversed(torch.nn.Sequential):
        def forward(self, images):
            return self[0](self[1](images) ** 2)

    convolution, norm = torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)
    hooked = torch.nn.BatchNorm2d(3)
    hooked.register_forward_hook(lambda module, given, output: output**2)
    modules = (
        Backwards(),
        torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(3, track_running_stats=False)),
        torch.nn.Sequential(convolution, Activated(3)),
        torch.nn.Sequential(convolution, hooked),
        Reversed(convolution, norm),
        torch.nn.Sequential(torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(3, 3, 1)), norm),
    )
    images = torch.randn(4, 3, 5, 5)
    for module in modules:
        torch.testing.assert_close(fold_batch_norm(module)(images), module.eval()(images))


@pytest.mark.parametrize("kind", [Conv4, ResNet12])
def test_earlier_maps_are_those_that_the_last_one_is_made_of(kind) -> None:
    backbone = kind(image_size=32).eval()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    maps = backbone.stages(images)
    assert [tuple(each.shape) for each in maps] == [
        (2, width, 16 >> place, 16 >> place) for place, width in enumerate(kind.widths)
    ]
    assert torch.equal(maps[-1], backbone.feature_map(images))
    assert torch.equal(backbone.blocks[-1](maps[-2]), maps[-1])


@pytest.mark.parametrize("kind", [Conv4, ResNet12])
def test_the_wide_map_leaves_out_the_last_two_poolings(kind) -> None:
    backbone = kind(image_size=32).eval()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    wide = backbone.wide_map(images)
    assert wide.shape == (2, kind.widths[-1], 8, 8)
    third = backbone.unpooled(backbone.blocks[2], backbone.stages(images)[1])
    assert torch.allclose(torch.nn.functional.max_pool2d(third, 2), backbone.stages(images)[2], atol=1e-5)


@pytest.mark.parametrize("side", [(1, 1), (2, 2), (3, 4), (4, 4), (5, 2)])
def test_the_convolution_is_pytorchs_own_with_its_gradients(side) -> None:
    ours = Convolution(3, 4).double()
    plain = nn.Conv2d(3, 4, 3, padding=1, bias=False).double()
    plain.load_state_dict(ours.state_dict())
    maps = torch.randn(5, 3, *side, dtype=torch.float64, requires_grad=True)
    mine, theirs = ours(maps), plain(maps)
    torch.testing.assert_close(mine, theirs)
    direction = torch.randn_like(mine)
    torch.testing.assert_close(
        torch.autograd.grad(mine, (maps, ours.weight), direction),
        torch.autograd.grad(theirs, (maps, plain.weight), direction),
    )
    with torch.no_grad():
        assert torch.equal(ours(maps), plain(maps))


def test_the_convolution_has_second_derivatives_and_goes_through_vmap() -> None:
    ours = Convolution(2, 2).double()
    maps = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(ours, maps)
    kernels = torch.randn(3, 2, 2, 3, 3, dtype=torch.float64)
    at_once = torch.func.vmap(lambda kernel, each: torch.func.functional_call(ours, {"weight": kernel}, each[None]))
    alone = [nn.functional.conv2d(each[None], kernel, padding=1) for kernel, each in zip(kernels, maps, strict=True)]
    torch.testing.assert_close(at_once(kernels, maps), torch.stack(alone))


def test_a_folded_convolution_keeps_its_bias_where_gradients_are_wanted() -> None:
    block = nn.Sequential(Convolution(3, 4), nn.BatchNorm2d(4)).eval()
    nn.init.uniform_(block[1].bias)
    maps = torch.randn(2, 3, 2, 2)
    torch.testing.assert_close(fold_batch_norm(block)(maps), block(maps))
