"""Logs of jobs as they ran: files of other clusters, and replays of the site's past."""
