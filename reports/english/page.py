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
    "but_faster": "One change could make the job {gain}",
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
    "one_second_becomes": "One second of today's training would take {after}",
    "a_step": "a step: {before} now, {after} then",
    "up_to": "It makes the job {gain}; how much of this cause it removes cannot be predicted.",
    "next": "The next limit after that: {title}, {share} of the time today.",
    "rests": "How sure is this?",
    "known": "Method",
    "confidence": "Confidence",
    "confidence_is": "how often this cause ranks first when the watched seconds are resampled, capped by the method",
    "watched": "Watched",
    "watching_cost": "Cost of watching",
    "cost": "{cpu} of one core and {memory} of memory",
    # --- over time
    "over_time": "Over time",
    "one_clock": "All rows share one time axis. For each thread, causes are stacked from the bottom up in the order of "
    "the legend. Lines run from zero at the bottom to the largest value, percentages to 100%.",
    "phases_help": "Shades of grey are the phases of a step, stacked in the same way.",
    "borders_help": "Thin lines mark where steps begin.",
    "with_script": "Point at a moment, or use the arrow keys on the slider, to read all rows at once.",
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
    "lines_left_out": "{count} smaller lines are not drawn",
    "charts_left_out": "{count} more measurements are not drawn.",
    "seconds": "time watched",
    # --- proof
    "findings": "Findings",
    "of_the_time": "{share} of the time",
    "if_fixed": "{gain} if fixed",
    "when": "Share of {whose} time: {first} in the first third of the watched time, {second} in the second, {third} in "
    "the last.",
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
    "too_little": "{share} of the time",
    "see_changes": "What to change",
    "change_number": "change {number}: {title}",
    "halts": "Where each process is",
    "what_to_do": "What to do",
    "refuted": "What would prove this wrong:",
    "changes": "What else to change",
    "serves": "Helps against:",
    # --- the code
    "code": "Where in the code",
    "flame_help": "Each box is a function: its width is its share of the time, and below it are the functions it "
    "calls.",
    "flame_colours": "Colours are causes.",
    "flame_label": "Flame graph; the table below it lists the lines that cost most",
    "hot_lines": "Lines of your code that cost most",
    "lines_help": "Each sample counts for the line that was running, or that was being waited for. What a line costs "
    "other threads, such as the core it occupies, is not counted.",
    "line": "Line",
    "code_text": "Code",
    "source_help": "The same lines in your source, with the lines around them, as they were when watching ended. "
    "\u25b8 marks "
    "lines that take 1% of the time or more; a share links to its finding. Secrets are masked.",
    "in_function": "in {function}",
    "source_changed": "This file was changed after the job started: these may not be the lines that ran.",
    "not_read": "The source of {file} was not read: {reason}.",
    "no_source": "The source of these lines is not in the recording (made with --no-source, with source=False, or "
    "by an "
    "older perfdoctor).",
    "share": "Share",
    # --- steps
    "gantt_help": "All lanes of a step share one time axis. Shades are parts of the step, colours are causes.",
    "gantt_grain": "Workers were sampled every {every}: shorter pauses do not show.",
    "gpu": "GPU",
    "busy": "busy",
    "workers": "Workers",
    "mean_of_steps": "mean of {count} such steps",
    "larger": "drawn {times} times larger",
    "too_rarely": "sampled every {every}: too rarely for this step",
    "workers_busy": "A worker is busy (mean)",
    "two_steps": "A usual step and the slowest one",
    "usual_step": "step {number}, of median length: {length}",
    "slowest_step": "step {number}, the slowest: {length}",
    "of_rank": "Rank {rank}: ",
    "phase": "Part",
    "usual": "Usual",
    "slowest": "Slowest",
    "difference": "Difference",
    # --- ranks
    "alike_ranks": "Ranks that spend their time alike",
    "host_waits": "Waiting by host and position",
    "host_waits_help": "Percentage of its time that each rank waits for others; stronger colour is more. Cells paler "
    "than all those around them are the ranks that the others wait for.",
    "hosts_left_out": "{count} more hosts are not shown.",
    "ranks": "Rank by rank",
    "heat_help": "Shares of each rank's wall time; stronger colour is more. The straggler is the rank that waits "
    "least for the others.",
    "heat_sums": "The causes of a rank add up to 100% of its time, including those too small for a column. Waiting for "
    "other ranks does not come on top: that time is counted under what those ranks were doing.",
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
    "footer": "This page is a single file that loads and sends nothing; its script only adds reading, search and "
    "copying.",
    # --- added by scripts
    "copy": "Copy",
    "copied": "Copied",
    "search": "Search functions",
    "reset": "Whole graph",
    "found": "{share} of the time in functions that match",
}

METHOD = {
    "sampled from outside": (
        "Each sample of a trainer stands for the time around it. While a trainer waits, its samples count for what the "
        "process or thread it waits for was doing at that moment.",
    ),
    "measured inside": (
        "The training loop marked its steps and their phases, so their lengths are exact; what happened inside a phase "
        "was sampled from outside.",
    ),
    "traced": (
        "torch.profiler recorded every operator and every kernel. Times are the profiler's own; time in which the GPU "
        "was idle counts for what the host was doing then.",
    ),
    "confirmed by trial": ("Besides being sampled, the cause was removed for some steps, and the pace measured.",),
}
METHOD_UNCHANGED = "Nothing in the job was changed."
METHOD_COUNTED = (
    "Steps were counted by kernel probes on two functions of PyTorch, which were in the job's code while it was "
    "watched, and were removed afterwards."
)
FOLLOWED = (
    "Of {samples:,} samples of trainers, {followed_samples:,} were followed: in each short interval one for every "
    "state "
    "and system call, drawn at random, stands for all others of its kind."
)
METHOD_ALWAYS = (
    "The shares of all causes add up to 100%; what nothing explains is shown as not attributed.",
    "A predicted gain removes only the time that the change frees, and stops where the next bottleneck begins. Its "
    "range covers what the samples leave open and what is not known about the change.",
)
