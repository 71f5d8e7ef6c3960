"""Tokens that a page must show as the text they are, and what it shows for them."""

from __future__ import annotations

SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(3)>"
ODD = (SCRIPT, "\n", " 🎉", "👩‍👩‍👧", " שלום", " مرحبا", "\u202e", "</", "&amp;", "\t", " ", "{{data}}")
ODD_SHOWN = [SCRIPT, "⏎", "·🎉", "👩‍👩‍👧", "·שלום", "·مرحبا", "U+202E", "</", "&amp;", "⇥", "·", "{{data}}"]
