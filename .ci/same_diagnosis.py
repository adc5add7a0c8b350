"""Checks the diagnosis that was made at once, and that the one made again from the recording is the same."""

import json
import sys
from pathlib import Path

first, again = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:])
verdict = first["verdict"]
assert first["schema"] == 1, first["schema"]
assert verdict["bottleneck"] == "cpu", verdict
assert abs(sum(entry["share"] for entry in first["breakdown"]) - 1) <= 0.001, first["breakdown"]
assert verdict == again["verdict"], (verdict, again["verdict"])
print(f"verdict: {verdict['cause']}, {verdict['share']:.0%} of the time")
