"""Words for the built-in tasks, and the check that a tokenizer can carry them.

Nothing here is about a model: a word that a tokenizer splits is either kept, its last token standing for it,
or filtered, as the task says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwise.errors import HeadwiseError


def listed(text: str) -> list[str]:
    """Words written one after another."""
    return text.split()


ENTITIES = listed("""hat jam pen cup key ring coin book lamp shoe sock ball kite drum bell rope fork plate
spoon brush comb map phone watch glove scarf candle bottle mirror pillow blanket hammer pencil apple orange
lemon potato onion cheese butter cake cookie bread egg flower leaf stone shell feather ribbon button needle
thread basket bucket broom towel soap camera radio clock magazine letter stamp ticket wallet purse belt shirt
jacket sweater helmet rocket robot doll puzzle marble magnet battery cable lock chain nail screw ladder wheel
flag medal trophy crown sword mask""")

LABELS = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")

CATEGORIES: dict[str, list[str]] = {
    "fruits": listed("""apple banana cherry grape lemon mango orange peach pear plum melon kiwi fig lime
    apricot papaya coconut strawberry raspberry blueberry pineapple pomegranate"""),
    "animals": listed("""dog cat horse cow lion tiger rabbit monkey bear wolf goat sheep pig fox deer
    elephant mouse camel donkey squirrel kangaroo giraffe"""),
    "vehicles": listed("""car bus truck train bicycle boat plane ship van taxi tractor scooter motorcycle
    ambulance helicopter tram ferry jeep canoe wagon submarine rocket"""),
    "drinks": listed("""tea coffee water milk juice beer wine soda lemonade cocoa cider whiskey vodka rum
    champagne espresso brandy smoothie gin cola punch latte"""),
    "countries": listed("""France Spain Italy Germany Japan China India Brazil Canada Mexico Egypt Peru
    Norway Sweden Greece Turkey Kenya Chile Poland Vietnam Portugal Argentina"""),
    "birds": listed("""eagle sparrow robin owl hawk crow pigeon parrot swan goose falcon penguin raven finch
    heron seagull woodpecker flamingo ostrich dove"""),
    "cities": listed("""Paris London Berlin Tokyo Rome Madrid Moscow Cairo Boston Chicago Toronto Sydney
    Vienna Dublin Athens Prague Seattle Mumbai Lisbon Oslo"""),
    "states": listed("""Texas California Florida Ohio Georgia Virginia Oregon Nevada Arizona Utah Kansas Iowa
    Maine Alaska Montana Idaho Michigan Colorado Alabama Vermont"""),
    "men": listed("""John David Michael James Robert William Thomas Richard Charles Daniel Matthew George
    Paul Mark Steven Andrew Peter Henry Edward Frank"""),
    "women": listed("""Mary Sarah Emma Anna Laura Julia Alice Emily Susan Linda Karen Helen Nancy Rachel
    Maria Jane Elizabeth Margaret Jennifer Patricia"""),
    "vegetables": listed("""carrot potato onion cabbage spinach broccoli lettuce celery pumpkin garlic
    cucumber pepper turnip radish leek kale zucchini asparagus beet corn"""),
    "tools": listed("""hammer screwdriver wrench saw drill pliers chisel axe shovel rake ladder clamp file
    sander crowbar trowel hoe spade anvil sledgehammer"""),
    "clothes": listed("""shirt jacket sweater coat scarf glove hat skirt dress sock shoe belt vest jeans
    blouse hoodie shorts boots uniform pajamas"""),
}

FIVE = ("fruits", "animals", "vehicles", "drinks", "countries")


def check_words(tokenizer: Any, words: Iterable[str], *, single: bool, least: int, what: str) -> list[str]:
    """The words that can be used, in order; with ``single`` those that are one token after a space.

    A tokenizer that leaves fewer than ``least`` is refused, naming how many it left.
    """
    found = list(dict.fromkeys(words))
    if single:
        found = [w for w in found if len(tokenizer(f" {w}", add_special_tokens=False).input_ids) == 1]
    if len(found) < least:
        reason = " that are one token" if single else ""
        raise HeadwiseError(
            f"this model's tokenizer leaves {len(found)} of the words for {what}{reason}, {least} are needed"
        )
    return found


def halves(words: Sequence[str], share: float = 0.5) -> tuple[list[str], list[str]]:
    """Words to fit on and words to test on, disjoint; alternating, so that both halves are alike.

    >>> halves(["a", "b", "c", "d", "e"])
    (['a', 'c', 'e'], ['b', 'd'])
    """
    period = max(2, round(1 / share))
    test = [w for i, w in enumerate(words) if i % period == period - 1]
    return [w for w in words if w not in test], test
