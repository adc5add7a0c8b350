"""The analysis: from a recording or traces to a case, and from a case to a diagnosis.

It is not called ``diagnose``, since a package of that name would hide the function ``perfdoctor.diagnose``.
"""
