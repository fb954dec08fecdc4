"""Pyramids of convolution and pooling: their sizes, and digits in other places than they were learned in."""

from pathlib import Path

import pytest
import torch
from pegboard_cnn.modules import Cnn
from points import run

DIGITS = {"name": "placed_digits", "scale": 2, "shift": 2, "noise": 0.1, "samples": 300, "batch_size": 20}


def learned(root, model, size):
    """The accuracy on the test and the number of parameters."""
    done = run(
        {
            "data": {**DIGITS, "size": size},
            "model": model,
            "optimizer": {"name": "adam", "lr": 0.005},
            "trainer": {"epochs": 10, "eval_every": 10, "device": "cpu"},
            "plugins": {"local": [str(Path(__file__).with_name("placed_plugin.py"))]},
        },
        root,
    )
    return done.figures["test/accuracy"], sum(p.numel() for p in done.model.parameters())


def sizes(model, size):
    """(channels, places) of what every convolution and every stage gives."""
    found, x = [(1, size)], torch.zeros(1, 1, size, size)
    for stage in model.body:
        made = stage.conv(x)
        x = stage(x)
        found += [(made.shape[1], made.shape[2]), (x.shape[1], x.shape[2])]
    return found


def narrowing(found):
    channels, places = zip(*found, strict=True)
    return list(channels) == sorted(channels) and list(places) == sorted(places, reverse=True)


@pytest.mark.catalogue("T123", "S3-103")
def test_a_pyramid_learns_digits_wherever_they_are_and_a_dense_net_of_its_size_does_not(tmp_path):
    fields = {"channels": [6, 16], "kernel": 5, "padding": "none", "hidden": []}
    found = sizes(Cnn((1, 28, 28), 10, **fields), 28)
    assert [n for _, n in found] == [28, 24, 12, 8, 4] and narrowing(found)
    # Four seeds: 1 to 0.99 against 0.71 to 0.66.
    seen, count = learned(tmp_path, {"name": "cnn", **fields}, 28)
    dense, as_many = learned(tmp_path, {"name": "mlp", "hidden": [6]}, 28)
    assert abs(as_many - count) < 0.1 * count
    assert seen > 0.95 and seen > dense + 0.1


@pytest.mark.catalogue("S4-074")
def test_three_stages_halve_three_times_and_need_fewer_weights_than_a_dense_net(tmp_path):
    fields = {"channels": [6, 12, 16], "kernel": 3, "hidden": []}
    found = sizes(Cnn((1, 32, 32), 10, **fields), 32)
    assert [n for _, n in found[::2]] == [32, 16, 8, 4] and narrowing(found)
    seen, count = learned(tmp_path, {"name": "cnn", **fields}, 32)
    dense, more = learned(tmp_path, {"name": "mlp", "hidden": [64]}, 32)
    assert more > 10 * count
    assert seen >= 0.95 > dense  # a dense net as good would be larger still
