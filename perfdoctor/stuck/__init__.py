"""Whether a job is stuck, and on what: the wait is followed to whoever does not wait for anybody else."""
