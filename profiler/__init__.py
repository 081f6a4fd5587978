"""The PyTorch timing plugin, installed as hops_profiler. Imports nothing of hopsd."""
