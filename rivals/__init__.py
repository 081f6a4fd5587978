"""Schedulers that hops is compared with: entry points of the group ``hops.rivals``.

The simulator plays them (``hopsctl simulate --policy sia``); a site cannot run hopsd with them.
"""
