"""Reports: one output per file, each a function from a Diagnosis to text. Nothing is measured here."""
