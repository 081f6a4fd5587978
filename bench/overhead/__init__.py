"""Overhead of the timing plugin in trainings and in other Python programs of a job."""
