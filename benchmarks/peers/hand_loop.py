"""Loops that a good engineer writes: data as resident tensors, one gather a batch, the fused kernel."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from clock import CLOCK
from torch import Tensor, nn
from torch.func import functional_call, grad
from workloads import Workload

from . import Trained, adam, updates


def begin(work: Workload, last: bool = True) -> tuple[nn.Module, Tensor, Tensor]:
    """A new network and its data; pictures lie with their channels last, in which convolutions are faster."""
    model, (xs, ys) = work.network(), work.data()
    if last and xs.dim() == 4:
        layout = torch.channels_last
        model, xs = model.to(memory_format=layout), xs.contiguous(memory_format=layout)  # type: ignore[call-overload]
    return model, xs, ys


def train(work: Workload, defaults: bool, folder: Path, compiled: bool = False, last: bool = True) -> Trained:
    """The best ordinary loop."""
    model, xs, ys = begin(work, last)
    layers: Any = model.layers  # without the tick
    optimizer = adam(work, model)
    # A function of ours, for torch.compile passes over a forward that is torch's own, as Sequential's is.
    forward = torch.compile(lambda x: layers(x)) if compiled else layers
    for _ in range(work.epochs):
        CLOCK.epoch()
        for index in torch.randperm(len(xs)).split(work.batch):
            optimizer.zero_grad()
            loss = work.criterion(forward(xs.index_select(0, index)), ys.index_select(0, index))
            loss.backward()
            optimizer.step()
    return Trained(model, updates(optimizer))


def train_compiled(work: Workload, defaults: bool, folder: Path) -> Trained:
    """The same with torch.compile on the model."""
    return train(work, defaults, folder, compiled=True)


def train_step(work: Workload, defaults: bool, folder: Path, unguarded: bool = False) -> Trained:
    """Forward, backward and Adam's update as one graph of torch.compile, called from C++."""
    torch.compiler.reset()  # of the graph of the turn before, whose tensors are others
    model, xs, ys = begin(work)
    layers: Any = model.layers
    params = {name: p.detach() for name, p in layers.named_parameters()}
    means, squares = ([torch.zeros_like(p) for p in params.values()] for _ in range(2))
    count = torch.zeros(())

    def loss_of(weights: dict[str, Tensor], index: Tensor) -> Tensor:
        output = functional_call(layers, weights, (xs.index_select(0, index),))
        return work.criterion(output, ys.index_select(0, index))

    def update(index: Tensor) -> None:
        grads = grad(loss_of)(params, index)
        count.add_(1)
        first, second = 1 - 0.9**count, (1 - 0.999**count).sqrt()
        for p, g, mean, square in zip(params.values(), grads.values(), means, squares, strict=True):
            mean.lerp_(g, 0.1)
            square.mul_(0.999).addcmul_(g, g, value=0.001)
            p.sub_(work.lr / first * mean / (square.sqrt() / second + 1e-8))

    step = torch.compile(update, fullgraph=True, options={"cpp_wrapper": True})
    for epoch in range(work.epochs):
        CLOCK.epoch()
        # Once it is compiled nothing changes on which it depends, which torch looks after at every call;
        # calls are counted in the second epoch, by a profiler, on which it depends too.
        sure = unguarded and epoch > 1
        skip = torch.compiler.set_stance(skip_guard_eval_unsafe=True) if sure else nullcontext()
        with skip:
            for index in torch.randperm(len(xs)).split(work.batch):
                step(index)
    return Trained(model, int(count))


def train_unguarded(work: Workload, defaults: bool, folder: Path) -> Trained:
    """The same, without torch's look at every call whether the graph still fits."""
    return train_step(work, defaults, folder, unguarded=True)


def train_usual(work: Workload, defaults: bool, folder: Path) -> Trained:
    """The same with pictures as they come."""
    return train(work, defaults, folder, last=False)


def train_lean(work: Workload, defaults: bool, folder: Path) -> Trained:
    """The same past `backward` and `Optimizer.step`: gradients as a list, handed to the kernel."""
    model, xs, ys = begin(work)
    layers: Any = model.layers
    params = list(model.parameters())
    weights = [p.detach() for p in params]
    means, squares = ([torch.zeros_like(p) for p in weights] for _ in range(2))
    counts, one = torch.zeros(len(params)), torch.ones(())
    steps = list(counts.unbind())
    for _ in range(work.epochs):
        CLOCK.epoch()
        for index in torch.randperm(len(xs)).split(work.batch):
            loss = work.criterion(layers(xs.index_select(0, index)), ys.index_select(0, index))
            grads = [_like(g, p) for g, p in zip(torch.autograd.grad(loss, params), weights, strict=True)]
            counts.add_(one)
            torch._fused_adam_(
                weights, grads, means, squares, [], steps, lr=work.lr, beta1=0.9, beta2=0.999, eps=1e-8,
                weight_decay=0.0, amsgrad=False, maximize=False,
            )  # fmt: skip
    return Trained(model, int(steps[0]))


def _like(grad: Tensor, weight: Tensor) -> Tensor:
    """A gradient that lies in memory as its weight does, which the kernel takes for granted."""
    return grad if grad.stride() == weight.stride() else torch.empty_like(weight).copy_(grad)
