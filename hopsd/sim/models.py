"""The models of the paper's table 2 and the servers of its sections 4.2 and 4.3, as numbers.

The paper prints neither iteration times nor throughputs. So speeds are modelled by its
equations 1 to 5 from public figures: parameters and forward operations of the published
architectures, peak FP32 rate and memory bandwidth of the GPUs from their data sheets, CPU cores
of the servers from section 4.2. ``efficiency``, data loading and link rates are assumptions in
the usual range; they are marked as such below.
"""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.core.speed.throughput import BasicTimes, DataTime, Pattern
from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.scenario import Links


@dataclass(frozen=True, slots=True)
class Hardware:
    """A GPU type of a server type.

    ``flops``: peak FP32 per second; ``memory_bytes``: per second; ``cores``: CPU cores per GPU;
    ``caches_imagenet``: whether the server's memory holds the data set (about 140 GiB) in
    addition to what eight jobs need.
    """

    gpu_type: GpuType
    flops: float
    memory_bytes: float
    cores: float
    caches_imagenet: bool
    links: Links


_INFINIBAND = 1.1e9
"""Assumption: 100 Gbit/s shared by a server's GPUs, FP32 gradients, ring all-reduce."""

GTX1080TI = Hardware(
    GpuType("gtx1080ti"), 11.34e12, 484e9, 3.0, False, Links(b_link=2.0e9, b_net=_INFINIBAND)
)
TITANXP = Hardware(
    GpuType("titanxp"), 12.15e12, 548e9, 3.0, False, Links(b_link=2.0e9, b_net=_INFINIBAND)
)
RTX3090_192G_4 = Hardware(
    GpuType("rtx3090-192g"), 35.58e12, 936e9, 6.0, False, Links(b_link=2.5e9, b_net=_INFINIBAND)
)
RTX3090_384G_4 = Hardware(
    GpuType("rtx3090-384g"), 35.58e12, 936e9, 8.0, True, Links(b_link=2.5e9, b_net=_INFINIBAND)
)
RTX3090_192G_8 = Hardware(
    GpuType("rtx3090-192g"), 35.58e12, 936e9, 3.0, False, Links(b_link=2.5e9, b_net=_INFINIBAND)
)
RTX3090_384G_8 = Hardware(
    GpuType("rtx3090-384g"), 35.58e12, 936e9, 4.0, True, Links(b_link=2.5e9, b_net=_INFINIBAND)
)
RTX3090_384G_5320 = Hardware(
    GpuType("rtx3090-384g-5320"), 35.58e12, 936e9, 6.5, True, Links(2.5e9, _INFINIBAND)
)


@dataclass(frozen=True, slots=True)
class PresetModel:
    """A row of table 2: one model on one data set.

    ``params``: number of parameters; ``flops``: forward operations per sample (two per
    multiply-add); ``efficiency``: share of the peak that its layers reach (assumption);
    ``load_ms``: CPU milliseconds to load a sample (assumption); ``large_data``: only a large
    server's memory can cache the data set; ``category``: S, M, L or XL of figure 8.
    """

    name: WorkloadName
    category: str
    batch: int
    params: float
    flops: float
    efficiency: float
    load_ms: float
    large_data: bool = False
    adam: bool = False


def _imagenet(
    name: str, category: str, batch: int, params: float, flops: float, efficiency: float
) -> PresetModel:
    workload = WorkloadName(f"{name}-imagenet")
    return PresetModel(workload, category, batch, params, flops, efficiency, 6.0, large_data=True)


def _cifar10(
    name: str, category: str, batch: int, params: float, flops: float, efficiency: float
) -> PresetModel:
    workload = WorkloadName(f"{name}-cifar10")
    return PresetModel(workload, category, batch, params, flops, efficiency, 0.05)


MODELS = (
    _imagenet("resnet50", "XL", 128, 25.6e6, 8.2e9, 0.45),
    _cifar10("resnet18", "S", 256, 11.2e6, 1.1e9, 0.35),
    _imagenet("vgg11", "L", 32, 132.9e6, 15.2e9, 0.55),
    _cifar10("vgg13", "S", 128, 28.3e6, 0.46e9, 0.45),
    _imagenet("convnext_base", "L", 32, 88.6e6, 30.8e9, 0.30),
    _cifar10("convnext_base", "S", 64, 87.6e6, 0.62e9, 0.20),
    _imagenet("densenet161", "L", 32, 28.7e6, 15.6e9, 0.30),
    _cifar10("densenet161", "S", 64, 26.5e6, 0.32e9, 0.15),
    _imagenet("mobilenet_v2", "M", 64, 3.5e6, 0.6e9, 0.15),
    _cifar10("mobilenet_v2", "S", 64, 2.2e6, 0.18e9, 0.10),
    _imagenet("regnet_y_8gf", "L", 32, 39.4e6, 17.0e9, 0.30),
    _cifar10("regnet_y_8gf", "M", 32, 37.4e6, 0.35e9, 0.15),
    PresetModel(WorkloadName("distilbert-imdb"), "L", 128, 66.4e6, 22e9, 0.50, 0.2, adam=True),
    PresetModel(WorkloadName("vit_b16-food101"), "M", 48, 85.9e6, 35e9, 0.50, 6.0, adam=True),
    PresetModel(WorkloadName("macbert-c3"), "M", 8, 102.3e6, 97e9, 0.50, 0.5, adam=True),
    PresetModel(
        WorkloadName("wav2vec2-commonlanguage"), "M", 16, 94.4e6, 70e9, 0.45, 8.0, adam=True
    ),
    PresetModel(WorkloadName("gpt2_medium-wikitext"), "L", 8, 354.8e6, 770e9, 0.50, 0.2, adam=True),
)

BACKWARD = 2.0
"""Backward costs twice the forward operations: gradients of the inputs and of the weights."""

LAUNCH_SECONDS = 5e-3
"""Assumption: the minimum time of a pass even with small tensors (kernel launches)."""

UPDATE_BYTES = {False: 20.0, True: 28.0}
"""Memory traffic per parameter: SGD with momentum reads 3 and writes 2 floats, Adam 4 and 3."""

LOAD_MISS = (0.3, 2.5)
"""Assumption: if memory cannot hold the data set, how often a batch comes from disk, and by what
factor that is slower."""


def basic_times(model: PresetModel, hardware: Hardware) -> BasicTimes:
    """The basic times that a profiler would measure for ``model`` on one GPU of ``hardware``."""
    compute = model.flops * model.batch / (hardware.flops * model.efficiency)
    forward = max(LAUNCH_SECONDS, compute)
    data = model.load_ms * 1e-3 * model.batch / hardware.cores
    misses = model.large_data and not hardware.caches_imagenet
    share, slower = LOAD_MISS
    return BasicTimes(
        batch_size=model.batch,
        params=model.params,
        pattern=Pattern.OVERLAPPED,
        t_f=forward,
        t_b=BACKWARD * forward,
        t_u=model.params * UPDATE_BYTES[model.adam] / hardware.memory_bytes,
        t_d=DataTime(1.0 - share if misses else 1.0, data, 0.0, data * slower, 0.0),
        b_link=hardware.links.b_link,
        b_net=hardware.links.b_net,
    )
