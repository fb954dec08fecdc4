"""Tricks in the places that networks already fill themselves."""

import torch
from pegboard.config.check import check
from pegboard.planning.plan import assemble, make_plan
from pegboard.testing.subjects import PARTNER, partner_config


def test_batch_normalisation_that_takes_the_place_of_a_networks_own_starts_with_its_scales():
    """Blocks that start as the identity still do."""
    given = partner_config(
        data={"name": PARTNER, "inputs": "image", "batch_size": 8},
        model={"name": "resnet", "depth": 14, "width": 4, "zero_init": True},
        objective={"name": "cross_entropy"},
        regularizers={"batchnorm": {"eps": 0.1}},
    )
    model = assemble(make_plan(check(given), read=False), "cpu").model
    x = torch.randn(2, 4, 8, 8).relu()
    assert not any(name.endswith(".norm.weight") for name, _ in model.named_parameters())
    torch.testing.assert_close(model.layer1(x), x)
    assert (model.layer1[0].norm1.batchnorm.weight == 1).all()
