"""The breakdown: the account of the trainers' wall time, made by following waits through the scene."""
