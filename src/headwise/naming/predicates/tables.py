"""Words of English that form closed classes, and short lists of some open ones."""

from __future__ import annotations

from headwise.tasks.answers.ioi import NAMES
from headwise.tasks.labelled.words import CATEGORIES, listed

CLASSES: dict[str, tuple[str, frozenset[str]]] = {
    "article": ("an article", frozenset(listed("a an the"))),
    "determiner": (
        "a determiner",
        frozenset(
            listed("""this that these those each every either neither some any all both no another such many much
            few several most other""")
        ),
    ),
    "preposition": (
        "a preposition",
        frozenset(
            listed("""of in to for with on at by from into onto about over under above below between among through
            during against without within along across behind beyond near toward towards upon off until since
            before after except per via as like""")
        ),
    ),
    "pronoun": (
        "a pronoun",
        frozenset(
            listed("""i you he she it we they me him her us them myself yourself himself herself itself ourselves
            yourselves themselves one someone anyone everyone nobody something anything everything nothing""")
        ),
    ),
    "possessive": (
        "a possessive",
        frozenset(listed("my your his her its our their mine yours hers ours theirs whose")),
    ),
    "auxiliary": (
        "an auxiliary verb",
        frozenset(
            listed("""be am is are was were been being have has had having do does did can could may might must
            shall should will would isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't wouldn't
            shouldn't hasn't haven't hadn't""")
        ),
    ),
    "conjunction": (
        "a conjunction",
        frozenset(
            listed("and or but nor so yet if because although though while unless whereas whether than then")
        ),
    ),
    "question": ("a question word", frozenset(listed("who whom whose which what when where why how"))),
    "negation": (
        "a negation",
        frozenset(
            listed("""not no never none neither nor n't without cannot isn't aren't wasn't weren't don't doesn't
            didn't can't couldn't won't wouldn't shouldn't""")
        ),
    ),
    "month": (
        "a month",
        frozenset(
            listed("""january february march april may june july august september october november december jan
            feb mar apr jun jul aug sept sep oct nov dec""")
        ),
    ),
    "weekday": (
        "a day of the week",
        frozenset(
            listed("""monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays
            thursdays fridays saturdays sundays""")
        ),
    ),
}
"""What a member is called, and the members in lower case."""

PROPER = frozenset({"month", "weekday"})
"""Closed classes whose members are written with a capital: *may* and *march* are no months."""

FUNCTION = frozenset().union(
    *(words for name, (_, words) in CLASSES.items() if name not in ("month", "weekday"))
)

NUMBERS = frozenset(
    listed("""zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million
    billion first second third fourth fifth sixth seventh eighth ninth tenth once twice half""")
)

FIRST_NAMES = frozenset(NAMES) | frozenset(CATEGORIES["men"]) | frozenset(CATEGORIES["women"])
PLACES = frozenset(w for k in ("countries", "cities", "states") for w in CATEGORIES[k]) | frozenset(
    listed("""Europe Asia Africa America Australia Britain England Scotland Wales Ireland Russia Ukraine Austria
    Switzerland Belgium Netherlands Denmark Finland Iceland Hungary Romania Bulgaria Israel Iran Iraq Syria Lebanon
    Pakistan Indonesia Thailand Korea Philippines Malaysia Nigeria Ethiopia Morocco Algeria Colombia Venezuela Cuba
    Amsterdam Brussels Stockholm Copenhagen Helsinki Warsaw Budapest Istanbul Jerusalem Beijing Shanghai Delhi
    Washington Philadelphia Houston Dallas Miami Detroit Denver Atlanta Melbourne Montreal""")
)

CATEGORY: dict[str, tuple[str, frozenset[str]]] = {
    "number-word": ("a number in words", NUMBERS),
    "colour": (
        "a colour",
        frozenset(
            listed("""red green blue yellow orange purple pink brown black white grey gray violet indigo crimson
            scarlet turquoise beige gold golden silver""")
        ),
    ),
    "unit": (
        "a unit of measurement",
        frozenset(
            listed("""metre metres meter meters kilometre kilometres kilometer kilometers km cm mm mile miles inch
            inches foot feet yard yards gram grams kg kilogram kilograms pound pounds ton tons tonne tonnes litre
            litres liter liters gallon gallons second seconds minute minutes hour hours day days week weeks month
            months year years degree degrees percent dollar dollars euro euros cent cents byte bytes bit bits hz
            volt volts watt watts""")
        ),
    ),
    "kin": (
        "a word for a relative",
        frozenset(
            listed("""mother father mom dad parent parents son daughter brother sister brothers sisters uncle aunt
            cousin nephew niece grandmother grandfather grandson granddaughter husband wife child children baby""")
        ),
    ),
    "time": (
        "a word for a time",
        frozenset(
            listed("""today tomorrow yesterday now then later soon ago morning afternoon evening night noon midnight
            century decade spring summer autumn winter early late often always sometimes usually""")
        ),
    ),
    "animal": ("an animal", frozenset(CATEGORIES["animals"] + CATEGORIES["birds"])),
    "food": (
        "something to eat or drink",
        frozenset(CATEGORIES["fruits"] + CATEGORIES["vegetables"] + CATEGORIES["drinks"]),
    ),
    "vehicle": ("a vehicle", frozenset(CATEGORIES["vehicles"])),
    "thing": ("a tool or a piece of clothing", frozenset(CATEGORIES["tools"] + CATEGORIES["clothes"])),
    "keyword": (
        "a programming keyword",
        frozenset(
            listed("""def class return import from if elif else for while in not and or is lambda try except finally
            raise with as pass break continue yield global assert async await function var let const new this
            static void int float double char string bool true false null none self struct switch case default""")
        ),
    ),
}
"""What a member is called, and the members in lower case; their plurals in *s* are members, too."""

SUFFIXES = listed(
    "s ed ing er est ly tion sion ment ness ity able ible al ive ous ful less ic ism ist ize ise ance ence"
)
PREFIXES = listed("un re in im dis non pre anti over under inter sub super trans multi")
ABBREVIATIONS = frozenset(
    listed("mr mrs ms dr prof st vs etc e.g i.e eg ie fig no vol al cf jr sr inc ltd co")
)
