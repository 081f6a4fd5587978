"""Training loops, general and domain-specific: ``trainers.py NAME``. Data are made up."""

import sys
import warnings

import hand_clock
import numpy
import tiny
import torch
from clocked_calls import call_before, each_step, lightning_clock, trainer_clock
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
rng = numpy.random.default_rng(0)
loss = torch.nn.functional.cross_entropy


def torchtnt():
    from torchtnt.framework.auto_unit import AutoUnit
    from torchtnt.framework.fit import fit

    class Unit(AutoUnit):
        def compute_loss(self, state, data):
            output = self.module(data[0])
            return loss(output, data[1]), output

        def configure_optimizers_and_lr_scheduler(self, module):
            return torch.optim.Adam(module.parameters()), None

        def on_train_step_end(self, state, data, step, results):
            hand_clock.step(len(data[0]))

        def on_eval_start(self, state):
            hand_clock.pause()

    fit(
        Unit(module=tiny.network()), DataLoader(tiny.rows(2000), 64),
        DataLoader(tiny.rows(200), 64), max_epochs=4,
    )  # fmt: skip


def snntorch():
    """Spiking neurons, with 20 forward passes per batch."""
    import snntorch
    from snntorch import backprop
    from snntorch import functional as spikes

    network = torch.nn.Sequential(
        torch.nn.Linear(32, 64), snntorch.Leaky(beta=0.9, init_hidden=True),
        torch.nn.Linear(64, 4), snntorch.Leaky(beta=0.9, init_hidden=True, output=True),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters())
    each_step(64)
    for _ in range(4):
        backprop.BPTT(
            network, DataLoader(tiny.rows(64 * 30), 64), optimizer, spikes.mse_count_loss(),
            num_steps=20, time_var=False,
        )  # fmt: skip


def avalanche():
    """Two experiences, one after the other, each with an evaluation."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute
    from avalanche.training import Naive

    def data(rows):
        rows = tiny.rows(rows)
        targets = rows.tensors[1].tolist()
        return AvalancheDataset([rows], data_attributes=[DataAttribute(targets, "targets")])

    network = tiny.network()
    strategy = Naive(
        model=network, optimizer=torch.optim.SGD(network.parameters(), 0.01),
        criterion=torch.nn.CrossEntropyLoss(), train_mb_size=32, train_epochs=2,
    )  # fmt: skip
    each_step(32, torch.optim.SGD)
    call_before(Naive, "eval", hand_clock.pause)
    games = benchmark_from_datasets(train=[data(1600), data(1600)], test=[data(320)])
    for experience in games.train_stream:
        strategy.train(experience)
        strategy.eval(games.test_stream)


def poutyne():
    from poutyne import Callback, Model

    class Clocks(Callback):
        def on_train_batch_end(self, batch_number, logs):
            hand_clock.step(64)

        def on_valid_begin(self, logs):
            hand_clock.pause()

        def on_train_end(self, logs):
            hand_clock.pause()

    Model(tiny.network(), "adam", "cross_entropy", batch_metrics=["accuracy"]).fit_dataset(
        tiny.rows(64 * 30), tiny.rows(200), epochs=4, batch_size=64, callbacks=[Clocks()],
        progress_options={"coloring": False}, verbose=False,
    )  # fmt: skip


def accelerated():
    from pytorch_accelerated import Trainer
    from pytorch_accelerated.callbacks import TrainerCallback

    class Clocks(TrainerCallback):
        def on_train_step_end(self, trainer, batch, batch_output, **_):
            pass

        def on_eval_epoch_start(self, trainer, **_):
            hand_clock.pause()

    network = tiny.network()
    each_step(64)
    Trainer(
        network, torch.nn.CrossEntropyLoss(), torch.optim.Adam(network.parameters()),
        callbacks=[Clocks()],
    ).train(
        tiny.rows(64 * 30), num_epochs=4, eval_dataset=tiny.rows(200),
        per_device_batch_size=64,
    )  # fmt: skip


def ensemble():
    """Five networks, trained on the same batches one after the other."""
    from torchensemble import FusionClassifier

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = tiny.network()

        def forward(self, rows):
            return self.body(rows)

    fusion = FusionClassifier(Network, 5, cuda=False)
    fusion.set_optimizer("Adam")
    each_step(64)
    fusion.fit(DataLoader(tiny.rows(64 * 30), 64), epochs=4, log_interval=1000)


def keras():
    """Keras on PyTorch, which has its own optimizers."""
    import os

    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    class Clocks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            hand_clock.step(64)

        def on_test_begin(self, logs=None):
            hand_clock.pause()

    body = keras.Sequential([keras.layers.Dense(256, activation="relu"), keras.layers.Dense(4)])
    body.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    rows = rng.normal(size=(64 * 300, 32)).astype("f4")
    labels = rng.integers(0, 4, 64 * 300)
    body.fit(
        rows, labels, batch_size=64, epochs=4, verbose=0, callbacks=[Clocks()],
        validation_data=(rows[:200], labels[:200]),
    )  # fmt: skip


def diffusion():
    """A trainer that accumulates gradients."""
    import made_data
    from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet

    made_data.masks("images", 100)
    body = Unet(dim=8, dim_mults=(1, 2), flash_attn=False)
    each_step(16)
    Trainer(
        GaussianDiffusion(body, image_size=16, timesteps=20), "images/imgs", train_batch_size=8,
        gradient_accumulate_every=2, train_num_steps=60, calculate_fid=False,
    ).train()  # fmt: skip


def sbi():
    """Simulation-based inference: a density estimator, validated after each epoch."""
    from sbi.inference import NPE
    from sbi.utils import BoxUniform

    parameters = torch.rand(1000, 3)
    inference = NPE(BoxUniform(torch.zeros(3), torch.ones(3)), show_progress_bars=False)
    inference.append_simulations(parameters, parameters + 0.1 * torch.randn(1000, 3))
    each_step(50)
    call_before(torch.nn.Module, "eval", hand_clock.pause)
    inference.train(training_batch_size=50, max_num_epochs=10)


def chemprop():
    """Message passing over molecules."""
    import lightning.pytorch
    from chemprop import data, models, nn

    smiles = ["C" * n + "O" * m for n in range(1, 33) for m in range(1, 21)]
    points = [data.MoleculeDatapoint.from_smi(s, [float(len(s))]) for s in smiles]
    rows = data.MoleculeDataset(points)

    clock = lightning_clock("lightning.pytorch", lambda batch: len(batch.Y))
    network = models.MPNN(nn.BondMessagePassing(), nn.MeanAggregation(), nn.RegressionFFN())
    lightning.pytorch.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        max_epochs=5, callbacks=[clock],
    ).fit(
        network, data.build_dataloader(rows, batch_size=32),
        data.build_dataloader(data.MoleculeDataset(points[:64]), shuffle=False, batch_size=32),
    )  # fmt: skip


def peft():
    """LoRA on a small language model, with transformers' Trainer."""
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer, TrainingArguments

    words = [{"input_ids": [n % 203] * 24, "labels": [n % 203] * 24} for n in range(800)]
    model = get_peft_model(
        tiny.language_model(), LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
    )
    Trainer(
        model=model, train_dataset=words, callbacks=[trainer_clock(8)],
        args=TrainingArguments(
            output_dir="out", per_device_train_batch_size=8, max_steps=90, report_to=[],
            disable_tqdm=True, use_cpu=True, save_strategy="no", gradient_checkpointing=True,
        ),
    ).train()  # fmt: skip


globals()[sys.argv[1]](*sys.argv[2:])
