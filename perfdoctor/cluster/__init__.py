"""Jobs of many ranks and many hosts: what is kept of each file, and how thousands of files are read.

``files`` (which there are), ``summarise`` (one of them, to at most 10 KB), ``fan_out`` (all of them, on this machine or
on a Dask cluster), ``summary_cache`` (those that were summarised before), ``gather`` (all of this together). Recordings
of hosts become one job in ``perfdoctor.analysis``, as traces do.
"""
