"""A job seen live, through its recording: whoever looks is beside the recorder, never in its way."""
