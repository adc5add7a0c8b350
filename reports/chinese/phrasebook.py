"""The phrasebook: words for plain English texts, and for comments in code."""

from perfdoctor.reports.chinese import comments, measured, unseen

PHRASES = {**measured.PHRASES, **unseen.PHRASES}
COMMENTS = comments.COMMENTS
