"""Makes the picture of a report for the docs from a recording of the corpus, with Chromium.

    python tests/recordings/picture.py

It writes docs/images/report.png: the first screen of the page, as a browser shows it.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from PIL import Image

from perfdoctor.analysis.from_recording import examine
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from perfdoctor.reports import html
from tests.recordings import corpus, packing

RECORDING = "straggler_disk"
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "report.png"
LARGEST = 200_000
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,1640")
_COLORS = 256


def main() -> int:
    """Draws it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("There is no Chromium here.\nInstall it: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "report.html"), Path(folder, "report.png")
        page.write_text(html.render(_diagnosis(Path(folder))), encoding="utf-8")
        options = [*_FLAGS, f"--user-data-dir={folder}/profile", f"--screenshot={picture}"]
        subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
        Image.open(picture).convert("RGB").quantize(_COLORS).save(PICTURE, optimize=True)
    if (held := PICTURE.stat().st_size) > LARGEST:
        raise PerfDoctorError(f"The picture has {held} bytes, {LARGEST} are allowed.", hint="Choose fewer colours.")
    print(PICTURE)
    return 0


def _diagnosis(folder: Path) -> Diagnosis:
    file = folder / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{RECORDING}{corpus.SUFFIX}", file)
    with Recording.open(file) as recording:
        return examine(recording)


if __name__ == "__main__":
    sys.exit(main())
