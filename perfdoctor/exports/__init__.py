"""A recording in the formats of other tools, one per file: each writes what was seen, and judges nothing."""
