"""The parts of one iteration on one GPU type: `hopsctl estimate --theory`."""

from __future__ import annotations

from hopsd.core.speed.throughput import BasicTimes, DataTime, Pattern, PeerWait
from hopsd.formats.item import Item, at_least_zero, parse, positive

_TIMES = "batch_size params pattern t_f t_b t_u t_d t_w b_link b_net"


def read_theory(document: str) -> BasicTimes:
    """Read a file of basic times.

    Raises:
        FormatError: the message starts with the path of what is wrong.
    """
    return read_times(parse(document))


def read_times(item: Item) -> BasicTimes:
    """Read basic times, as part of a document; t_f and t_b must not both be 0."""
    fields = item.fields(_TIMES)
    times = BasicTimes(
        batch_size=fields["batch_size"].whole(minimum=1),
        params=at_least_zero(fields["params"]),
        pattern=fields["pattern"].choice(Pattern),
        t_f=at_least_zero(fields["t_f"]),
        t_b=at_least_zero(fields["t_b"]),
        t_u=at_least_zero(fields["t_u"]),
        t_d=_data(fields["t_d"]),
        b_link=positive(fields["b_link"]),
        b_net=positive(fields["b_net"]),
        t_w=_wait(fields["t_w"]),
    )
    if times.t_f + times.t_b <= 0.0:
        fields["t_f"].refuse("above 0 where t_b is 0: an iteration takes some time")
    return times


def _data(item: Item) -> DataTime:
    """Read the data time: a mean may be null only if its case never occurs; a null sigma is 0."""
    fields = item.fields("p_cache mu_cache sigma_cache mu_load sigma_load")
    p_cache = fields["p_cache"].number(minimum=0, maximum=1)
    return DataTime(
        p_cache=p_cache,
        mu_cache=_mean(fields["mu_cache"], occurs=p_cache > 0),
        sigma_cache=fields["sigma_cache"].or_none(at_least_zero) or 0.0,
        mu_load=_mean(fields["mu_load"], occurs=p_cache < 1),
        sigma_load=fields["sigma_load"].or_none(at_least_zero) or 0.0,
    )


def _mean(item: Item, *, occurs: bool) -> float:
    if item.value is None and not occurs:
        return 0.0
    return at_least_zero(item)


def _wait(item: Item) -> PeerWait:
    fields = item.fields("cache load")
    return PeerWait(at_least_zero(fields["cache"]), at_least_zero(fields["load"]))
