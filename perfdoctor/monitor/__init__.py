"""A job that is watched for days, at a hundredth of a core: what became of it, and when."""
