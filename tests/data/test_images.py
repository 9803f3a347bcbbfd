"""Images made on the device: against torchvision, and the randomness of augmentation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torchvision.transforms import v2

from fslstm_plugin.backbones import Normalization
from fslstm_plugin.data.images import Augmentation, Changes, _crop, _jitter, changes, make_images, uniform_draws
from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation.features import cache_key

STORE = torch.randint(0, 256, (20, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
NORMALIZATION = Normalization((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
INDICES = torch.tensor([3, 3, 17, 0])


def test_normalisation_equals_torchvision():
    images = make_images(STORE, INDICES, NORMALIZATION)
    reference = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.25, 0.3])])
    torch.testing.assert_close(images, reference(STORE[INDICES].permute(0, 3, 1, 2)), atol=1e-5, rtol=1e-5)
    assert images.is_contiguous(memory_format=torch.channels_last)


def drawn(augmentation: Augmentation, keys: list[tuple[int, ...]], images: int) -> Changes:
    return changes(augmentation, uniform_draws(keys, images), 32, 32)


def test_crop_and_flip_equal_torchvision():
    tops, lefts, flips = [0, 8, 3, 5], [8, 1, 4, 0], [True, False, True, False]
    uniform = torch.rand(4, 6)
    uniform[:, 0], uniform[:, 1] = (torch.tensor(tops) + 0.5) / 9, (torch.tensor(lefts) + 0.5) / 9
    uniform[:, 2] = torch.where(torch.tensor(flips), 0.2, 0.8)
    images = _crop(STORE, INDICES, changes(Augmentation(4, jitter=0.0), uniform, 32, 32))
    for index in range(4):
        image = v2.functional.pad(STORE[INDICES[index]].permute(2, 0, 1), [4, 4, 4, 4])
        image = v2.functional.crop(image, tops[index], lefts[index], 32, 32)
        if flips[index]:
            image = v2.functional.hflip(image)
        assert torch.equal(images[index].permute(2, 0, 1), image.float())


def test_jitter_equals_torchvision():
    factors = torch.tensor([[1.3, 0.7, 1.2], [0.6, 1.4, 0.6], [1.0, 1.0, 1.0], [1.4, 1.4, 1.4]])
    images = _jitter(STORE[INDICES].float(), factors) / 255
    for index, (brightness, contrast, saturation) in enumerate(factors.tolist()):
        image = STORE[INDICES[index]].permute(2, 0, 1).float() / 255
        image = v2.functional.adjust_brightness(image, brightness)
        image = v2.functional.adjust_contrast(image, contrast)
        image = v2.functional.adjust_saturation(image, saturation)
        torch.testing.assert_close(images[index].permute(2, 0, 1), image, atol=2e-3, rtol=0)


def test_augmentation_follows_from_the_keys_alone():
    augmentation = Augmentation.published(32)
    both = make_images(STORE, INDICES.view(2, 2), NORMALIZATION, drawn(augmentation, [(1, 5), (1, 6)], 4))
    alone = make_images(STORE, INDICES[2:], NORMALIZATION, drawn(augmentation, [(1, 6)], 2))
    other = make_images(STORE, INDICES[2:], NORMALIZATION, drawn(augmentation, [(2, 6)], 2))
    assert torch.equal(both[1], alone)
    assert not torch.equal(alone, other)
    assert not torch.equal(both[0, 0], both[0, 1]), "two copies of one image get changes of their own"


def test_augmentation_covers_its_range():
    store = torch.full((1, 32, 32, 3), 128, dtype=torch.uint8)
    plain = Normalization((0, 0, 0), (1, 1, 1))
    moved = drawn(Augmentation(4, jitter=0.0), [(0,)], 2000)
    images = make_images(store, torch.zeros(2000, dtype=torch.long), plain, moved)
    inside = images[:, 0] > 0
    tops, lefts = (~inside).all(2), (~inside).all(1)
    shifts = tops[:, :4].sum(1) - tops[:, -4:].sum(1), lefts[:, :4].sum(1) - lefts[:, -4:].sum(1)
    for shift in shifts:
        counts = torch.bincount(shift + 4, minlength=9)
        assert counts.min() > 150
        assert counts.max() < 300


@pytest.mark.parametrize("keys", [[], [(0,), (1,), (2,)]])
def test_keys_must_share_the_images(keys):
    with pytest.raises(UsageError, match="shared equally"):
        uniform_draws(keys, 4)


@pytest.mark.parametrize("values", [{"padding": -1}, {"padding": 4, "jitter": 2}, {"padding": 4, "flip": -0.1}])
def test_impossible_augmentations_are_refused(values):
    with pytest.raises(UsageError, match="Padding must be"):
        Augmentation(**values)


def test_features_are_those_of_every_image(dots):
    dots, backbone = replace(dots, digest=""), torch.nn.Flatten()
    images = dots.images.clone()
    assert cache_key(backbone, replace(dots, images=images), "32") == cache_key(backbone, dots, "32")
    images[1, 0, 0, 0] ^= 1
    assert cache_key(backbone, replace(dots, images=images), "32") != cache_key(backbone, dots, "32")


def test_features_are_those_of_the_layers_in_any_precision(dots):
    convolution = torch.nn.Conv2d(3, 2, 3).bfloat16()
    leaky = [torch.nn.Sequential(convolution, torch.nn.LeakyReLU(slope)) for slope in (0.1, 0.1, 0.5)]
    one, same, other = (cache_key(backbone, dots, "32") for backbone in leaky)
    assert one == same != other
