"""All that runs while a job runs, in the process that watches it: finding the job, and recording it."""
