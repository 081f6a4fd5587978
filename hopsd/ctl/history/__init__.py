"""Commands on what happened, and what might have: accounting, records, replays."""
