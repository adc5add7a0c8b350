"""What comes out beside the diagnosis, as plain values: what is drawn of it, comparisons, trials, live views."""
