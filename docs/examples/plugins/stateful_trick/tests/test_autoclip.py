"""AutoClip against the algorithm as its authors wrote it, and where its bound is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pegboard_example_autoclip import AutoClip
from pegboard_example_autoclip.functional import autoclip, no_norms
from pegboard_example_autoclip.trick import AutoClipTrick


def gradients(steps: int) -> list[list[Tensor]]:
    """Gradients of two parameters whose sizes vary by orders of magnitude."""
    random = torch.Generator().manual_seed(3)
    sizes = torch.randn(steps, generator=random).exp()
    shapes = ((4, 3), (5,))
    return [[size * torch.randn(shape, generator=random) for shape in shapes] for size in sizes]


def clipped_as_published(steps: list[list[Tensor]], percentile: float, window: int) -> list[list[Tensor]]:
    """The authors' procedure: a list of norms, numpy's percentile, torch's clipping."""
    params = [nn.Parameter(torch.zeros_like(g)) for g in steps[0]]
    history: list[float] = []
    results = []
    for grads in steps:
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()
        history.append(math.sqrt(sum(float(g.double().square().sum()) for g in grads)))
        nn.utils.clip_grad_norm_(params, float(np.percentile(history[-window:], percentile)))
        results.append([p.grad for p in params])
    return results


@pytest.mark.parametrize(
    ("percentile", "window"), [(10.0, 100), (37.5, 100), (0.0, 100), (50.0, 7), (90.0, 1)]
)
def test_gradients_are_those_of_the_published_procedure(percentile: float, window: int) -> None:
    norms = no_norms(window)
    expected = clipped_as_published(gradients(40), percentile, window)
    clipped = 0
    for grads, theirs in zip(gradients(40), expected, strict=True):
        ours = autoclip(grads, norms, percentile)
        clipped += not torch.equal(ours[0], grads[0])
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)
    assert clipped > 10 or window == 1  # a memory of one norm never clips


def test_bound_is_the_closed_form_where_norms_grow_evenly() -> None:
    norms = no_norms(50)
    for step in range(1, 31):  # norms 1, 2, ..., step, of which the quantile is on a line
        grads = [torch.tensor([0.6 * step]), torch.tensor([[0.8 * step]])]
        clipped = autoclip(grads, norms, 25.0)
        assert math.isclose(norms[-1].item(), step, rel_tol=1e-6)
        length = math.hypot(*(g.item() for g in clipped))
        assert math.isclose(length, 1 + 0.25 * (step - 1), rel_tol=1e-5)


def test_hundredth_percentile_changes_no_bit() -> None:
    norms = no_norms(10)
    for grads in gradients(30):
        clipped = autoclip(grads, norms, 100.0)
        assert all(torch.equal(a, b) for a, b in zip(clipped, grads, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_update_that_is_not_finite_leaves_the_bound_alone_and_is_left_to_be_seen(bad: float) -> None:
    norms, kept = no_norms(10), no_norms(10)
    autoclip([torch.ones(4)], norms, 10.0)
    autoclip([torch.ones(4)], kept, 10.0)
    (seen,) = autoclip([torch.tensor([bad, 1.0])], norms, 10.0)
    assert not seen.isfinite().all()
    results = []
    for memory in (norms, kept):
        results += autoclip([torch.full((4,), 3.0)], memory, 10.0)
    assert torch.equal(*results)


def test_no_gradient_at_all_stays_none() -> None:
    norms = no_norms(10)
    for _ in range(2):
        (clipped,) = autoclip([torch.zeros(3)], norms, 10.0)
        assert torch.equal(clipped, torch.zeros(3))


def test_state_decides_what_is_clipped_and_survives_saving() -> None:
    def clipped(trick: AutoClipTrick) -> Tensor:
        params = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
        one, two = trick.edit_grads([torch.full((2,), 5.0), None], params)  # the second one was not used
        assert one is not None and two is None
        return one

    config = AutoClip(window=8)
    one, two, fresh = (AutoClipTrick(config, "cpu") for _ in range(3))
    for grads in gradients(5):
        autoclip(grads, one.norms, config.percentile)
    memory = two.norms
    two.load_state_dict({key: torch.as_tensor(value).clone() for key, value in one.state_dict().items()})
    assert two.norms is memory
    assert torch.equal(clipped(one), clipped(two))
    assert not torch.equal(clipped(two), clipped(fresh))


def test_one_graph_computes_the_same() -> None:
    norms, traced = no_norms(10), no_norms(10)
    graph = torch.compile(autoclip, fullgraph=True, backend="aot_eager")
    for grads in gradients(3):
        torch.testing.assert_close(graph(grads, traced, 10.0), autoclip(grads, norms, 10.0))
    torch.testing.assert_close(traced, norms, equal_nan=True)
