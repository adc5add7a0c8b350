"""What the job's own source says beside its stacks: lines around them, and what its calls, loops and arguments are."""
