"""A training's state leaves the device and returns, unnoticed by the training.

Each test is a separate process: the state is everything that a process has created.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.live

PRELUDE = """
import gc, io, threading, torch
from torch import nn
from hops_profiler.lane import pipeline
from hops_profiler.lane.state import State
gc.collect(); gc.freeze()
torch.manual_seed(0)
state = State(torch.device("cpu"))
def device_bytes():
    return state.look().size
def hold_back(layer):
    "An event that the layer's parameters wait for on their way back."
    gate, load = threading.Event(), pipeline.HostCopy.load
    late = {p.untyped_storage()._cdata for p in layer.parameters()}
    def slow(item):
        if item.storage._cdata in late:
            assert gate.wait(60)
        load(item)
    pipeline.HostCopy.load = slow
    return gate
"""


def runs(text: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(text)], capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


@pytest.mark.long
def test_leaving_state_is_erased_first_and_takes_no_room() -> None:
    runs(
        """
        model = nn.Sequential(nn.Linear(50, 60), nn.BatchNorm1d(60))
        teacher = nn.Linear(50, 60)  # in no optimizer
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(4, 50)).sum().backward()
        optimizer.step()
        whole, view = model[0].weight, model[0].weight[3]
        before = [t.clone() for t in (*model.state_dict().values(), *teacher.state_dict().values())]
        step = [t.clone() for s in optimizer.state.values() for t in s.values()]
        gradient = whole.grad.clone()
        # Parameters, gradients and two moments; Adam's step counts; BatchNorm's buffers; teacher.
        trained = sum(p.numel() for p in model.parameters())
        expected = 4 * (4 * trained + 4 + 2 * 60 + 51 * 60) + 8
        assert device_bytes() == expected, (device_bytes(), expected)
        erased = []
        resize = torch.UntypedStorage.resize_
        def checked(storage, size):
            if size == 0:
                content = torch.empty(0, dtype=torch.uint8).set_(storage)
                assert content.numel() and not content.any()
                erased.append(content.numel())
            return resize(storage, size)
        torch.UntypedStorage.resize_ = checked
        for load in (state.load, state.load_behind):
            erased.clear()
            state.evict(state.look())
            assert sum(erased) == expected
            assert device_bytes() == 0
            load()
            state.settle()
            after = (*model.state_dict().values(), *teacher.state_dict().values())
            assert all(torch.equal(a, b) for a, b in zip(before, after))
            kept = [t for s in optimizer.state.values() for t in s.values()]
            assert all(torch.equal(a, b) for a, b in zip(step, kept))
            assert torch.equal(whole.grad, gradient)
            assert view.data_ptr() == whole[3].data_ptr()
            assert device_bytes() == expected
        """
    )


@pytest.mark.long
def test_a_training_whose_state_is_moved_computes_the_same() -> None:
    """Weights are used outside their module, tied, and saved at once; gradients accumulate."""
    runs(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(30, 16)
                self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
                self.memory = nn.LSTM(16, 16, batch_first=True)
                self.norm = nn.BatchNorm1d(16)
            def forward(self, x):
                h = self.words(x)
                h = h + self.attention(h, h, h)[0]
                h = self.norm(self.memory(h)[0].transpose(1, 2)).transpose(1, 2)
                return nn.functional.linear(h, self.words.weight)
        def train(move):
            torch.manual_seed(0)
            net = Net()
            optimizer = torch.optim.AdamW(net.parameters())
            seen = []
            for i in range(12):
                for _ in range(2):
                    x = torch.randint(30, (4, 7))
                    loss = nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten())
                    loss.backward()
                    seen.append(float(loss))
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                if move:
                    state.evict(state.look())
                    state.load_behind()
                if i % 4 == 1:
                    file = io.BytesIO()
                    torch.save((optimizer.state_dict(), net.state_dict()), file)
                    seen.append(hash(file.getvalue()))
                if i % 4 == 2:
                    seen.append(float(sum(p.detach().norm() for p in net.parameters())))
                if i % 4 == 3:
                    seen.append(net.words.weight.detach().numpy().tobytes())
                optimizer.zero_grad(set_to_none=i % 2 == 0)
            state.settle()
            return seen, [t.clone() for t in net.state_dict().values()]
        (losses, weights), (moved, others) = train(False), train(True)
        assert losses == moved
        assert all(torch.equal(a, b) for a, b in zip(weights, others))
        """
    )


@pytest.mark.long
def test_the_first_layer_runs_before_the_last_one_has_arrived() -> None:
    runs(
        """
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(1, 10)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        state.evict(state.look())
        gate, first = hold_back(model[1]), model[0].weight
        there = []
        def after(layer, given, result):
            with torch._C.DisableTorchFunction():
                there.append(model[1].weight.untyped_storage().nbytes())
            gate.set()
        model[0].register_forward_hook(after)
        state.load_behind()
        model(torch.ones(1, 10)).sum().backward()
        optimizer.step()
        assert there == [0]
        assert first.untyped_storage().nbytes() == 400
        """
    )


@pytest.mark.long
def test_a_handler_that_saves_while_the_state_arrives_saves_all_of_it() -> None:
    """The signal arrives within a call of PyTorch, where no mode sees the handler's reads."""
    runs(
        """
        import signal
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        before = [t.clone() for t in model.state_dict().values()]
        gate = hold_back(model[1])
        saved = []
        def save(number, frame):
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            saved.append((number, file))
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            signal.signal(number, save)
        linear = nn.functional.linear
        def interrupted(*args):
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                signal.raise_signal(number)
            gate.set()
            return linear(*args)
        interrupted.__name__ = "linear"
        state.evict(state.look())
        state.load_behind()
        args = (torch.ones(1, 10), model[0].weight)
        torch.overrides.handle_torch_function(interrupted, args, *args)
        state.settle()
        assert [number for number, _ in saved] == [signal.SIGUSR1, signal.SIGUSR2], saved
        signal.raise_signal(signal.SIGHUP)
        assert len(saved) == 3
        for _, file in saved:
            file.seek(0)
            assert all(map(torch.equal, before, torch.load(file).values()))
        assert all(
            signal.getsignal(n) is save for n in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
        )
        """
    )


@pytest.mark.long
def test_intermediates_of_a_layer_are_freed_before_the_backward_pass_ends() -> None:
    runs(
        """
        import weakref
        model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(20, 20), nn.Tanh())])
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for moved in (False, True):
            alive, seen = {}, []
            def pack(tensor):
                kept = tensor.detach()
                if tensor.shape == (7, 20) and not isinstance(tensor, nn.Parameter):
                    alive[len(alive)] = weakref.ref(kept)
                return kept
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
                loss = model(torch.ones(7, 20, requires_grad=True)).sum()
            count = len(alive)
            assert count == sum(ref() is not None for ref in alive.values()) >= 7
            model[0].weight.register_hook(
                lambda g: seen.append(sum(ref() is not None for ref in alive.values())))
            loss.backward()
            assert seen[-1] <= 2, seen  # the first layer's own
            optimizer.step()
            state.evict(state.look())
            state.load_behind()
        """
    )


@pytest.mark.long
def test_a_state_that_cannot_be_moved_names_the_obstacle() -> None:
    runs(
        """
        model = nn.Linear(3, 3)
        assert state.look().obstacle == ""
        class Odd(torch.Tensor):
            pass
        model.odd = nn.Parameter(torch.ones(3).as_subclass(Odd))
        assert "Odd" in state.look().obstacle
        del model.odd
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        assert state.look().obstacle == "it has a process group"
        assert State(torch.device("cpu"), has_peers=True).look().obstacle == ""
        from torch.distributed.fsdp import fully_shard
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        fully_shard(model, mesh=mesh)
        assert state.look().obstacle == "it is sharded by FSDP"
        torch.cuda.CUDAGraph = type("CUDAGraph", (), {})  # there is no GPU to make a real one on
        graph = torch.cuda.CUDAGraph()
        torch.distributed.destroy_process_group()
        del model
        gc.collect()
        assert state.look().obstacle == "it has a CUDA graph"
        """
    )
