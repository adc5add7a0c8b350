"""The analysis: from a recording or traces to a case, and from a case to a diagnosis."""
