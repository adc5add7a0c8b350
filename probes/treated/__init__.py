"""What `perfdoctor treat` puts into the processes of a job: it watches steps, changes settings, takes saves aside.

Each file stands by itself and is loaded by its path: the job's Python need not have perfdoctor, and may be older.
"""
