"""Logs of jobs as they ran: files of other clusters, and the site played again."""
