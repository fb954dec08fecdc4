"""Keras on torch: the same torch module in a TorchModuleWrapper, Keras' own Adam. Its defaults: a progress
bar, and the arrays given to `fit` instead of the DataLoader."""

from pathlib import Path

import keras
from workloads import Workload

from . import Trained, loader


def train(work: Workload, defaults: bool, folder: Path) -> Trained:
    network = work.network()
    model = keras.Sequential([keras.layers.TorchModuleWrapper(network)])
    model.compile(
        optimizer=keras.optimizers.Adam(work.lr),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    if defaults:
        x, y = (t.numpy() for t in work.data())
        model.fit(x, y, batch_size=work.batch, epochs=work.epochs)
    else:
        model.fit(loader(work), epochs=work.epochs, verbose=0)
    return Trained(network, int(model.optimizer.iterations.value))
