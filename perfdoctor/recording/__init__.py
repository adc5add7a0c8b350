"""The recording: what a run left behind, the one noun between what watches a job and what judges it."""
