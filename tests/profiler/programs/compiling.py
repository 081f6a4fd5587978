"""Use PyTorch's compiler after a training has begun; print what a script that imports it sees."""

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

import torch
from torch import distributed, nn
from torch.optim.optimizer import _use_grad_for_differentiable


class Layers(nn.Module):
    """A network with more than one bucket of gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(600, 600) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


def training() -> Any:
    """Begin a training, take its first two steps, and return its step function."""
    distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(3, 6)).square().sum()
        loss.backward()
        optimizer.step()
        return float(loss)

    print(step(), step())
    return step


def functions() -> None:
    """The compiler skips functions that ran before its import like those that run after it."""
    step = training()
    print(torch.compile(step, backend="aot_eager")(), step())
    for method in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.load_state_dict):
        disable_mark = getattr(method.__wrapped__, "__dynamo_disable", None)
        print(getattr(disable_mark, "_torchdynamo_disable", None))
    counters = torch._dynamo.utils.counters
    print({kind: dict(counts) for kind, counts in counters.items()})
    print(torch.func.vmap(torch.func.grad(lambda x: (x * x).sum()))(torch.ones(2, 3)))
    exported_program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    print(exported_program.graph_signature.user_outputs)


def parallel() -> None:
    """Graphs are cut where DistributedDataParallel communicates, and the script's settings hold."""
    training()
    nodes = []

    def backend(graph: Any, _: object) -> Any:
        nodes.append(len(graph.graph.nodes))
        return graph

    model = nn.parallel.DistributedDataParallel(Layers(), bucket_cap_mb=1)
    torch.compile(model, backend=backend)(torch.ones(2, 600)).sum().backward()
    print(nodes, model.module.layers[0].weight.grad.sum().item())
    torch._dynamo.config.optimize_ddp = "python_reducer"
    print(nn.parallel.DistributedDataParallel(nn.Linear(2, 2))._use_python_reducer)


def names() -> None:
    """All references, old and new, are to the same module object."""
    training()
    torch._dynamo.list_backends = print
    module_object = sys.modules["torch._dynamo"]
    torch._dynamo.config.recompile_limit = 3
    torch._dynamo.list_backends("mine", torch._dynamo.config.recompile_limit)
    import torch._dynamo as dynamo
    from torch._dynamo import disable, graph_break

    print(dynamo is module_object is sys.modules["torch._dynamo"], type(dynamo), dynamo)
    print(disable is dynamo.disable, graph_break is dynamo.graph_break, hasattr(dynamo, "none"))
    print(dynamo.__spec__.name, type(dynamo.__loader__), list(dynamo.__path__), dynamo.__file__)
    print(sorted(vars(dynamo)) == dir(dynamo), "__getattr__" in vars(distributed))


def packages() -> None:
    """Importing it imports other packages, which import it again or need its registrations."""
    torch.optim.SGD([torch.ones(1)]).zero_grad()
    for case in (
        save_nested, load_nested, save_spread, load_spread, list_classes,
        import_on_the_way, use_unimported,
    ):  # fmt: skip
        sys.stdout.flush()
        if not os.fork():
            case()
            sys.stdout.flush()
            os._exit(0)
        os.wait()


def save_nested() -> None:
    values, offsets = torch.ones(6, 3), torch.tensor([0, 2, 6])
    jagged_tensor = torch.nested.nested_tensor_from_jagged(
        values, offsets, min_seqlen=2, max_seqlen=4
    )
    torch.save(jagged_tensor, "nested.pt")


def load_nested() -> None:
    print(torch.load("nested.pt").offsets())


def save_spread() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (1,))
    torch.save(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]), "spread.pt")


def load_spread() -> None:
    distributed.init_process_group("gloo")
    print(type(torch.load("spread.pt")))


def list_classes() -> None:
    torch.save(dict.fromkeys("ab", torch.ones(2)), "plain.pt")
    with torch.serialization.safe_globals([set]):
        print(torch.load("plain.pt"))
    print(sorted(safe_class.__qualname__ for safe_class in torch.serialization.get_safe_globals()))
    torch.serialization.clear_safe_globals()
    print(torch.serialization.get_safe_globals(), torch.load("plain.pt"))


def import_submodule() -> None:
    import torch._dynamo.config

    torch._dynamo.config.suppress_errors = True

    def raise_error(*_: object) -> Any:
        raise RuntimeError("broken")

    logging.disable()
    print(torch.compile(lambda x: x + 1, backend=raise_error)(torch.ones(1)))
    print(torch._dynamo.config is torch._dynamo.convert_frame.config)


def from_submodule() -> None:
    from torch._dynamo.backends import debugging, registry
    from torch._dynamo.eval_frame import OptimizedModule
    from torch._dynamo.utils import counters

    print(isinstance(torch.compile(nn.Linear(2, 2), backend="eager"), OptimizedModule))
    print(OptimizedModule is torch._dynamo.OptimizedModule)
    print(registry.list_backends is torch._dynamo.list_backends, debugging.__name__)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    print(dict(counters["frames"]))


def import_on_the_way() -> None:
    import torch.distributed.pipelining
    import torch.nn.attention.bias
    from torch.distributed.tensor import DTensor

    print(DTensor, torch.distributed.pipelining, isinstance(1, torch._dynamo.OptimizedModule))


def use_unimported() -> None:
    print(ctypes.util.find_library("none"))
    print(hasattr(torch.utils, "tensorboard"), hasattr(torch.distributed, "nothing"))
    print(torch.distributed.fsdp.FullyShardedDataParallel)


def threads() -> None:
    """Some threads train and some compile; none sees a partially imported module."""
    print(in_threads(lambda: None))


def fork() -> None:
    """Fork while a thread imports the compiler."""

    def forks() -> None:
        while "torch._dynamo" not in sys.modules:
            time.sleep(0.01)
        if not os.fork():
            signal.alarm(60)
            torch._dynamo.reset()
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.wait()[1]))

    print(in_threads(forks))


def in_threads(run: Any) -> list[BaseException]:
    """Return the errors of six threads that train and compile while this one calls ``run``."""
    go = threading.Barrier(6)
    errors: list[BaseException] = []

    def train() -> None:
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([weight])
        go.wait()
        for _ in range(300):
            weight.grad = torch.ones(3)
            optimizer.step()
            torch.optim.SGD([weight])

    def compiles() -> None:
        go.wait()
        torch._dynamo.config  # noqa: B018
        from torch._dynamo import OptimizedModule  # noqa: F401

    def record_errors(run: Any) -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=record_errors, args=(target,)) for target in [train, compiles] * 3
    ]
    for target in threads:
        target.start()
    run()
    for target in threads:
        target.join()
    return errors


def optimizers() -> None:
    """Try each of PyTorch's optimizers with its options, and one defined by the script."""

    class PlainOptimizer(torch.optim.Optimizer):
        def __init__(self, weights: Any) -> None:
            super().__init__(weights, {"differentiable": False})

        @_use_grad_for_differentiable
        def step(self, closure: Any = None) -> None:
            for weight in self.param_groups[0]["params"]:
                weight.sub_(weight.grad)

    kinds = filter(made_of_tensors, map(vars(torch.optim).get, sorted(vars(torch.optim))))
    for kind in [*kinds, PlainOptimizer]:
        for options in ({}, {"foreach": True}, {"differentiable": True}, {"maximize": True}):
            weight = nn.Parameter(torch.ones(3, 2))
            try:
                optimizer = kind([weight], **options)
            except TypeError:
                continue
            schedule = torch.optim.lr_scheduler.ConstantLR(optimizer) if options else None
            for has_grad in (False, True):
                optimizer.zero_grad()
                optimizer.register_step_post_hook(lambda *_: print("stepped"))
                weight.grad = torch.arange(6.0).view(3, 2)
                with torch.set_grad_enabled(has_grad):
                    try:
                        optimizer.step()
                    except RuntimeError as error:  # differentiable: an in-place update of a leaf
                        print(error)
                    print(kind.__name__, options, torch.is_grad_enabled(), weight.tolist())
                if schedule:
                    schedule.step()
            restored_optimizer = kind([nn.Parameter(torch.ones(3, 2))], **options)
            restored_optimizer.load_state_dict(optimizer.state_dict())
            restored_optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
            print(restored_optimizer, list(restored_optimizer.state_dict()["state"]))


def made_of_tensors(kind: Any) -> bool:
    """Exclude the abstract class, and optimizers that need a closure or sparse gradients."""
    excluded_kinds = (torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
    return (
        isinstance(kind, type)
        and issubclass(kind, torch.optim.Optimizer)
        and kind not in excluded_kinds
    )


globals()[sys.argv[1]]()
