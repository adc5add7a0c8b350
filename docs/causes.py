"""Writes the paragraphs of docs/causes.md from the rows that `perfdoctor explain` reads: python docs/causes.py"""

from pathlib import Path

from perfdoctor.reports.explained import page

PAGE = Path(__file__).with_name("causes.md")

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
