"""The job, before and while it is watched: its processes, and what may be seen of them."""
