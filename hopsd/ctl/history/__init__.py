"""Commands about the past: accounting, records, replays."""
