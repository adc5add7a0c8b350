"""Jobs of many ranks and many hosts: what is kept of each file, and how thousands of files are read.

``files`` (which there are), ``summary`` (what remains of one, in at most 10 KB), ``fan_out`` (all of them, on this
machine or on a Dask cluster), ``kept`` (what was summarised before). Recordings of hosts become one job in
``perfdoctor.analysis``, as traces do.
"""
