"""The page's own words: labels, captions and what it says of its method."""

WORDS = {
    "lang": "en",
    # --- marks between words
    "comma": ", ",
    "semicolon": "; ",
    "colon": ": ",
    "stop": ". ",
    "aside": "({text})",
    "skip": "Skip to the verdict",
    "contents": "Contents",
    "of_time": "{share} of the time {goes}",
    "goes_into": "goes into {title}",
    "but_faster": "One change makes the job {gain}",
    "in_rank": "{sentence}; rank {rank} keeps the others waiting",
    # --- the first screen
    "second": "Where one second of training goes",
    "second_unknown": "Where one second of the watched time goes",
    "one_second": "one second",
    "cause": "Cause",
    "milliseconds": "Milliseconds",
    "first": "Do this first",
    "today": "today",
    "afterwards": "with this change",
    "one_second_becomes": "What takes one second today would take {after}",
    "a_step": "a step: {before} now, {after} then",
    "up_to": "It makes the job {gain}: how much of this cause it takes away cannot be told beforehand.",
    "next": "What limits it then: {title}, {share} of the time today.",
    "rests": "What this rests on",
    "known": "How it is known",
    "confidence": "Confidence",
    "confidence_is": "how often this cause comes first when the seconds that were watched are drawn anew",
    "watched": "Watched",
    "watching_cost": "What watching cost",
    "cost": "{cpu} of one core and {memory} of memory",
    # --- over time
    "over_time": "Over time",
    "one_clock": "All rows share one clock. Threads are stacked by cause, from below in the order of the legend. "
    "Measurements reach from zero to the largest value, fractions to 100%.",
    "phases_help": "Phases of steps are shades, stacked likewise.",
    "borders_help": "Thin lines are where steps begin.",
    "with_script": "Move the pointer over the rows, or focus them and use the arrow keys, to read all of them at once.",
    "trainer": "Trainer",
    "worker": "Worker",
    "rank": "rank {rank}",
    "pid": "process {pid}",
    "idle": "idle",
    "not_seen": "not seen",
    "phases_row": "Phases of steps",
    "steps_row": "Steps",
    "steps_detail": "{count} steps, {usual} in the median, {top} at most; {outliers}",
    "passes_row": "Backward passes",
    "passes_detail": "{count} backward passes, {usual} in the median, {top} at most; {outliers}",
    "no_outliers": "none is much longer",
    "outlier": "one is longer than {limit}",
    "outliers": "{count} are longer than {limit}",
    "every": ", one every {every} steps",
    "every_passes": ", one every {every} backward passes",
    "length": "length",
    "lines_left_out": "{count} smaller ones are not drawn",
    "charts_left_out": "{count} more measurements are not drawn.",
    "seconds": "seconds since the watching began",
    # --- proof
    "findings": "Findings",
    "of_the_time": "{share} of the time",
    "if_fixed": "{gain} if fixed",
    "when": "Of {whose} time, {first} in the first third of the watched time, {second} in the second, {third} in the "
    "last.",
    "of_one_rank": "rank {rank}'s",
    "of_the_trainer": "the trainer's",
    "evidence": "Evidence",
    "measured": "Measured",
    "value": "Value",
    "source": "Source",
    "in_source": "In your source:",
    "alike": "What else it could have been",
    "alike_measured": "What was measured",
    "result": "Result",
    "ruled_out": "ruled out",
    "also": "also there",
    "not_examined_cause": "not examined",
    "too_little": "{share} of the time goes there",
    "see_changes": "What to change",
    "change_number": "change {number}: {title}",
    "halts": "Where everybody stands",
    "what_to_do": "What to do",
    "refuted": "What would prove this wrong:",
    "changes": "What else to change",
    "serves": "Helps against:",
    # --- the code
    "code": "Where in the code",
    "flame_help": "A box is a function, as wide as its part of the time, with the functions that it calls below it.",
    "flame_colours": "Colours are causes.",
    "flame_label": "Flame graph; the table below it lists the lines that cost most",
    "hot_lines": "Lines of your code that cost most",
    "lines_help": "Each moment counts for the line that ran then, or that was waited for. What a line costs other "
    "threads, a core for instance, counts for no line.",
    "line": "Line",
    "code_text": "Code",
    "source_help": "The same lines in your source, with those around them, as they stood when the watching ended. "
    "Lines with \u25b8 take 1% of the time or more, and a share leads to the finding about it; secrets are masked.",
    "in_function": "in {function}",
    "source_changed": "This file was changed after the job had been started: these may not be the lines that ran.",
    "not_read": "The source of {file} was not read: {reason}.",
    "no_source": "The text of these lines is not here: nobody read it while the job was watched (--no-source, "
    "source=False, or an older perfdoctor).",
    "share": "Share",
    # --- steps
    "gantt_help": "All lanes of a step are on the one clock. Shades are parts of the step, colours are causes.",
    "gantt_grain": "Workers were looked at every {every}: shorter pauses are not seen.",
    "gpu": "GPU",
    "busy": "busy",
    "workers": "Workers",
    "mean_of_steps": "mean of {count} such steps",
    "larger": "drawn {times} times larger",
    "too_rarely": "looked at every {every}: too rarely for this step",
    "workers_busy": "A worker is busy (mean)",
    "two_steps": "A usual step and the slowest one",
    "usual_step": "step {number}, of median length: {length}",
    "slowest_step": "step {number}, the slowest: {length}",
    "of_rank": "Rank {rank}: ",
    "phase": "Part",
    "usual": "Usual",
    "slowest": "Slowest",
    "difference": "Longer by",
    # --- ranks
    "alike_ranks": "Ranks that spend their time alike",
    "host_waits": "Waiting by host and position",
    "host_waits_help": "Percent of its time that each rank waits for others; the darker, the more. Those that are "
    "lighter than all around them are those that the others wait for.",
    "hosts_left_out": "{count} more hosts are not shown.",
    "ranks": "Rank by rank",
    "heat_help": "Fractions of each rank's wall time; the darker, the more. The straggler is the rank that waits least "
    "for the others.",
    "heat_sums": "The causes of a rank sum to all of its time, those that are too small for a column included. "
    "Waiting for other ranks is no further part of it: that time is in the causes too, as what those ranks did "
    "meanwhile.",
    "waits": "waits for other ranks",
    "straggler": "straggler",
    # --- the rest
    "not_examined": "Not examined",
    "nothing_left_out": "Nothing was left out.",
    "to_enable": "To enable:",
    "method": "How these numbers were made",
    "job": "The job",
    "settings": "Its settings, limits and hardware",
    "cost_title": "What this diagnosis cost",
    "footer": "This page is one file that loads and sends nothing; its script only adds reading, search and copying.",
    # --- added by scripts
    "copy": "Copy",
    "copied": "Copied",
    "search": "Search functions",
    "reset": "Whole graph",
    "found": "{share} of the time in functions that match",
}

METHOD = {
    "sampled from outside": (
        "Each sample of a trainer stands for the time around it. Where the trainer waited, the sample was given to "
        "what those did for whom it waited at that instant.",
    ),
    "measured inside": (
        "The training loop marked its steps and their phases, so their lengths are exact; what happened inside a phase "
        "was sampled from outside.",
    ),
    "traced": (
        "torch.profiler recorded every operator and every kernel; times are its own, and idle time of the GPU was "
        "given to what the host did meanwhile.",
    ),
    "confirmed by trial": ("Besides being sampled, the cause was taken away for some steps, and the pace measured.",),
}
METHOD_UNCHANGED = "Nothing in the job was changed."
METHOD_COUNTED = (
    "Steps were counted by probes of the kernel at two functions of PyTorch, which were put into the job's code for as "
    "long as it was watched, and taken out again."
)
FOLLOWED = (
    "Of {samples:,} samples of trainers {followed_samples:,} were followed: in each short while one of every state and "
    "system call, drawn at random, which stands for all of its kind there."
)
METHOD_ALWAYS = (
    "The shares of all causes sum to the whole; what nothing explains stays visible as not attributed.",
    "A predicted gain takes away only what the change frees, and stops where the next bottleneck sets in. Its range "
    "has what the samples leave open, and what is not known of the change.",
)
