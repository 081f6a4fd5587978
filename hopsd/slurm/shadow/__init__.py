"""A port that changes nothing and reads plain jobs as hops jobs, too."""
