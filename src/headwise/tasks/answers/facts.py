"""Facts: a short list of our own. The wrong answer is the right one of another thing of the same kind."""

from __future__ import annotations

from typing import Any

from headwise.tasks.answers.types import AnswerPrompt, AnswerSet, Draws, answer_prompt, draw_set


def _pairs(text: str) -> dict[str, str]:
    found = {}
    for pair in text.split(","):
        subject, fact = pair.strip().split(":")
        found[subject] = fact
    return found


FACTS = {
    "capital": _pairs("""France:Paris, Spain:Madrid, Italy:Rome, Germany:Berlin, Japan:Tokyo, China:Beijing,
    Russia:Moscow, Egypt:Cairo, Peru:Lima, Norway:Oslo, Sweden:Stockholm, Greece:Athens, Kenya:Nairobi,
    Chile:Santiago, Poland:Warsaw, Portugal:Lisbon, Austria:Vienna, Ireland:Dublin, Hungary:Budapest, Finland:Helsinki,
    Denmark:Copenhagen, Belgium:Brussels, Cuba:Havana, Iran:Tehran, Iraq:Baghdad, Syria:Damascus, Lebanon:Beirut,
    Turkey:Ankara, Canada:Ottawa, Ukraine:Kyiv, Vietnam:Hanoi, Thailand:Bangkok, Romania:Bucharest, Serbia:Belgrade,
    Bulgaria:Sofia, Nepal:Kathmandu"""),
    "language": _pairs("""France:French, Spain:Spanish, Italy:Italian, Germany:German, Japan:Japanese, China:Chinese,
    Russia:Russian, Egypt:Arabic, Norway:Norwegian, Sweden:Swedish, Greece:Greek, Poland:Polish, Portugal:Portuguese,
    Hungary:Hungarian, Denmark:Danish, Turkey:Turkish, Thailand:Thai, Iceland:Icelandic, Romania:Romanian,
    Bulgaria:Bulgarian, Brazil:Portuguese, Mexico:Spanish, Austria:German, Iran:Persian"""),
    "continent": _pairs("""France:Europe, Spain:Europe, Italy:Europe, Poland:Europe, Sweden:Europe, Austria:Europe,
    Japan:Asia, China:Asia, India:Asia, Thailand:Asia, Vietnam:Asia, Nepal:Asia, Iraq:Asia, Kenya:Africa,
    Nigeria:Africa, Ghana:Africa, Ethiopia:Africa, Uganda:Africa, Algeria:Africa, Morocco:Africa"""),
    "opposite": _pairs("""hot:cold, big:small, up:down, left:right, day:night, black:white, open:closed, early:late,
    rich:poor, young:old, fast:slow, happy:sad, high:low, light:dark, strong:weak, wet:dry, empty:full, true:false,
    winter:summer, inside:outside, north:south, buy:sell, win:lose, love:hate, hard:soft, first:last, war:peace,
    alive:dead, cheap:expensive, begin:end"""),
}
WORDINGS = {
    "capital": (
        "The capital of {x} is",
        "The government of {x} sits in the capital,",
        "Q: What is the capital of {x}? A:",
        "Travellers who want to see the capital of {x} fly to",
    ),
    "language": (
        "The language that most people speak in {x} is",
        "In {x}, children learn to read and write in",
        "Q: Which language is spoken in {x}? A:",
        "The newspapers of {x} are written in",
    ),
    "continent": (
        "{x} is a country in the continent of",
        "On the map, {x} lies in",
        "Q: On which continent is {x}? A:",
        "The country of {x} belongs to the continent of",
    ),
    "opposite": (
        "The opposite of {x} is",
        "The word that means the opposite of {x} is",
        "Q: What is the opposite of {x}? A:",
        "hot and cold, up and down, {x} and",
    ),
}


def facts(tokenizer: Any, *, prompts: int | None = None, seed: int = 0) -> AnswerSet:
    """Capitals, languages, continents and opposites. An answer of several tokens stands for its first."""
    orders = {kind: Draws(seed, "facts", kind).shuffled(list(known)) for kind, known in FACTS.items()}

    def make(cell: tuple[str, int], number: int, attempt: int) -> AnswerPrompt | None:
        kind, wording = cell
        known, order = FACTS[kind], orders[kind]
        subject = order[(number + attempt) % len(order)]
        draws = Draws(seed, "facts", kind, wording, number, attempt)
        answer = known[subject]
        wrong = draws.choose([fact for fact in known.values() if fact != answer])
        text = WORDINGS[kind][wording].format(x=subject)
        if text.split().count(subject) > 1 or f" {answer}" in text:
            return None  # the example in the wording would give it away
        labels = {"wording": f"{kind} {wording + 1}", "relation": kind, "subject": subject}
        return answer_prompt(tokenizer, text, f" {answer}", f" {wrong}", labels, first=True)

    cells = [(kind, wording) for wording in range(4) for kind in FACTS]
    why = "no question can be written in its vocabulary"
    return draw_set("facts", cells, prompts, make, seed=seed, why_none=why)
