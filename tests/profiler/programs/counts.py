"""Loops whose samples, steps or passes are easily miscounted; the arguments name some of them.

Each runs in a child process, which prints its name and number first.
"""

import copy
import itertools
import os
import queue
import sys
import threading
import time

import torch
import torch._dynamo  # the first optimizer imports it: here once, instead of once in each child
from common import show
from torch.nn.functional import mse_loss
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

STEPS = 24
BATCH = 8


def model_and_optimizer():
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(loss)


def slices_of_what_is_read():
    """The loader yields the rows of four steps, and each step trains on a quarter."""
    model, optimizer = model_and_optimizer()
    rows = torch.randn(4 * BATCH * STEPS, 6)
    for step, batch in enumerate(DataLoader(rows, batch_size=4 * BATCH)):
        part = batch[step % 4 * BATCH :][:BATCH]
        train(model(part).pow(2).mean(), optimizer)


class ReadyBatches(Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(BATCH, 6, generator=generator), torch.randn(
            BATCH, 1, generator=generator
        )


def ready_batches():
    """A dataset of batches, so its loader takes each for a sample."""
    model, optimizer = model_and_optimizer()
    for features, targets in DataLoader(ReadyBatches(), batch_size=1):
        train(mse_loss(model(features[0]), targets[0]), optimizer)


def two_levels():
    """One loader's batches train the model, another's its rate, without a backward pass."""
    model, optimizer = model_and_optimizer()
    rate = torch.zeros((), requires_grad=True)
    held_out_batches = iter(DataLoader(torch.randn(BATCH * STEPS, 6), batch_size=BATCH))
    for features in DataLoader(torch.randn(BATCH * STEPS, 6), batch_size=BATCH):
        held_out = next(held_out_batches)
        loss = (rate.exp() * model(held_out)).pow(2).mean()
        rate.data -= 0.01 * torch.autograd.grad(loss, rate)[0]
        train((rate.exp().detach() * model(features)).pow(2).mean(), optimizer)


class Recomputation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, model, features, *parameters):
        ctx.model = model
        ctx.save_for_backward(features)
        with torch.no_grad():
            return model(features)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            result = ctx.model(ctx.saved_tensors[0])
            grads = torch.autograd.grad(result, list(ctx.model.parameters()), grad)
        return None, None, *grads


def recompute():
    """Like adjoint solvers and reversible layers: the model runs without a graph."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        features = torch.randn(BATCH, 6)
        result = Recomputation.apply(model, features, *model.parameters())
        train(result.pow(2).mean(), optimizer)


class Flat(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, state):
        return self.model(state.reshape(-1, 6)).reshape(-1)


def flat_state():
    """Like solvers with several parts: one vector has all samples' features."""
    model, optimizer = model_and_optimizer()
    flat = Flat(model)
    for _ in range(STEPS):
        result = Recomputation.apply(flat, torch.randn(BATCH * 6), *model.parameters())
        train(result.pow(2).mean(), optimizer)


class Parts(torch.nn.Module):
    """A solver's state, one vector, as the parts that a function takes."""

    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, state):
        return self.slope(state[: BATCH * 6].view(BATCH, 6))


def solver_of_a_function():
    """The module around a function has no parameters; the model inside gets the samples."""
    model, optimizer = model_and_optimizer()
    solve = Parts(lambda rows: model(rows).pow(2))
    for _ in range(STEPS):
        train(solve(torch.randn(BATCH * 6 + BATCH)).mean(), optimizer)


def blind_look():
    """The loss of one step is over the weights alone."""
    model, optimizer = model_and_optimizer()
    for step in range(STEPS):
        if step == 2:
            loss = sum(p.pow(2).sum() for p in model.parameters())
        else:
            loss = model(torch.randn(BATCH, 6)).pow(2).mean()
        train(loss, optimizer)


def compiled_helper():
    """The model is eager; a function of the update is compiled, as in Muon."""
    model, optimizer = model_and_optimizer()

    @torch.compile(backend="eager")
    def scale(grad):
        return grad / (grad.norm() + 1e-6)

    for _ in range(STEPS):
        loss = model(torch.randn(BATCH, 6)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.grad = scale(parameter.grad)
        optimizer.step()
        show(loss)


def rollouts_with_a_graph():
    """The states of an episode go through the model one by one, and then together."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        states = torch.randn(BATCH, 6)
        for _ in range(3):
            for state in states:
                model[2](model[1](model[0](state)))
        train(model[2](model[1](model[0](states))).pow(2).mean(), optimizer)


def teacher_with_a_graph():
    """The teacher sees more than the student, and is not trained."""
    teacher, _ = model_and_optimizer()
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        features = torch.randn(2 * BATCH, 6)
        target = teacher(features).detach()[:BATCH]
        train(mse_loss(model(features[:BATCH]), target), optimizer)


def a_pass_for_each_sample():
    """All samples go forward first; each goes backward by itself."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        losses = [model(torch.randn(6)).pow(2).mean() for _ in range(BATCH)]
        optimizer.zero_grad()
        for loss in losses:
            loss.backward()
        optimizer.step()
        show(sum(losses))


def points_of_two_kinds():
    """A network that solves an equation gets inner points and points at the border."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        inner, border = model(torch.randn(BATCH, 6)), model(torch.randn(3, 6))
        train(inner.pow(2).mean() + border.pow(2).mean(), optimizer)


def packed_texts():
    """All texts of a batch in one row."""
    model = torch.nn.Sequential(torch.nn.Embedding(32, 6), torch.nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    texts = torch.randint(32, (BATCH * STEPS, 5))
    for batch in DataLoader(texts, batch_size=BATCH):
        train(model(batch.reshape(1, -1)).pow(2).mean(), optimizer)


def time_first():
    """The first axis is four steps of time."""
    model, optimizer = model_and_optimizer()
    for batch in DataLoader(torch.randn(BATCH * STEPS, 4, 6), batch_size=BATCH):
        train(model(batch.transpose(0, 1)).pow(2).mean(), optimizer)


def bags():
    """A sample is a bag of instances, with one output."""
    features = torch.nn.Linear(6, 1)

    class Bag(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.features = features

        def forward(self, instances):
            return self.features(instances).max(0, keepdim=True).values

    model = Bag()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(torch.randn(STEPS, 9, 6), batch_size=1):
        train(model(batch[0]).pow(2).mean(), optimizer)


def sampling():
    """The model is tried out for a long time, without a loader and without `eval()`."""
    model, optimizer = model_and_optimizer()
    for step, batch in enumerate(DataLoader(torch.randn(3 * STEPS * BATCH, 6), batch_size=BATCH)):
        train(model(batch).pow(2).mean(), optimizer)
        if step % 32 == 31:
            with torch.no_grad():
                model(batch)
                time.sleep(0.5)


def rollouts():
    """Every eight steps, data is made without a graph; the model then trains on it."""
    model, optimizer = model_and_optimizer()
    for step, batch in enumerate(DataLoader(torch.randn(3 * STEPS * BATCH, 6), batch_size=BATCH)):
        if step % 8 == 0:
            with torch.no_grad():
                time.sleep(0.1)
        train(model(batch).pow(2).mean(), optimizer)


@torch.no_grad()
def slow(model, seconds):
    model(torch.ones(BATCH, 6))
    time.sleep(seconds)


def sampling_without_loader():
    """As `sampling`, but the training reaches its first step without it."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        train(model(torch.ones(BATCH, 6)).pow(2).mean(), optimizer)
        if step % 32 == 31:
            for _ in range(10):
                slow(model, 0.05)


def rollouts_without_loader():
    """The training begins with a rollout, and makes another every 24 steps."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        if step % STEPS == 0:
            slow(model, 0.4)
        train(model(torch.ones(BATCH, 6)).pow(2).mean(), optimizer)


def rollouts_after_random_steps():
    """The buffer is first filled at random: training begins before the first rollout."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        if step >= 2 * STEPS and step % 8 == 0:
            for _ in range(10):
                slow(model, 0.03)
        train(model(torch.ones(BATCH, 6)).pow(2).mean(), optimizer)


class Frames(torch.nn.Module):
    """Like IMPALA's model: the first axis is the frames of an episode, the second the episodes."""

    def __init__(self, memory):
        super().__init__()
        self.features = torch.nn.Linear(6, 4)
        self.memory = torch.nn.LSTM(4, 4) if memory else None
        self.head = torch.nn.Linear(4, 1)

    def forward(self, inputs):
        time_, batch = inputs["frame"].shape[:2]
        features = self.features(inputs["frame"].flatten(0, 1)).view(time_, batch, -1)
        if self.memory is not None:
            state, steps = None, []
            for step in features.unbind():
                frame, state = self.memory(step.unsqueeze(0), state)
                steps.append(frame)
            features = torch.cat(steps)
        return self.head(features)


def train_on_frames(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        frames = {"frame": torch.randn(5, BATCH, 6), "reward": torch.randn(5, BATCH)}
        train(model(frames).pow(2).mean(), optimizer)


class Sampler(torch.nn.Module):
    """Like a latent process, gets times and draws its states itself."""

    def __init__(self):
        super().__init__()
        self.drift = torch.nn.Linear(6, 6)

    def forward(self, times, states):
        state = torch.randn(states, 6)
        for time_ in times:
            state = state + time_ * self.drift(state)
        return state


def acting_in_evaluation_mode():
    """Each step of a rollout puts the model into evaluation mode; some rollouts end early."""
    model, optimizer = model_and_optimizer()
    for step in range(STEPS):
        for _ in range(2 if step % 4 == 3 else 5):
            model.eval()
            model(torch.randn(1, 6))
        model.train()
        train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def acting(model, steps):
    """Play a game step by step, each step by the model."""
    model.eval()
    with torch.no_grad():
        for _ in range(steps):
            model(torch.randn(1, 6))
            time.sleep(0.002)
    model.train()


def self_play():
    """The training and each of its rounds begin with self-play, and with a new optimizer."""
    model, _ = model_and_optimizer()
    for _ in range(3):
        acting(model, 50)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def late_acting():
    """The model first acts after as many steps as lie between two such phases."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        if step and step % 16 == 0:
            acting(model, 50)
        train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def trials_of_an_actor():
    """As `late_acting`, but every step acts once anyway: each 16th step has an evaluation."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        if step and step % 16 == 0:
            acting(model, 50)
        with torch.no_grad():
            model(torch.randn(1, 6))
        train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def turns():
    """One optimizer steps twelve times, then another forty times; the first one leads."""
    critic, critic_optimizer = model_and_optimizer()
    actor, actor_optimizer = model_and_optimizer()
    for _ in range(4):
        for _ in range(12):
            train(critic(torch.randn(BATCH, 6)).pow(2).mean(), critic_optimizer)
        for _ in range(40):
            train(actor(torch.randn(2 * BATCH, 6)).pow(2).mean(), actor_optimizer)
    train(critic(torch.randn(BATCH, 6)).pow(2).mean(), critic_optimizer)


def as_many_points_of_two_kinds():
    """Inner points and points at the border have separate terms in the loss."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        inner, border = model(torch.randn(BATCH, 6)), model(torch.randn(BATCH, 6))
        train(inner.pow(2).mean() + border.pow(2).mean(), optimizer)


def two_views():
    """A term of the loss is over both views."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        one, other = model(torch.randn(BATCH, 6)), model(torch.randn(BATCH, 6))
        train((one - other).pow(2).mean() + one.pow(2).mean(), optimizer)


def steps_of_games():
    """Each step of all games is a call, and one loss covers all steps."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        values = [model(torch.randn(BATCH, 6)) for _ in range(5)]
        entropy = sum(value.sin().mean() for value in values)
        train(torch.cat(values).pow(2).mean() + entropy, optimizer)


def stacked_steps_of_games():
    """As `steps_of_games`, but the steps are a separate axis."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        values = [model(torch.randn(BATCH, 6))[:, 0] for _ in range(5)]
        train(torch.stack(values).pow(2).mean(), optimizer)


def rows_with_labels():
    """The model gets all nodes of a graph, of which half have labels."""
    model, optimizer = model_and_optimizer()
    labeled = torch.arange(0, BATCH, 2)
    for _ in range(STEPS):
        train(model(torch.randn(BATCH, 6))[labeled].pow(2).mean(), optimizer)


def copies():
    """Each client trains a copy of the model, with its own optimizer, for six steps."""
    model, _ = model_and_optimizer()
    for _ in range(STEPS // 6):
        client = copy.deepcopy(model)
        optimizer = torch.optim.SGD(client.parameters(), lr=0.01)
        for _ in range(6):
            train(client(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = torch.nn.RNN(6, 4, batch_first=True)

    def forward(self, steps, state):
        return self.memory(steps, state)


def one_sequence_with_its_state():
    """Both arguments of the model look like images of one channel."""
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = torch.zeros(1, 1, 4)
    for _ in range(STEPS):
        output, state = model(torch.randn(1, 5, 6), state)
        state = state.detach()
        train(output.pow(2).mean(), optimizer)


def points_of_rays():
    """The model gets the points of each ray; the loss is over the rays."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        points = model(torch.randn(BATCH * 5, 6)).view(BATCH, 5)
        train(points.sum(1).pow(2).mean(), optimizer)


def sequences_and_their_steps():
    """One model gets the steps of all sequences, another the sequences."""
    model, optimizer = model_and_optimizer()
    memory = torch.nn.GRU(1, 4)
    for _ in range(STEPS):
        steps = model(torch.randn(5 * BATCH, 6)).view(5, BATCH, 1)
        states, _ = memory(steps, torch.zeros(1, BATCH, 4))
        train((states - steps).pow(2).sum(2).mean(), optimizer)


def points_of_rays_in_two_networks():
    """A coarse network gets few points of each ray, a fine one more; rays have colours."""
    coarse, fine = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)
    optimizer = torch.optim.SGD([*coarse.parameters(), *fine.parameters()], lr=0.01)
    for _ in range(STEPS):
        loss = 0
        for model, points in ((coarse, 3), (fine, 5)):
            raw = model(torch.randn(BATCH * points, 6)).view(BATCH, points, 4)
            loss += (raw[..., :3].sigmoid() * raw[..., 3:].sigmoid()).sum(1).pow(2).mean()
        train(loss, optimizer)


def means_of_features():
    """The loss is over features, which are fewer than the rows."""
    model = torch.nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randn(BATCH, 6)).mean(0).pow(2).sum(), optimizer)


def steps_of_a_recurrent_cell():
    """Each step of the sequences is a call, and one loss covers all steps."""
    cell, head = torch.nn.GRUCell(6, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    for _ in range(STEPS):
        state, states = torch.zeros(BATCH, 4), []
        for _ in range(5):
            state = cell(torch.randn(BATCH, 6), state)
            states.append(state)
        train(torch.cat(states).pow(2).mean(), optimizer)


def equation_and_border():
    """Equally many points of two kinds; those of the equation need gradients by the input."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        inner = torch.randn(BATCH, 6, requires_grad=True)
        value = model(inner)
        (slope,) = torch.autograd.grad(value.sum(), inner, create_graph=True)
        border = model(torch.randn(BATCH, 6))
        train((slope[:, :1] - value).pow(2).mean() + border.pow(2).mean(), optimizer)


def real_and_made():
    """A critic gets real rows, generated ones and, for its gradient penalty, interpolated ones."""
    maker = torch.nn.Linear(2, 6)
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        real, made = torch.randn(BATCH, 6), maker(torch.randn(BATCH, 2)).detach()
        between = ((real + made) / 2).requires_grad_()
        (slope,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
        loss = model(made).mean() - model(real).mean() + (slope.norm(dim=1) - 1).pow(2).mean()
        train(loss, optimizer)


def episodes():
    """Episodes have three to 16 steps, each a call, and one backward pass."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        time.sleep(0.005)
        values = [model(torch.randn(6)) for _ in range(episode_length(step))]
        train(torch.cat(values).pow(2).mean(), optimizer)


def episode_length(step):
    return 3 + step * step % 14


def own_layers():
    """Plain parameters without modules or an optimizer."""
    table, weights = torch.randn(9, 2, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    for _ in range(3 * STEPS):
        rows, labels = torch.randint(9, (BATCH, 3)), torch.randint(4, (BATCH,))
        logits = table[rows].view(BATCH, -1) @ weights
        loss = torch.nn.functional.cross_entropy(logits, labels) + 0.01 * weights.pow(2).mean()
        loss.backward()
        for parameter in (table, weights):
            parameter.data -= 0.01 * parameter.grad
            parameter.grad = None
        show(loss)


def own_layers_over_tokens():
    """As `own_layers`; each row has tokens, and the loss is over all of them."""
    table = torch.randn(9, 4, requires_grad=True)
    weights = torch.randn(4, 9, requires_grad=True)
    optimizer = torch.optim.SGD([table, weights], lr=0.01)
    for _ in range(STEPS):
        logits = table[torch.randint(9, (BATCH, 3))].view(-1, 4) @ weights
        train(torch.nn.functional.cross_entropy(logits, torch.randint(9, (3 * BATCH,))), optimizer)


def teacher_with_a_loader():
    """Rows of another loader are for a step of the teacher."""
    model, optimizer = model_and_optimizer()
    teacher, teacher_optimizer = model_and_optimizer()
    held_out_batches = iter(DataLoader(torch.randn(BATCH * STEPS, 6), batch_size=BATCH))
    for features in DataLoader(torch.randn(BATCH * STEPS, 6), batch_size=BATCH):
        teacher_optimizer.zero_grad()
        teacher(next(held_out_batches)).pow(2).mean().backward()
        teacher_optimizer.step()
        train(model(features).pow(2).mean(), optimizer)


def trials_with_a_graph():
    """Every twenty steps the model is tried out for a long time without any visible sign."""
    model, optimizer = model_and_optimizer()
    for step in range(4 * STEPS):
        train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)
        if step % 20 == 19:
            for _ in range(50):
                model(torch.randn(BATCH, 6))
                time.sleep(0.002)


def playing_with_a_graph():
    """As `trials_with_a_graph`, but the training begins with it."""
    model, optimizer = model_and_optimizer()
    for step in range(4 * STEPS):
        if step % 20 == 0:
            for _ in range(50):
                model(torch.randn(BATCH, 6))
                time.sleep(0.002)
        train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def frequent_acting():
    """Every five steps the model acts in evaluation mode, but not at first."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        if step and step % 5 == 0:
            acting(model, 20)
        train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def real_and_made_in_passes():
    """As `real_and_made`, with one pass for each."""
    maker = torch.nn.Linear(2, 6)
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        optimizer.zero_grad()
        real, made = torch.randn(BATCH, 6), maker(torch.randn(BATCH, 2)).detach()
        loss = -model(real).mean()
        loss.backward()
        model(made).mean().backward()
        between = ((real + made) / 2).requires_grad_()
        (slope,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
        (slope.norm(dim=1) - 1).pow(2).mean().backward()
        optimizer.step()
        show(loss)


def two_losses_of_the_same():
    """An actor and a critic get the same rows; each loss goes backward by itself."""
    actor, critic = torch.nn.Linear(6, 2), torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], lr=0.01)
    for _ in range(STEPS):
        rows = torch.randn(BATCH, 6)
        optimizer.zero_grad()
        loss = actor(rows).pow(2).mean()
        loss.backward()
        critic(rows).pow(2).mean().backward()
        optimizer.step()
        show(loss)


def two_losses_of_others():
    """They could be two tasks or two views of the same rows."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        one, other = torch.randn(BATCH, 6), torch.randn(BATCH, 6)
        optimizer.zero_grad()
        loss = model(one).pow(2).mean()
        loss.backward()
        model(other).sin().mean().backward()
        optimizer.step()
        show(loss)


def accumulated():
    """Two passes of the same code belong to one step."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(2):
            loss = model(torch.randn(BATCH, 6)).pow(2).mean()
            loss.backward()
        optimizer.step()
        show(loss)


class Letters(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.memory = torch.nn.Embedding(9, 4), torch.nn.GRU(4, 4, 2)

    def forward(self, letter, state):
        return self.memory(self.table(letter.view(1, -1)), state)


def letters_of_a_text():
    """Each letter is a call with the state of two layers; a text is one sample."""
    model = Letters()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        loss, state = 0, torch.zeros(2, 1, 4)
        for letter in torch.randint(9, (5,)):
            output, state = model(letter, state)
            loss += output.pow(2).mean()
        train(loss, optimizer)


def acting_with_a_memory():
    """Each step of an episode is a call, and the model's memory is passed on to the next."""
    cell = torch.nn.GRUCell(6, 4)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
    for _ in range(STEPS):
        loss, state = 0, torch.zeros(1, 4)
        for _ in range(BATCH):
            state = cell(torch.randn(1, 6), state)
            loss += state.pow(2).mean()
        train(loss, optimizer)


def played_and_replayed():
    """One episode goes through the model step by step, then many at once."""
    model, optimizer = model_and_optimizer()
    for step in range(STEPS):
        rows = BATCH if step % 2 else 1
        losses = [model(torch.randn(rows, 6)).pow(2).mean() for _ in range(5)]
        train(sum(losses), optimizer)


def attack_with_passes():
    """The steps of an attack go backward to the inputs; their gradients are cleared."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        attacked = torch.randn(BATCH, 6)
        for _ in range(3):
            attacked.requires_grad_()
            model.zero_grad()
            model(attacked).pow(2).mean().backward()
            attacked = (attacked + 0.01 * attacked.grad.sign()).detach()
        train(model(attacked).pow(2).mean(), optimizer)


def gradients_kept_elsewhere():
    """The gradients of two passes are clipped one by one, cleared, and added by hand."""
    model, optimizer = model_and_optimizer()
    parameters = list(model.parameters())
    for _ in range(STEPS):
        kept = [torch.zeros_like(parameter) for parameter in parameters]
        for _ in range(2):
            loss = model(torch.randn(BATCH, 6)).pow(2).mean()
            loss.backward()
            for total, parameter in zip(kept, parameters, strict=True):
                total.add_(parameter.grad.clamp(-1, 1))
            optimizer.zero_grad()
        for total, parameter in zip(kept, parameters, strict=True):
            parameter.grad = total
        optimizer.step()
        show(loss)


def two_batches_of_a_loader():
    """One batch to adapt with and one to judge by; both go through the model."""
    model, optimizer = model_and_optimizer()
    batches = iter(DataLoader(torch.randn(2 * STEPS * BATCH, 6), batch_size=BATCH))
    for one, other in zip(batches, batches, strict=True):
        train((model(one) - model(other)).pow(2).mean(), optimizer)


def drawn_by_passes():
    """Rows are drawn by passes that train nothing, as the parameters are frozen then."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        drawn = torch.randn(BATCH, 6)
        model.requires_grad_(False)
        for _ in range(3):
            drawn.requires_grad_()
            model(drawn).sum().backward()
            drawn = (drawn - 0.1 * drawn.grad).detach()
        model.requires_grad_(True)
        train((model(torch.randn(BATCH, 6)) - model(drawn)).mean(), optimizer)


class LoopOverTime(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(6, 4)

    def forward(self, steps):
        state = torch.zeros(steps.shape[1], 4)
        for step in steps:
            state = self.cell(step, state)
        return state


def loop_over_time():
    """Time is the first axis; the model loops over it."""
    model = LoopOverTime()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randn(5, BATCH, 6)).pow(2).mean(), optimizer)


class TransposedInside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.memory = torch.nn.Linear(6, 4), torch.nn.LSTM(4, 4)

    def forward(self, sequences):
        return self.memory(self.features(sequences.transpose(0, 1)))[0]


def transposed_inside():
    """The model gets sequences, and puts time first itself."""
    model = TransposedInside()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randn(BATCH, 9, 6)).pow(2).mean(), optimizer)


def two_transposed_inside():
    """As `transposed_inside`, with two sequences."""
    model = TransposedInside()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randn(2, 9, 6)).pow(2).mean(), optimizer)


class Sequences(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(9, 4)

    def forward(self, sequences):
        return torch.stack([self.table(sequence).mean(0) for sequence in sequences])


def sequences_in_a_list():
    """The sequences differ in length."""
    model = Sequences()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        texts = [torch.randint(9, (3 + number % 4,)) for number in range(BATCH)]
        train(model(texts).pow(2).mean(), optimizer)


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.memory = torch.nn.Embedding(9, 4), torch.nn.LSTM(4, 4)

    def forward(self, words):
        return self.memory(self.table(words).view(len(words), 1, -1))[0].view(len(words), -1)


def words_of_a_sentence():
    """Each step has one sentence, as word numbers; the layer shows that it is one."""
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randint(9, (7,))).pow(2).mean(), optimizer)


class Board(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.values = torch.nn.Linear(27, 9)

    def forward(self, fields):
        return self.values(torch.nn.functional.one_hot(fields, 3).float().flatten())


def fields_of_a_board():
    """Nine whole numbers become one vector inside the model."""
    model = Board()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randint(3, (9,))).pow(2).mean(), optimizer)


class AtTime(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.times = torch.nn.Linear(6, 6), torch.nn.Embedding(9, 6)

    def forward(self, time_, rows):
        return self.rows(rows + self.times(time_))


def time_before_rows():
    """A whole number comes before the rows."""
    model = AtTime()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.tensor(3), torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def gradients_of_an_energy():
    """The loss covers only gradients: the output of the model is not in its graph."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        rows = torch.randn(BATCH, 6, requires_grad=True)
        (slope,) = torch.autograd.grad(model(rows).sum(), rows, create_graph=True)
        train((slope - 1).pow(2).mean(), optimizer)


def draws_for_each_row():
    """A decoder gets five draws for each row."""
    encoder, decoder = torch.nn.Linear(6, 2), torch.nn.Linear(2, 6)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    for _ in range(STEPS):
        rows = torch.randn(BATCH, 6)
        drawn = decoder(encoder(rows).repeat(5, 1) + torch.randn(5 * BATCH, 2))
        train((drawn - rows.repeat(5, 1)).pow(2).sum(1).mean(), optimizer)


def drawn_actions():
    """A critic gets the rows and five more for each; the loss has an entry for each row."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        values, drawn = model(torch.randn(BATCH, 6)), model(torch.randn(5 * BATCH, 6))
        highest = drawn.view(BATCH, 5).logsumexp(1)
        train(values.pow(2).mean() + highest.mean() - values.mean(), optimizer)


def parts_of_a_batch():
    """Two calls share the batch's rows, and the loss covers all of them."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        parts = model(torch.randn(3, 6)), model(torch.randn(BATCH - 3, 6))
        train(torch.cat(parts).pow(2).mean(), optimizer)


def checkpoint_at_the_top():
    """A pass within the pass recomputes the middle layer."""
    first, middle, last = (torch.nn.Linear(6, 6) for _ in range(3))
    layers = (first, middle, last)
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.01)
    for _ in range(STEPS):
        inside = checkpoint(middle, first(torch.randn(BATCH, 6)), use_reentrant=True)
        train(last(inside).pow(2).mean(), optimizer)


def rotations_of_an_image():
    """Four rotations of the one image that a loader yields are not a ready batch."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for image in DataLoader(torch.randn(STEPS, 3, 5, 5), batch_size=1):
        train(model(torch.cat([image.rot90(n, (2, 3)) for n in range(4)])).pow(2).mean(), optimizer)


def skipped_batches():
    """Every second batch is read and skipped."""
    model, optimizer = model_and_optimizer()
    rows = torch.randn(2 * STEPS * BATCH, 6)
    for number, batch in enumerate(DataLoader(rows, batch_size=BATCH)):
        if number % 2:
            train(model(batch).pow(2).mean(), optimizer)


def real_and_made_in_a_call():
    """Half of the discriminator's rows are generated."""
    maker = torch.nn.Linear(2, 6)
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        rows = torch.cat([torch.randn(BATCH, 6), maker(torch.randn(BATCH, 2)).detach()])
        train(model(rows).pow(2).mean(), optimizer)


def views_in_a_call():
    """The loss compares all rows with each other: they may be views."""
    model = torch.nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        rows = model(torch.randn(2 * BATCH, 6))
        labels = torch.arange(2 * BATCH).roll(BATCH)
        train(torch.nn.functional.cross_entropy(rows @ rows.T, labels), optimizer)


def weights_made_by_a_model():
    """The model gets one code and generates the weights that are applied to the rows."""
    model = torch.nn.Linear(3, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        weights = model(torch.randn(1, 3))
        train((torch.randn(BATCH, 6) @ weights.T - 1).pow(2).mean(), optimizer)


class Ensemble(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(5, 6, 1))

    def forward(self, rows):
        return rows @ self.weights


def models_in_one():
    """Five models in one, each with its own batch."""
    model = Ensemble()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randn(5, BATCH, 6)).pow(2).mean(), optimizer)


def words_drawn_one_by_one():
    """Each word is looked up separately; the cell's outputs for all words have one loss."""
    table, cell = torch.nn.Embedding(9, 4), torch.nn.GRUCell(4, 4)
    optimizer = torch.optim.SGD([*table.parameters(), *cell.parameters()], lr=0.01)
    for _ in range(STEPS):
        state = torch.zeros(1, 4)
        for word in range(6):
            state = cell(table(torch.tensor([word])), state)
        train(state.pow(2).mean(), optimizer)


def accumulated_by_hand():
    """Two passes belong to a step that no hook sees."""
    model, _ = model_and_optimizer()
    for _ in range(STEPS):
        model.zero_grad()
        for _ in range(2):
            loss = model(torch.randn(BATCH, 6)).pow(2).mean()
            loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.01 * parameter.grad)
        show(loss)


def optimizers_in_turns():
    """Every second batch leads to a step of the other optimizer."""
    first, second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (first, second)]
    for step in range(2 * STEPS):
        train(second(first(torch.randn(BATCH, 6))).pow(2).mean(), optimizers[step % 2])


def learners_of_one_loop():
    """Each of three models has its own rows and its own optimizer."""
    learners = [model_and_optimizer() for _ in range(3)]
    for _ in range(STEPS):
        for model, optimizer in learners:
            train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def goals_beside_actions():
    """A model for goals is trained by the same code as a wider one for actions."""
    learners = [(torch.nn.Linear(width, 1), width) for width in (6, 4)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model, _ in learners]
    for _ in range(STEPS):
        for (model, width), optimizer in zip(learners, optimizers):  # noqa: B905 - Python 3.8
            train(model(torch.randn(BATCH, width)).pow(2).mean(), optimizer)


def learners_of_the_same_rows():
    """Each of three models is given a copy of the same rows."""
    learners = [model_and_optimizer() for _ in range(3)]
    for _ in range(STEPS):
        rows = torch.randn(BATCH, 6)
        for model, optimizer in learners:
            train(model(torch.cat([rows[:3], rows[3:]])).pow(2).mean(), optimizer)


def optimizers_of_the_same_rows():
    """Two optimizers take turns over the same batch."""
    first, second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (first, second)]
    for _ in range(STEPS):
        rows = torch.randn(BATCH, 6)
        for optimizer in optimizers:
            train(second(first(rows)).pow(2).mean(), optimizer)


def learners_in_long_turns():
    """Two models alternate every forty batches, trained by the same code."""
    learners = [model_and_optimizer() for _ in range(2)]
    for _ in range(3):
        for model, optimizer in learners:
            for _ in range(40):
                time.sleep(0.005)
                train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def copies_trained_within():
    """Each step is computed from a copy of the model after three steps of the copy."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        inner = trained_copy(model)
        optimizer.zero_grad()
        for parameter, trained in zip(model.parameters(), inner.parameters()):  # noqa: B905
            parameter.grad = parameter.data - trained.data
        optimizer.step()


def trained_copy(model):
    inner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)
    for _ in range(3):
        train(inner(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)
    return inner


def critic_more_often():
    """The actor leads; its critic has two separate batches for each of the actor's."""
    actor, critic = torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)
    acts, judges = (torch.optim.SGD(model.parameters(), lr=0.01) for model in (actor, critic))
    for _ in range(STEPS):
        train(critic(actor(torch.randn(BATCH, 6))).pow(2).mean(), acts)
        for _ in range(2):
            train(critic(torch.randn(BATCH, 6)).pow(2).mean(), judges)


class Attention(torch.nn.Module):
    """Written by hand; the first axis is time, and the second one, if any, the batch's."""

    def __init__(self):
        super().__init__()
        self.words, self.parts = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 12)

    def forward(self, words):
        parts = self.parts(self.words(words).view(len(words), -1, 4)).transpose(0, 1)
        queries, keys, values = parts.chunk(3, -1)
        seen = (queries @ keys.transpose(1, 2)).softmax(-1) @ values
        return seen.transpose(0, 1)


def attention_over_the_first_axis():
    """Products of all times with each other, for each sample, show that the first axis is time."""
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randint(9, (11, BATCH))).pow(2).mean(), optimizer)


def attention_over_a_vector():
    """All words of one text attend to each other."""
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randint(9, (11,))).pow(2).mean(), optimizer)


class Axial(Attention):
    def forward(self, words):
        rows = super().forward(words)
        return rows + (rows @ rows.transpose(1, 2)).softmax(-1) @ rows


def attention_over_both_axes():
    """Attention mixes both axes, so neither one is that of independent samples."""
    model = Axial()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randint(9, (11, BATCH))).pow(2).mean(), optimizer)


class Moved(torch.nn.Module):
    """Gives a layer its input with other axes first."""

    def __init__(self, layer, axes):
        super().__init__()
        self.layer, self.axes = layer, axes

    def forward(self, rows):
        return self.layer(rows.permute(self.axes)).mean(-1, keepdim=True)


def convolution_over_the_first_axis():
    """A convolution states which axis is the batch's."""
    model = Moved(torch.nn.Conv1d(6, 5, 3), (1, 2, 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randn(11, BATCH, 6)).pow(2).mean(), optimizer)


def weights_over_the_first_axis():
    """A layer has weights for each entry of the first axis, so it is not the batch's."""
    model = Moved(torch.nn.Linear(11, 11), (2, 1, 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.randn(11, BATCH, 6)).pow(2).mean(), optimizer)


def steps_of_an_acting_cell():
    """Each step of the games is observed separately, and the loss has an entry for each."""
    cell, head = torch.nn.GRUCell(6, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    for _ in range(STEPS):
        state, values = torch.zeros(BATCH, 4), []
        for _ in range(5):
            state = cell(torch.randn(BATCH, 6), state)
            values.append(head(state)[:, 0])
        train(torch.stack(values).pow(2).mean(), optimizer)


def equation_without_its_value():
    """The equation's loss covers only gradients, the border's the output of the model."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        points = torch.rand(5 * BATCH, 2, requires_grad=True)
        (slope,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
        border = model(torch.rand(3, 2))
        train(slope.pow(2).mean() + (border - 1).pow(2).mean(), optimizer)


def functions_and_points():
    """The loss covers all pairs of the inputs of two models."""
    functions, points = torch.nn.Linear(6, 4), torch.nn.Linear(2, 4)
    optimizer = torch.optim.SGD([*functions.parameters(), *points.parameters()], lr=0.01)
    for _ in range(STEPS):
        pairs = functions(torch.randn(BATCH, 6)) @ points(torch.randn(3 * BATCH + 1, 2)).T
        train(pairs.pow(2).mean(), optimizer)


def words_and_their_places():
    """Positions of words are looked up, too, and there are more of them than texts."""
    words, places = torch.nn.Embedding(9, 4), torch.nn.Embedding(11, 4)
    head = torch.nn.Linear(4, 9)
    models = (words, places, head)
    optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.01)
    for _ in range(STEPS):
        texts = torch.randint(9, (BATCH, 11))
        guesses = head(words(texts) + places(torch.arange(11)))
        train(torch.nn.functional.cross_entropy(guesses.view(-1, 9), texts.view(-1)), optimizer)


def molecules_and_their_atoms():
    """One term of the loss has an entry for each molecule, another one for each atom."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        atoms = torch.randn(5 * BATCH, 3, requires_grad=True)
        energies = model(atoms).view(BATCH, 5).sum(1)
        (forces,) = torch.autograd.grad(energies.sum(), atoms, create_graph=True)
        train(energies.pow(2).mean() + forces.pow(2).mean(), optimizer)


class Experts(torch.nn.Module):
    """Each word goes to one of the experts; a term of the loss has an entry per expert."""

    def __init__(self):
        super().__init__()
        self.words, self.gate, self.head = (
            torch.nn.Embedding(9, 6),
            torch.nn.Linear(6, 4),
            torch.nn.Linear(6, 9),
        )
        self.experts = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(4))

    def forward(self, texts):
        words = self.words(texts).flatten(0, 1)
        shares = self.gate(words).softmax(-1)
        self.load = shares.mean(0).pow(2)
        made = torch.stack([expert(words) for expert in self.experts], -1)
        return self.head((made * shares[:, None]).sum(-1))


def experts():
    """The loss has several entries for each text, and separate ones for the experts."""
    model = Experts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        texts = torch.randint(9, (BATCH, 11))
        loss = torch.nn.functional.cross_entropy(model(texts), texts.view(-1))
        train(loss + model.load.sum(), optimizer)


def episodes_in_passes():
    """As `episodes`, with a pass for each step; later ones are longer."""
    model, optimizer = model_and_optimizer()
    for step in range(3 * STEPS):
        time.sleep(0.005)
        optimizer.zero_grad()
        for _ in range(episode_length(step) + step // 6):
            loss = model(torch.randn(1, 6)).exp()
            loss.backward()
        optimizer.step()
        show(loss)


class PolicyAndValue(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.policy, self.value = torch.nn.Linear(6, 2), torch.nn.Linear(6, 1)

    def forward(self, states):
        return torch.distributions.Normal(self.policy(states), 1.0), self.value(states)


def distribution_beside_a_value():
    """The loss covers only the distribution, which the model returns next to a tensor."""
    model = PolicyAndValue()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        policy, _ = model(torch.randn(BATCH, 6))
        train(-policy.log_prob(torch.ones(BATCH, 2)).mean(), optimizer)


def schedule_drawn_first():
    """Steps without gradients probe a schedule's learning rates; then the training begins."""
    idle = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.01)
    for _ in range(2 * STEPS):
        idle.step()
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def temperature_first():
    """The first optimizer to step trains one number on outputs computed without a graph."""
    model, optimizer = model_and_optimizer()
    temperature = torch.zeros((), requires_grad=True)
    first = torch.optim.SGD([temperature], lr=0.01)
    for _ in range(STEPS):
        features = torch.randn(BATCH, 6)
        with torch.no_grad():
            entropy = model(features).mean()
        first.zero_grad()
        (temperature * entropy).backward()
        first.step()
        train(model(features).pow(2).mean(), optimizer)


def made_inside():
    """The model generates its batch."""
    model = Sampler()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.linspace(0, 1, 5), BATCH).pow(2).mean(), optimizer)


def frames_first():
    """Nothing shows which axis is the batch's."""
    train_on_frames(Frames(memory=False))


def frames_first_with_memory():
    """The LSTM shows which axis is the batch's."""
    train_on_frames(Frames(memory=True))


def learners():
    """Two threads alternately train the same model, as in IMPALA."""
    model, optimizer = model_and_optimizer()
    train_in_threads([(model, optimizer, BATCH), (model, optimizer, BATCH)])


def learners_apart():
    """Each thread trains its own model, with another batch size."""
    train_in_threads([(*model_and_optimizer(), BATCH), (*model_and_optimizer(), 3 * BATCH)])


def train_in_threads(learners):
    turn = threading.Barrier(2)

    def learn(number):
        model, optimizer, batch = learners[number]
        for _ in range(STEPS):
            for _ in range(1 + number):
                turn.wait()
            train(model(torch.ones(batch, 6)).pow(2).mean(), optimizer)
            for _ in range(2 - number):
                turn.wait()

    threads = [threading.Thread(target=learn, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lbfgs():
    """One step is the whole training."""
    model, _ = model_and_optimizer()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=60, max_eval=60)
    features, targets = torch.randn(BATCH, 6), torch.randn(BATCH, 1)

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(features), targets)
        loss.backward()
        show(loss)
        return loss

    optimizer.step(closure)


def cleared_by_hand():
    """Two passes belong to a manual step; gradients are cleared where no version counts it."""
    model, _ = model_and_optimizer()
    for _ in range(STEPS):
        for _ in range(2):
            loss = model(torch.randn(BATCH, 6)).pow(2).mean()
            loss.backward()
        for parameter in model.parameters():
            parameter.data -= 0.01 * parameter.grad.data
            parameter.grad.data.zero_()
        show(loss)


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9)

    def forward(self, words):
        return self.head(self.table(words))


def text_in_a_vector():
    """They could be the words of one text or several samples."""
    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        words = torch.randint(9, (11,))
        train(torch.nn.functional.cross_entropy(model(words[:-1]), words[1:]), optimizer)


def text_of_a_loader():
    """As `text_in_a_vector`, from a loader without batches."""
    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for words in DataLoader(torch.randint(9, (STEPS, 11)), batch_size=None):
        train(torch.nn.functional.cross_entropy(model(words[:-1]), words[1:]), optimizer)


def passes_over_copies():
    """Two passes of the same code are over copies of the same rows."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        rows = torch.randn(BATCH, 6)
        optimizer.zero_grad()
        for _ in range(2):
            loss = (model(rows.clone()) + torch.randn(1)).pow(2).mean()
            loss.backward()
        optimizer.step()
        show(loss)


def critic_steps_on_one_batch():
    """The critic leads and takes five steps per batch that is read; the generator takes one."""
    maker, critic = torch.nn.Linear(2, 6), torch.nn.Linear(6, 1)
    makes, judges = (torch.optim.SGD(model.parameters(), lr=0.01) for model in (maker, critic))
    for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
        for _ in range(5):
            made = maker(torch.randn(BATCH, 2)).detach()
            train(critic(made).mean() - critic(rows).mean(), judges)
        train(-critic(maker(torch.randn(BATCH, 2))).mean(), makes)


def maker_and_critic():
    """Both models, each with an optimizer."""
    models = torch.nn.Linear(2, 6), torch.nn.Linear(6, 1)
    return *models, *(torch.optim.SGD(model.parameters(), lr=0.01) for model in models)


def train_maker(maker, critic, optimizer, batch=BATCH):
    train(-critic(maker(torch.randn(batch, 2))).mean(), optimizer)


def train_critic(maker, critic, optimizer, rows):
    made = maker(torch.randn(len(rows), 2)).detach()
    train(critic(made).mean() - critic(rows).mean(), optimizer)


def critic_steps_on_chunks():
    """As `critic_steps_on_one_batch`, but each of the critic's steps takes a chunk of the batch."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(4 * STEPS * BATCH, 6), batch_size=4 * BATCH):
        for chunk in rows.chunk(4):
            train_critic(maker, critic, judges, chunk)
        train_maker(maker, critic, makes)


def critic_steps_on_accumulated_chunks():
    """As `critic_steps_on_chunks`; a step has two passes, real and made rows go together."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(4 * STEPS * BATCH, 6), batch_size=4 * BATCH):
        chunks = iter(rows.chunk(4))
        for _ in range(2):
            judges.zero_grad()
            for _ in range(2):
                made = maker(torch.randn(BATCH, 2)).detach()
                loss = critic(torch.cat([made, next(chunks)])).pow(2).mean()
                loss.backward()
            judges.step()
            show(loss)
        train_maker(maker, critic, makes)


def critic_steps_after_the_maker():
    """The generator leads: its step comes first."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
        train_maker(maker, critic, makes)
        for _ in range(5):
            train_critic(maker, critic, judges, rows)


def critic_steps_on_chunks_after_the_maker():
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(4 * STEPS * BATCH, 6), batch_size=4 * BATCH):
        train_maker(maker, critic, makes)
        for chunk in rows.chunk(4):
            train_critic(maker, critic, judges, chunk)


def many_critic_steps_on_one_batch():
    """As `critic_steps_on_one_batch`, with so many steps that the critic might lead again."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
        for _ in range(12):
            train_critic(maker, critic, judges, rows)
        train_maker(maker, critic, makes)


def critic_steps_with_evaluations():
    """As `critic_steps_on_one_batch`; after each sixth batch the critic judges other rows."""
    maker, critic, makes, judges = maker_and_critic()
    others = DataLoader(torch.randn(5 * BATCH, 6), batch_size=BATCH)
    for step, rows in enumerate(DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH)):
        for _ in range(3):
            train_critic(maker, critic, judges, rows)
        train_maker(maker, critic, makes)
        if step % 6 == 5:
            critic.eval()
            with torch.no_grad():
                for held_out in others:
                    critic(held_out)
            critic.train()


def critic_step_for_the_penalty():
    """The critic's second step on a batch is for the gradients between real and made rows."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
        train_critic(maker, critic, judges, rows)
        share, made = torch.rand(BATCH, 1), maker(torch.randn(BATCH, 2)).detach()
        points = (share * rows + (1 - share) * made).requires_grad_()
        (slope,) = torch.autograd.grad(critic(points).sum(), points, create_graph=True)
        train((slope.norm(dim=1) - 1).pow(2).mean(), judges)
        train_maker(maker, critic, makes)


def critic_steps_with_a_penalty():
    """Each of the critic's steps on a batch has a term for the gradients."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
        for _ in range(3):
            made = maker(torch.randn(BATCH, 2))
            share = torch.rand(BATCH, 1)
            points = (share * rows + (1 - share) * made.detach()).requires_grad_()
            (slope,) = torch.autograd.grad(critic(points).sum(), points, create_graph=True)
            loss = critic(made).mean() - critic(rows).mean()
            train(loss + (slope.norm(dim=1) - 1).pow(2).mean(), judges)
        train_maker(maker, critic, makes)


def answers_to_what_is_read():
    """Four answers to each of two questions are made at once, and trained on in four passes."""
    model, optimizer = model_and_optimizer()
    for questions in DataLoader(torch.randn(STEPS * BATCH // 4, 6), batch_size=BATCH // 4):
        answers = questions.repeat_interleave(4, 0)
        with torch.no_grad():
            for _ in range(5):
                answers = answers + model(answers)
        optimizer.zero_grad()
        for part in answers.chunk(4):
            loss = model(part).pow(2).mean()
            loss.backward()
        optimizer.step()
        show(loss)


def views_with_a_teacher():
    """Two views of each row read go to the model and its teacher, accumulated over two reads."""
    model, optimizer = model_and_optimizer()
    teacher = copy.deepcopy(model)
    for step, rows in enumerate(DataLoader(torch.randn(2 * STEPS * BATCH, 6), batch_size=BATCH)):
        views = torch.cat([rows, rows + 0.1])
        with torch.no_grad():
            targets = teacher(views)
        loss = mse_loss(model(views), targets)
        loss.backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
            show(loss)


def made_rows_for_real_gradients():
    """Rows are trained, one for each class, until their gradients are those of a batch."""
    rows = torch.randn(4, 6, requires_grad=True)
    optimizer = torch.optim.SGD([rows], lr=0.01)
    for _ in range(STEPS):
        model, _ = model_and_optimizer()
        parameters, loss = list(model.parameters()), 0.0
        for number in range(4):
            real = model(torch.randn(BATCH, 6)).pow(2).mean()
            targets = torch.autograd.grad(real, parameters)
            made = model(rows[number : number + 1]).pow(2).mean()
            slopes = torch.autograd.grad(made, parameters, create_graph=True)
            loss = loss + sum(map(mse_loss, slopes, targets))
        train(loss, optimizer)


def steps_on_other_rows():
    """What is read serves the last step alone; the three before it are on rows of their own."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
        for _ in range(3):
            train_critic(maker, critic, judges, torch.randn(BATCH, 6))
        train(critic(rows).mean() - critic(maker(torch.randn(BATCH, 2))).mean(), makes)


def learners_in_short_turns():
    """Two models alternate every five batches, trained by the same code."""
    learners = [model_and_optimizer() for _ in range(2)]
    for _ in range(12):
        for model, optimizer in learners:
            for _ in range(5):
                time.sleep(0.002)
                train(model(torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def adapted_by_gradients_alone():
    """Half of a batch is for adaptation through `autograd.grad`; the other half goes backward."""
    model, optimizer = model_and_optimizer()
    for batch in DataLoader(torch.randn(2 * STEPS * BATCH, 6), batch_size=2 * BATCH):
        loss = model(batch[:BATCH]).pow(2).mean()
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        length = sum(slope.norm() for slope in slopes)
        train(length * model(batch[BATCH:]).pow(2).mean(), optimizer)


def layers_without_modules():
    """As `adapted_by_gradients_alone`, but only the loss is a module."""
    weights = torch.randn(6, 1, requires_grad=True)
    optimizer, loss = torch.optim.SGD([weights], lr=0.01), torch.nn.MSELoss()
    for batch in DataLoader(torch.randn(2 * STEPS * BATCH, 6), batch_size=2 * BATCH):
        one, other = batch[:BATCH], batch[BATCH:]
        (slope,) = torch.autograd.grad(loss(one @ weights, one[:, :1]), weights)
        train(loss(other @ (weights - 0.1 * slope), other[:, :1]), optimizer)


def segments_of_what_is_read():
    """Each of four segments of the texts read has a step."""
    model, optimizer = model_and_optimizer()
    for batch in DataLoader(torch.randn(STEPS // 4 * BATCH, 4, 6), batch_size=BATCH):
        for segment in batch.unbind(1):
            train(model(segment).pow(2).mean(), optimizer)


def steps_of_games_with_actions():
    """As `steps_of_games`; the loss has the entry of the action that each row took."""
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        taken = []
        for _ in range(5):
            logits = model(torch.randn(BATCH, 6))
            taken.append(logits[torch.arange(BATCH), torch.randint(3, (BATCH,))])
        train(torch.cat(taken).pow(2).mean(), optimizer)


class OfArrays(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)

    def forward(self, rows):
        return self.layer(torch.as_tensor(rows, dtype=torch.float32))


def steps_of_games_in_arrays():
    """As `steps_of_games`; the model makes tensors of arrays."""
    model = OfArrays()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        values = [model(torch.randn(BATCH, 6).double().numpy()) for _ in range(5)]
        train(torch.cat(values).pow(2).mean(), optimizer)


def coordinates_of_points():
    """Gradients by each coordinate are wanted, so the coordinates are joined for the model."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        place, time = (torch.rand(4 * BATCH, 1, requires_grad=True) for _ in range(2))
        value = model(torch.cat([place, time], 1))
        (slope,) = torch.autograd.grad(value.sum(), place, create_graph=True)
        border = model(torch.rand(BATCH, 2))
        train((slope + value).pow(2).mean() + border.pow(2).mean(), optimizer)


def molecules_of_several_sizes():
    """As `molecules_and_their_atoms`, but each molecule has another number of atoms."""
    model = Molecules()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numbers = torch.arange(BATCH).repeat_interleave(torch.arange(BATCH) + 2)
    for _ in range(STEPS):
        atoms = torch.randn(len(numbers), 3, requires_grad=True)
        energies = model(atoms, numbers)
        (forces,) = torch.autograd.grad(energies.sum(), atoms, create_graph=True)
        train(energies.pow(2).mean() + forces.pow(2).mean(), optimizer)


class Molecules(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, atoms, numbers):
        return torch.zeros(BATCH).index_add(0, numbers, self.layer(atoms).tanh().squeeze(1))


def joined_losses():
    """The means of two terms are joined, and weighted."""
    model, optimizer = model_and_optimizer()
    weights = torch.tensor([0.2, 0.8])
    for _ in range(STEPS):
        out = model(torch.randn(BATCH, 6))
        train((torch.stack([out.pow(2).mean(), out.abs().mean()]) * weights).sum(), optimizer)


def joined_losses_of_others():
    """As `joined_losses`, but of different rows: two data sets, or two views."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        losses = [model(torch.randn(BATCH, 6)).pow(2).mean() for _ in range(2)]
        train(torch.stack(losses).mean(), optimizer)


def joined_losses_of_rows():
    """The loss of each row is a number of its own."""
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        out = model(torch.randn(BATCH, 6))
        train(torch.stack([row.pow(2).mean() for row in out]).mean(), optimizer)


def gradients_of_copies():
    """A step takes the gradients of two copies, each after three steps of its own optimizer."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        totals = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for _ in range(2):
            inner = copy.deepcopy(model)
            inner_optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)
            for _ in range(3):
                train(inner(torch.randn(BATCH, 6)).pow(2).mean(), inner_optimizer)
            inner(torch.randn(BATCH, 6)).pow(2).mean().backward()
            for total, parameter in zip(totals, inner.parameters()):  # noqa: B905
                total.add_(parameter.grad)
        for parameter, total in zip(model.parameters(), totals):  # noqa: B905
            parameter.grad = total
        optimizer.step()


def embeddings_in_parts():
    """The loss compares all rows of two models; each part then goes forward and backward again."""
    models = torch.nn.Linear(6, 4), torch.nn.Linear(5, 4)
    optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.01)
    for _ in range(STEPS):
        pairs = torch.randn(BATCH, 6), torch.randn(BATCH, 5)
        with torch.no_grad():
            kept = [model(rows) for model, rows in zip(models, pairs)]  # noqa: B905
        for embeddings in kept:
            embeddings.requires_grad_()
        loss = (kept[0] @ kept[1].T).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for model, rows, embeddings in zip(models, pairs, kept):  # noqa: B905
            for part, gradient in zip(rows.chunk(4), embeddings.grad.chunk(4)):  # noqa: B905
                model(part).backward(gradient)
        optimizer.step()
        show(loss)


def chosen_rows():
    """Each step trains on the worse half of what is read."""
    model, optimizer = model_and_optimizer()
    for batch in DataLoader(torch.randn(BATCH * STEPS, 6), batch_size=BATCH):
        with torch.no_grad():
            chosen = model(batch).pow(2).squeeze(1).topk(BATCH // 2)[1]
        train(model(batch[chosen]).pow(2).mean(), optimizer)


def points_joined_twice():
    """The same points are joined for the equation and for its data."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    place, time = (torch.rand(BATCH, 1, requires_grad=True) for _ in range(2))
    for _ in range(STEPS):
        value = model(torch.cat([place, time], 1))
        (slope,) = torch.autograd.grad(value.sum(), place, create_graph=True)
        data = model(torch.cat([place, time], 1))
        train((slope + value).pow(2).mean() + (data - 1).pow(2).mean(), optimizer)


class Bags(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.EmbeddingBag(50, 6)

    def forward(self, words, offsets):
        return self.layer(words, offsets)


def words_with_offsets():
    """The words of all texts are in one vector, beside where each text begins."""
    model = Bags()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    offsets = torch.arange(BATCH).cumsum(0)
    for _ in range(STEPS):
        words = torch.randint(50, (int(offsets[-1]) + 3,))
        train(model(words, offsets).pow(2).mean(), optimizer)


def loader_whose_batches_are_kept():
    """After its first epoch, `cycle` yields the small loader's batches again without reading."""
    model, optimizer = model_and_optimizer()
    large = DataLoader(torch.randn(6 * STEPS * BATCH, 6), batch_size=6)
    small = itertools.cycle(DataLoader(torch.randn(20, 6), batch_size=2))
    for rows, others in zip(large, small):  # noqa: B905
        train(model(torch.cat([rows, others])).pow(2).mean(), optimizer)


def epochs_in_turns():
    """Each of two models is trained for an epoch of the loader, by code of its own."""
    models = [model_and_optimizer() for _ in range(2)]
    loader = DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH)
    (first, steps), (second, others) = models
    for _ in range(4):
        for rows in loader:
            train((first(rows) + second(rows).detach()).pow(2).mean(), steps)
        for rows in loader:
            train((second(rows) - first(rows).detach()).pow(2).mean(), others)


def loader_in_another_thread():
    """A thread reads ahead, as far as its queue allows."""
    model, optimizer = model_and_optimizer()
    batches = queue.Queue(4)

    def read():
        for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
            batches.put(rows)
        batches.put(None)

    threading.Thread(target=read).start()
    while (rows := batches.get()) is not None:
        train(model(rows).pow(2).mean(), optimizer)


def tasks_of_what_is_read():
    """The model adapts to each task of the batch in three steps; another step is over all tasks."""
    model, optimizer = model_and_optimizer()
    inner_optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for tasks in DataLoader(torch.randn(STEPS * BATCH, 10, 6), batch_size=BATCH):
        weights = copy.deepcopy(model.state_dict())
        gradients = []
        for task in tasks:
            for _ in range(3):
                train(model(task[:5]).pow(2).mean(), inner_optimizer)
            loss = model(task[5:]).pow(2).mean()
            gradients.append(torch.autograd.grad(loss, model.parameters()))
            model.load_state_dict(weights)
        for parameter, *parts in zip(model.parameters(), *gradients):  # noqa: B905
            parameter.grad = torch.stack(parts).mean(0)
        optimizer.step()


def rollouts_on_what_is_read():
    """Answers to each batch of questions are made for a while, then read for four steps."""
    model, optimizer = model_and_optimizer()
    for questions in DataLoader(torch.randn(2 * STEPS, 6), batch_size=4):
        with torch.no_grad():
            made = questions.repeat(2 * BATCH, 1)
            for _ in range(20):
                time.sleep(0.001)
                made = made + model(made)
        for rows in DataLoader(made, batch_size=2 * BATCH):
            train(model(rows).pow(2).mean(), optimizer)


class OfTime(torch.nn.Module):
    """Applies weights that it makes of the time to all rows."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 36)

    def forward(self, time, rows):
        weights = self.layer(time.view(1, 1)).view(6, 6, 1)
        return (rows.expand(6, *rows.shape) @ weights).tanh().mean(0)


def weights_of_time():
    """Products of rows and weights, which depend on data, are no attention."""
    model = OfTime()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        train(model(torch.rand(()), torch.randn(BATCH, 6)).pow(2).mean(), optimizer)


def many_losses_of_others():
    """Each of twelve batches has a term of the loss: steps of games, or views."""
    model, optimizer = model_and_optimizer()
    for _ in range(STEPS):
        train(sum(model(torch.randn(BATCH, 6)).pow(2).mean() for _ in range(12)), optimizer)


def points_with_data_among_others():
    """The first points have data, and all are for the equation, which has only gradients."""
    model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        points = torch.rand(BATCH, 1, requires_grad=True)
        values = model(points)
        (slopes,) = torch.autograd.grad(values.sum(), points, create_graph=True)
        train(values[: BATCH // 4].pow(2).mean() + (slopes - 1).pow(2).mean(), optimizer)


def rollouts_before_epochs():
    """Rows are made for a while, then read in an epoch of 24 steps."""
    model, optimizer = model_and_optimizer()
    for _ in range(2):
        rows = torch.randn(STEPS * BATCH, 6)
        with torch.no_grad():
            for _ in range(40):
                time.sleep(0.001)
                rows = rows + model(rows)
        for batch in DataLoader(rows, batch_size=BATCH):
            train(model(batch).pow(2).mean(), optimizer)


def all_step_several_times():
    """Of two optimizers, one takes three steps for each batch that is read, the other two."""
    maker, critic, makes, judges = maker_and_critic()
    for rows in DataLoader(torch.randn(STEPS * BATCH, 6), batch_size=BATCH):
        for _ in range(3):
            train_critic(maker, critic, judges, rows)
        for _ in range(2):
            train_maker(maker, critic, makes)


def decays_by_gradients_alone():
    """After each twenty steps, another optimizer takes gradients through the passes of all rows,
    which `autograd.grad` makes alone.
    """
    model, optimizer = model_and_optimizer()
    decay = torch.nn.Parameter(torch.zeros(()))
    other = torch.optim.SGD([decay], lr=0.01)
    rows = torch.randn(64 * BATCH, 6)
    for _ in range(4):
        for _ in range(20):
            train(model(rows[torch.randperm(64 * BATCH)[:BATCH]]).pow(2).mean(), optimizer)
        squares = sum(parameter.pow(2).sum() for parameter in model.parameters())
        passes = [model(rows).pow(2).mean() for _ in range(40)]
        loss = sum(passes) + decay.exp() * squares
        gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        product = sum(gradient.pow(2).sum() for gradient in gradients)
        (decay.grad,) = torch.autograd.grad(product, [decay])
        other.step()


for name in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        print(name, os.getpid())
        torch.manual_seed(3)
        globals()[name]()
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} failed")
