"""English: a function for each message, named like its id and taking its values by name.

``io.save_behind`` is ``save_behind()`` in ``io.py``. It returns a text, for advice a ``Fix``.
"""
