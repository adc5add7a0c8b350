"""Tables of the operations of many ranks, as trainers of large models log them: another source of traces."""
