"""Commands that plan or simulate."""
