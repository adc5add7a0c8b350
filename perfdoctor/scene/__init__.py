"""The scene: what every thread of the job was doing at any instant, put together from a recording."""
