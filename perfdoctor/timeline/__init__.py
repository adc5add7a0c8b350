"""The timeline: what every thread of the job was doing at any instant, read from a recording."""
