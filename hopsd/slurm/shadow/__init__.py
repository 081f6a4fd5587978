"""A port that changes nothing, and plans for plain jobs, too."""
