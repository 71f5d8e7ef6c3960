"""Texts of the app's page that its script need not carry: prompts to begin with, and the list of keys."""

from __future__ import annotations

EXAMPLES = (
    ("a name comes back", "Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs"),
    ("who gets the drink", "When John and Mary went to the store, John gave a drink to"),
    ("which box", "The hat is in Box A. The pen is in Box B. The hat is in Box"),
    ("a fact", "The capital city of Portugal is"),
    ("singular or plural", "The keys that the man near the table has lost"),
)
KEYS = (
    ("/", "the prompt"),
    ("g", "all heads"),
    ("c", "the cell"),
    ("u", "up: the circuit that feeds the cell"),
    (
        "r",
        "all heads: what a token reads, or who reads it; with the pointer on a token, Shift does so while it is held",
    ),
    ("arrows", "move in pictures and tables"),
    ("Shift + arrows", "in a pattern: to the strongest cell of the row or column that way"),
    ("Enter", "explain what is marked"),
    ("[ and ]", "the head before, the next one"),
    ("{ and }", "the same head one layer down, one layer up"),
    ("b", "back"),
    ("e", "tick the writer in focus: take it away on the bench"),
    ("x", "run what is on the bench, now"),
    ("z", "put everything on the bench back"),
    ("p", "pin what is said of a number: it stays open beside the screen; pin again to close it"),
    ("t", "light or dark"),
    ("Escape", "close what is said of a number, or a panel that fills the window"),
    ("?", "this list"),
)
