"""Schedulers that hops is compared with: entry points of the group ``hops.rivals``.

Only the simulator runs them (``hopsctl simulate --policy sia``); hopsd does not accept them.
"""
