"""Carries out steps: jobs leave their nodes, held jobs are released and watched until they run."""
