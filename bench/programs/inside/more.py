"""More general loops: ``more.py NAME``. Data are made up."""

import sys
import warnings

import hand_clock
import numpy
import tiny
import torch
from clocked_calls import call_before, each_step, lightning_clock
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
rng = numpy.random.default_rng(0)
loss = torch.nn.functional.cross_entropy


def pyod():
    """An autoencoder that detects anomalies."""
    from pyod.models.auto_encoder import AutoEncoder

    each_step(32)
    AutoEncoder(epoch_num=5, batch_size=32, verbose=0).fit(rng.normal(size=(32 * 40, 16)))


def metric():
    """pytorch-metric-learning's trainer: a trunk and an embedder, two optimizers."""
    from pytorch_metric_learning import losses, trainers

    trunk, embedder = tiny.network(), torch.nn.Linear(4, 8)
    first = torch.optim.Adam(trunk.parameters())
    second = torch.optim.Adam(embedder.parameters())
    rows = tiny.rows(32 * 60)
    trainer = trainers.MetricLossOnly(
        {"trunk": trunk, "embedder": embedder},
        {"trunk_optimizer": first, "embedder_optimizer": second},
        32, {"metric_loss": losses.TripletMarginLoss()}, rows, dataloader_num_workers=0,
        data_device=torch.device("cpu"),
        end_of_iteration_hook=lambda trainer: hand_clock.step(32),
    )  # fmt: skip
    trainer.train(num_epochs=4)


def rechub():
    """A recommender system."""
    from torch_rechub.basic.features import DenseFeature, SparseFeature
    from torch_rechub.models.ranking import WideDeep
    from torch_rechub.trainers import CTRTrainer
    from torch_rechub.utils.data import DataGenerator

    count = 64 * 40
    rows = {"a": rng.integers(0, 50, count), "b": rng.integers(0, 80, count),
            "d": rng.normal(size=count).astype("f4")}  # fmt: skip
    labels = rng.integers(0, 2, count).astype("f4")
    sparse = [SparseFeature("a", 50, 8), SparseFeature("b", 80, 8)]
    dense = [DenseFeature("d")]
    train, valid, _ = DataGenerator(rows, labels).generate_dataloader(
        split_ratio=[0.8, 0.1], batch_size=64
    )
    each_step(64)
    call_before(CTRTrainer, "evaluate", hand_clock.pause)
    CTRTrainer(
        WideDeep(wide_features=dense, deep_features=sparse, mlp_params={"dims": [64]}),
        n_epoch=5, device="cpu", model_path=".",
    ).fit(train, valid)  # fmt: skip


def pfrl():
    import gymnasium
    import pfrl

    class Old(gymnasium.Wrapper):
        def reset(self, **_):
            return super().reset()[0]

        def step(self, action):
            observation, reward, is_done, is_cut, info = super().step(action)
            return observation, reward, is_done or is_cut, info

    room = Old(gymnasium.make("CartPole-v1"))
    body = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2),
        pfrl.q_functions.DiscreteActionValueHead(),
    )  # fmt: skip
    each_step(32)
    agent = pfrl.agents.DoubleDQN(
        body, torch.optim.Adam(body.parameters(), eps=1e-2),
        pfrl.replay_buffers.ReplayBuffer(10_000), 0.9,
        pfrl.explorers.ConstantEpsilonGreedy(0.3, room.action_space.sample),
        replay_start_size=100, update_interval=1, target_update_interval=100,
        phi=lambda observation: observation.astype("f4"), minibatch_size=32,
    )  # fmt: skip
    pfrl.experiments.train_agent(agent, room, 2000, "out")


def torchbearer():
    import torchbearer

    network = tiny.network()
    each_step(64)
    call_before(torch.nn.Module, "eval", hand_clock.pause)
    torchbearer.Trial(
        network, torch.optim.Adam(network.parameters()), loss, metrics=["loss"], verbose=0
    ).with_generators(
        train_generator=DataLoader(tiny.rows(64 * 30), 64),
        val_generator=DataLoader(tiny.rows(200), 64),
    ).run(4)


def gluonts():
    import pandas
    from gluonts.dataset.common import ListDataset
    from gluonts.torch import DeepAREstimator

    clock = lightning_clock("lightning.pytorch", lambda _: 32)
    rows = ListDataset(
        [{"start": pandas.Period("2020-01-01", "h"), "target": rng.normal(size=300)}
         for _ in range(20)], freq="h",
    )  # fmt: skip
    DeepAREstimator(
        freq="h", prediction_length=12, hidden_size=16, num_batches_per_epoch=30,
        trainer_kwargs={"max_epochs": 4, "callbacks": [clock], "accelerator": "cpu",
                        "logger": False, "enable_progress_bar": False},
    ).train(rows)  # fmt: skip


def lightly():
    """Self-supervised training on two views of an image."""
    import made_data
    from lightly.data import LightlyDataset
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead
    from lightly.transforms import SimCLRTransform

    made_data.masks("images", 96)
    rows = LightlyDataset("images/imgs", transform=SimCLRTransform(input_size=32))
    body = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(),
        SimCLRProjectionHead(128, 64, 32),
    )  # fmt: skip
    optimizer, far = torch.optim.SGD(body.parameters(), lr=0.01), NTXentLoss()
    for _ in range(8):
        for batch in DataLoader(rows, batch_size=8, shuffle=True, drop_last=True):
            first_view, second_view = batch[0]
            value = far(body(first_view), body(second_view))
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            hand_clock.step(8)


globals()[sys.argv[1]](*sys.argv[2:])
