"""Normalisation by training statistics."""

from __future__ import annotations

import pytest
import torch
from pegboard_datasets import scaling


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes", "moons"])
def test_training_features_have_mean_zero_and_deviation_one(build, name):
    x = build(name, normalize="standard").train.inputs[0]
    torch.testing.assert_close(x.mean(0), torch.zeros(x.shape[1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(x.shape[1]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("how", ["standard", "minmax"])
def test_statistics_come_from_the_training_split_alone(build, how):
    raw, scaled = build("wine", normalize="none"), build("wine", normalize=how)
    train = raw.train.inputs[0].double()
    if how == "standard":
        shift, scale = train.mean(0), train.std(0, correction=0)
    else:
        shift, scale = train.amin(0), train.amax(0) - train.amin(0)
    for split in ("train", "val", "test"):
        expected = ((getattr(raw, split).inputs[0].double() - shift) / scale).float()
        torch.testing.assert_close(getattr(scaled, split).inputs[0], expected, rtol=1e-4, atol=1e-4)
    # Statistics of everyone would have put the test inside too.
    assert how == "standard" or scaled.test.inputs[0].max() > 1 or scaled.test.inputs[0].min() < 0


def test_minmax_brings_training_features_to_zero_and_one(build):
    x = build("iris", normalize="minmax").train.inputs[0]
    assert torch.equal(x.amin(0), torch.zeros(4))
    assert torch.equal(x.amax(0), torch.ones(4))


def test_pictures_are_scaled_by_channel_not_by_pixel(build):
    x = build("digits").train.inputs[0]
    assert abs(x.mean()) < 1e-5
    assert abs(x.std() - 1) < 1e-3
    assert x.std(0).min() < 0.01  # corners that are always empty stay so


@pytest.mark.catalogue("T002")
def test_plain_digits_are_within_zero_and_one_with_one_class_each(build):
    from sklearn.datasets import load_digits

    splits = build("digits", normalize="none")
    everyone, found = load_digits(), []
    for source in (splits.train, splits.val, splits.test):
        x = source.inputs[0]
        assert x.min() >= 0
        assert x.max() <= 1
        assert source.target.shape == (len(x),) and not source.target.is_floating_point()
        assert set(source.target.tolist()) == set(range(10))
        pixels = (16 * x).round().long().flatten(1).tolist()
        found += [(*row, label) for row, label in zip(pixels, source.target.tolist(), strict=True)]
    # Each sample of the whole is in one split, with the class that it has there.
    pairs = zip(everyone.data.astype(int).tolist(), everyone.target.tolist(), strict=True)
    assert sorted(found) == sorted((*row, label) for row, label in pairs)


@pytest.mark.parametrize("how", ["standard", "minmax"])
def test_a_constant_feature_becomes_zero(how):
    x = torch.tensor([[0.1, 1.0], [0.1, 2.0], [0.1, 4.0]])
    scaled = scaling.fit(x, how)(x)
    assert torch.equal(scaled[:, 0], torch.zeros(3))
    assert torch.isfinite(scaled).all()


def test_a_target_is_standardised_only_when_asked_and_comes_back(build):
    raw, scaled = build("diabetes"), build("diabetes", normalize_target=True)
    assert raw.train.target.mean() > 100
    assert abs(scaled.train.target.mean()) < 1e-5
    assert abs(scaled.train.target.std(correction=0) - 1) < 1e-5
    notes = scaled.notes["statistics"]["target"]
    back = scaled.test.target * notes["std"][0] + notes["mean"][0]
    torch.testing.assert_close(back, raw.test.target, rtol=1e-4, atol=1e-3)


def test_statistics_of_bytes_equal_those_of_floats():
    pixels = torch.randint(256, (50, 3, 6, 5), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    pixels[:, 2] = 7
    for how in ("standard", "minmax"):
        exact, plain = scaling.fit_pixels([pixels], how), scaling.fit(pixels / 255.0, how, (0, 2, 3))
        torch.testing.assert_close(exact.shift, plain.shift, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(exact.scale, plain.scale, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(
            scaling.scale_pixels(pixels, exact), plain(pixels / 255.0), rtol=1e-4, atol=1e-5
        )


def test_inverse_undoes_scaling():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)) * 5 + 2
    for how in ("standard", "minmax", "none"):
        scaler = scaling.fit(x, how)
        torch.testing.assert_close(scaler.inverse(scaler(x)), x)
