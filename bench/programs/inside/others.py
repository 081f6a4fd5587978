"""Packages that ship training loops, one function each: ``others.py NAME``.

The clock follows the call that makes one step; evaluations pause it. Data are made up.
"""

import sys
import warnings

import hand_clock
import numpy
import tiny
import torch
from clocked_calls import call_after, call_before, each_step, lightning_clock, trainer_clock

warnings.filterwarnings("ignore")
rng = numpy.random.default_rng(0)


def tabnet():
    from pytorch_tabnet.abstract_model import TabModel
    from pytorch_tabnet.tab_model import TabNetClassifier

    call_after(TabModel, "_train_batch", lambda _, rows, __: hand_clock.step(len(rows)))
    call_before(TabModel, "_predict_epoch", hand_clock.pause)
    rows, labels = rng.normal(size=(2048, 16)).astype("f4"), rng.integers(0, 3, 2048)
    TabNetClassifier(verbose=0).fit(
        rows, labels, eval_set=[(rows[:500], labels[:500])],
        batch_size=128, virtual_batch_size=64, max_epochs=20, patience=0,
    )  # fmt: skip


def table():
    import pandas

    return pandas.DataFrame(
        {"a": rng.normal(size=3000), "b": rng.integers(0, 4, 3000), "c": rng.normal(size=3000)}
    )


def ctgan():
    from ctgan import CTGAN

    each_step(500)
    CTGAN(batch_size=500, epochs=60, enable_gpu=False).fit(table(), ["b"])


def tvae():
    from ctgan import TVAE

    each_step(500)
    TVAE(batch_size=500, epochs=60, enable_gpu=False).fit(table(), ["b"])


def deepfm():
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import DeepFM

    call_before(DeepFM, "evaluate", hand_clock.pause)
    each_step(256)
    columns = [SparseFeat("user", 100, 8), SparseFeat("item", 50, 8), DenseFeat("age", 1)]
    rows = 256 * 40
    model = DeepFM(columns, columns, device="cpu")
    model.compile("adam", "binary_crossentropy", metrics=["auc"])
    features = {"user": rng.integers(0, 100, rows), "item": rng.integers(0, 50, rows)}
    model.fit(
        features | {"age": rng.random(rows)}, rng.integers(0, 2, rows),
        batch_size=256, epochs=5, verbose=0, validation_split=0.5,
    )  # fmt: skip


def bert():
    """A small sentence encoder, loaded from disk like those of the hub."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel

    tiny.tokenizer().save_pretrained("bert")
    BertModel(
        BertConfig(
            vocab_size=203, hidden_size=64, intermediate_size=64,
            num_hidden_layers=2, num_attention_heads=2,
        )
    ).save_pretrained("bert")  # fmt: skip
    body = Transformer("bert", max_seq_length=32)
    return SentenceTransformer(modules=[body, Pooling(64)], device="cpu")


def sentences():
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    model = bert()
    rows = Dataset.from_dict(
        {
            "anchor": [tiny.text(n) for n in range(1600)],
            "positive": [tiny.text(n, 5) for n in range(1600)],
        }
    )
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir="out", per_device_train_batch_size=16, max_steps=100, report_to=[],
            disable_tqdm=True, use_cpu=True, save_strategy="no",
            eval_strategy="steps", eval_steps=11,
        ),
        train_dataset=rows, eval_dataset=rows.select(range(32)),
        loss=MultipleNegativesRankingLoss(model), callbacks=[trainer_clock(16)],
    ).train()  # fmt: skip


def setfit():
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from sklearn.linear_model import LogisticRegression

    rows = Dataset.from_dict(
        {"text": [tiny.text(n) for n in range(64)], "label": [n % 2 for n in range(64)]}
    )
    Trainer(
        model=SetFitModel(bert(), LogisticRegression()),
        args=TrainingArguments(
            batch_size=8, num_epochs=1, max_steps=100, report_to="none", show_progress_bar=False
        ),
        train_dataset=rows, callbacks=[trainer_clock(8)],
    ).train()  # fmt: skip


def pyro():
    """A variational autoencoder; Pyro has an optimizer for each parameter."""
    import pyro
    import pyro.distributions as dist

    decoder, encoder = torch.nn.Linear(8, 32), torch.nn.Linear(32, 16)

    def model(rows):
        pyro.module("decoder", decoder)
        with pyro.plate("rows", len(rows)):
            z = pyro.sample("z", dist.Normal(torch.zeros(len(rows), 8), 1.0).to_event(1))
            pyro.sample("x", dist.Normal(decoder(z), 1.0).to_event(1), obs=rows)

    def guide(rows):
        pyro.module("encoder", encoder)
        with pyro.plate("rows", len(rows)):
            loc, scale = encoder(rows).chunk(2, -1)
            pyro.sample("z", dist.Normal(loc, scale.exp()).to_event(1))

    svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 1e-3}), pyro.infer.Trace_ELBO())
    loader = torch.utils.data.DataLoader(torch.randn(64 * 120, 32), batch_size=64)
    for rows in loader:
        svi.step(rows)
        hand_clock.step(len(rows))


def gpytorch():
    import gpytorch

    rows = torch.rand(200, 2)
    values = torch.sin(rows.sum(1))

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(rows, values, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(likelihood)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    likelihoods = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(120):
        optimizer.zero_grad()
        (-likelihoods(model(rows), values)).backward()
        optimizer.step()
        hand_clock.step(len(rows))


def d3rlpy(kind):
    import d3rlpy

    each_step(64)
    call_before(d3rlpy.metrics.TDErrorEvaluator, "__call__", hand_clock.pause)
    n = 4000
    games = d3rlpy.dataset.MDPDataset(
        rng.normal(size=(n, 4)).astype("f4"),
        rng.integers(0, 2, (n, 1)) if kind == "DiscreteCQL" else rng.random((n, 1)).astype("f4"),
        rng.random(n).astype("f4"),
        (numpy.arange(n) % 100 == 99).astype("f4"),
    )
    config = getattr(d3rlpy.algos, f"{kind}Config")(batch_size=64)
    config.create(device="cpu:0").fit(
        games, n_steps=200, n_steps_per_epoch=50, show_progress=False,
        evaluators={"td": d3rlpy.metrics.TDErrorEvaluator()},
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip


def tianshou():
    import gymnasium
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net

    each_step(64)
    games = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4)
    tests = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    game = gymnasium.make("CartPole-v1")
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=4, action_shape=2, hidden_sizes=[64, 64]),
        action_space=game.action_space,
    )
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=100)
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=Collector(algorithm, games, VectorReplayBuffer(4000, 4)),
            test_collector=Collector(algorithm, tests),
            max_epochs=5, epoch_num_steps=500, collection_step_num_env_steps=8,
            update_step_num_gradient_steps_per_sample=0.5, batch_size=64, test_step_num_episodes=2,
        )
    )  # fmt: skip


def torchrl():
    """A critic on a replay buffer of TensorDicts."""
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.modules import QValueActor
    from torchrl.objectives import DQNLoss, SoftUpdate

    def games(count):
        return TensorDict(
            {
                "observation": torch.randn(count, 4),
                "action": torch.nn.functional.one_hot(torch.randint(2, (count,)), 2),
                ("next", "observation"): torch.randn(count, 4),
                ("next", "reward"): torch.randn(count, 1),
                ("next", "done"): torch.zeros(count, 1, dtype=torch.bool),
                ("next", "terminated"): torch.zeros(count, 1, dtype=torch.bool),
            },
            [count],
        )

    actor = QValueActor(
        torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)),
        in_keys=["observation"],
        action_space="one-hot",
    )
    loss = DQNLoss(actor, action_space="one-hot", delay_value=True)
    target = SoftUpdate(loss, eps=0.99)
    optimizer = torch.optim.Adam(loss.parameters())
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(5000), batch_size=128)
    for _ in range(30):
        with torch.no_grad():
            for _ in range(10):
                actor(games(1))
        buffer.extend(games(50))
        for _ in range(4):
            loss(buffer.sample())["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            target.step()
            hand_clock.step(128)


def deepxde():
    import deepxde

    def equation(x, y):
        return deepxde.grad.hessian(y, x) + 2

    domain = deepxde.geometry.Interval(-1, 1)
    edge = deepxde.icbc.DirichletBC(domain, lambda x: 0, lambda x, on_boundary: on_boundary)
    data = deepxde.data.PDE(domain, equation, edge, num_domain=100, num_boundary=2, num_test=50)
    model = deepxde.Model(data, deepxde.nn.FNN([1, 32, 32, 1], "tanh", "Glorot uniform"))
    model.compile("adam", lr=1e-3)
    call_before(model, "_test", hand_clock.pause)
    each_step(len(data.train_x))
    model.train(iterations=200, display_every=40, verbose=0)


def opacus():
    """Private training: batches of random size, gradients of each sample."""
    from opacus import PrivacyEngine

    model = tiny.network()
    loader = torch.utils.data.DataLoader(tiny.rows(4000), batch_size=64)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=loader,
        noise_multiplier=1.0, max_grad_norm=1.0,
    )  # fmt: skip
    for _ in range(3):
        for features, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
            hand_clock.step(len(features))


def pykeen():
    from pykeen.pipeline import pipeline
    from pykeen.triples import TriplesFactory

    each_step(64)
    triples = numpy.stack(
        [
            [f"e{n}" for n in rng.integers(0, 50, 640)],
            [f"r{n}" for n in rng.integers(0, 4, 640)],
            [f"e{n}" for n in rng.integers(0, 50, 640)],
        ],
        1,
    )
    factory = TriplesFactory.from_labeled_triples(triples)
    factory = TriplesFactory.from_labeled_triples(triples[: factory.num_triples // 64 * 64])
    pipeline(
        training=factory, testing=factory, model="TransE", device="cpu",
        training_kwargs={"num_epochs": 30, "batch_size": 64, "use_tqdm": False, "drop_last": True},
    )  # fmt: skip


def frame(series):
    import pandas

    return pandas.concat(
        pandas.DataFrame(
            {
                "unique_id": f"s{n}", "time_idx": range(120), "y": rng.random(120),
                "ds": pandas.date_range("2020-01-01", periods=120),
            }
        ) for n in range(series)
    ).reset_index(drop=True)  # fmt: skip


QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


def forecasting():
    import lightning.pytorch
    from pytorch_forecasting import NBeats, TimeSeriesDataSet

    data = TimeSeriesDataSet(
        frame(8), time_idx="time_idx", target="y", group_ids=["unique_id"],
        min_encoder_length=24, max_encoder_length=24, max_prediction_length=6,
        time_varying_unknown_reals=["y"],
    )  # fmt: skip
    clock = lightning_clock("lightning.pytorch", lambda batch: len(batch[1][0]))
    lightning.pytorch.Trainer(max_epochs=9, callbacks=[clock], **QUIET).fit(
        NBeats.from_dataset(data, widths=[32, 64]), data.to_dataloader(batch_size=32),
        data.to_dataloader(train=False, batch_size=32),
    )  # fmt: skip


def darts():
    from darts import TimeSeries
    from darts.models import NBEATSModel

    clock = lightning_clock("pytorch_lightning", lambda batch: len(batch.past_target))
    series = TimeSeries.from_values(rng.random(2000).astype("f4"))
    NBEATSModel(
        24, 6, num_stacks=2, num_blocks=1, num_layers=2, layer_widths=32, batch_size=32, n_epochs=4,
        pl_trainer_kwargs=QUIET | {"callbacks": [clock]},
    ).fit(series, val_series=series[:200])  # fmt: skip


def neuralforecast():
    """The loader's batches consist of series, from each of which windows are drawn."""
    from neuralforecast import NeuralForecast
    from neuralforecast.models import NHITS

    clock = lightning_clock("pytorch_lightning", lambda batch: len(batch["temporal"]))
    model = NHITS(
        h=6, input_size=24, max_steps=100, batch_size=8, mlp_units=3 * [[32, 32]],
        val_check_steps=20, callbacks=[clock], **QUIET,
    )  # fmt: skip
    NeuralForecast([model], freq="D").fit(frame(8), val_size=12)


def pythae():
    from pythae.models import VAE, VAEConfig
    from pythae.trainers import BaseTrainer, BaseTrainerConfig

    call_before(BaseTrainer, "eval_step", hand_clock.pause)
    each_step(64)
    model = VAE(VAEConfig(input_dim=(1, 16, 16), latent_dim=4))
    rows = rng.random((640, 1, 16, 16)).astype("f4")
    BaseTrainer(
        model, train_dataset=dataset(rows), eval_dataset=dataset(rows[:100]),
        training_config=BaseTrainerConfig(
            output_dir="out", num_epochs=20, per_device_train_batch_size=64, no_cuda=True
        ),
    ).train()  # fmt: skip


def dataset(rows):
    from pythae.data.datasets import BaseDataset

    return BaseDataset(torch.as_tensor(rows), torch.zeros(len(rows)))


def monai():
    """The engine on patches of an image, with an evaluator."""
    from monai.data import DataLoader, Dataset
    from monai.engines import SupervisedEvaluator, SupervisedTrainer
    from monai.handlers import ValidationHandler
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet

    images = [
        {"image": torch.rand(1, 32, 32), "label": (torch.rand(1, 32, 32) > 0.5).float()}
        for _ in range(160)
    ]
    network = UNet(2, 1, 1, channels=(8, 16), strides=(2,))
    call_before(SupervisedEvaluator, "run", hand_clock.pause)
    each_step(8)
    check = SupervisedEvaluator(torch.device("cpu"), DataLoader(Dataset(images[:16]), 8), network)
    SupervisedTrainer(
        device=torch.device("cpu"), max_epochs=9, network=network,
        loss_function=DiceLoss(sigmoid=True),
        train_data_loader=DataLoader(Dataset(images), batch_size=8),
        optimizer=torch.optim.Adam(network.parameters()),
        train_handlers=[ValidationHandler(1, check)],
    ).run()  # fmt: skip


globals()[sys.argv[1]](*sys.argv[2:])
