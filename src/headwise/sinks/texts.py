"""Short texts of many kinds, written for this package: what sinks are looked for in unless you give your own."""

from __future__ import annotations

from pathlib import Path

from headwise.errors import HeadwiseError
from headwise.strings import read_lines

TEXTS: tuple[str, ...] = (
    "The lighthouse keeper climbed the stairs every evening before the fog rolled in from the bay.",
    "Prices of bread rose by four percent last year, according to the union of bakers.",
    "If you want to grow tomatoes, plant the seeds indoors six weeks before the last frost.",
    "She asked whether the train to Lisbon had already left, and the clerk only shrugged.",
    "Water boils at a lower temperature on a mountain because the air is thinner up there.",
    "Our cat sleeps on the radiator all winter and under the kitchen table all summer.",
    "To reset the device, hold the power button for ten seconds and then let it go.",
    "Nobody in the village remembered who had built the stone bridge, but everyone had crossed it.",
    "def area(width, height):\n    return width * height\n\nprint(area(3, 4))",
    "Dear Mr Novak, thank you for your letter of the third of May about the broken window.",
    "A triangle with two equal sides has two equal angles, and the converse is true as well.",
    "The committee meets on the first Tuesday of each month, except in August.",
    "When the rain stopped, the children ran out and looked for snails along the garden wall.",
    "Copper conducts electricity well, which is why most household wires are made of it.",
    "Is there a bakery near the station that opens before six in the morning?",
    "He bought three pencils, a ruler and a notebook, and paid with a ten euro note.",
    "In 1887 the harbour froze, and for two weeks people walked to the island across the ice.",
    "Chapter one explains how to install the program; chapter two shows how to use it.",
    "My grandmother used to say that soup tastes better on the second day, and she was right.",
    "The defender passed the ball back to the goalkeeper, who kicked it far up the field.",
    "Add the flour slowly, stir until the dough is smooth, and let it rest for an hour.",
    "Every prime number greater than two is odd, but not every odd number is prime.",
    "They painted the door green, the shutters blue, and the fence, for some reason, pink.",
    "The patient reported mild headaches in the morning but no fever and no loss of appetite.",
    "Turn left after the church, follow the river for a mile, and you will see the mill.",
    "The orchestra tuned their instruments while the audience was still looking for its seats.",
    "SELECT name, price FROM products WHERE price < 20 ORDER BY name;",
    "Most owls hunt at night, although a few species prefer the early hours of the day.",
    "Please keep your ticket until the end of the journey and show it when asked.",
    "The museum owns two paintings by her, one of which has never been shown in public.",
    "Although the battery was new, the radio stayed silent until somebody found the switch.",
    "The river rises in the hills, turns east at the old town, and ends in a wide delta.",
    "“I would rather walk,” said Ines, “than wait another hour for that bus.”",
    "The contract ends on the last day of March unless both parties agree to extend it.",
    "Light from the sun takes a little more than eight minutes to reach the earth.",
    "Two of the five samples were contaminated, so the experiment had to be repeated.",
    "Once a year the whole street puts tables on the pavement and eats dinner together.",
    "First wash the apples, then cut them into quarters and take out the cores.",
    "The captain wrote in his log that the wind had turned and the sea was calm again.",
    "Breaking: the northern line is closed between Market Square and the airport until noon.",
    "for line in open(path):\n    words = line.split()\n    print(len(words))",
    "Bees tell one another where flowers are by dancing in the dark of the hive.",
    "The teacher drew a circle on the board and asked the class how to find its centre.",
    "We regret to inform you that the concert on Friday has been moved to a smaller hall.",
    "Iron rusts when it is exposed to water and air; painting it keeps both away.",
    "Half of the members voted for the plan, a third voted against it, and the rest abstained.",
    "On clear days you can see the island from the roof, and sometimes the ferry as well.",
    "The second edition corrects several errors of the first and adds a map of the region.",
    "Her brother plays the cello, her sister the flute, and she herself turns the pages.",
    "A good password is long, is not a word in any dictionary, and is used only once.",
    "The old clock in the hall has been five minutes slow for as long as I can remember.",
    "Snow is expected above eight hundred metres, with strong winds along the coast.",
    "What surprised the judges most was not the speed of the boat but how quiet it was.",
    "The recipe serves four people and takes about forty minutes, not counting the oven.",
    "After the war the factory made bicycles, then sewing machines, and at last nothing at all.",
    "If x is larger than y, and y is larger than z, then x is larger than z.",
    "The gardener planted the roses near the wall, where the afternoon sun warms the stones.",
    "Tickets cost twelve euros at the door; students and pensioners pay half.",
    "The dog barked once, listened, and went back to sleep beside the stove.",
    "Scientists on the ship measured the salt in the water every two hours for a month.",
)
"""Each begins with another word or piece of code: whatever stands first must not decide."""


def read_texts(path: Path) -> list[str]:
    """Texts of a file, one per line; empty lines are left out.

    >>> read_texts(Path("no such file.txt"))
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'no such file.txt' cannot be read (No such file or directory): give a text file,
    one text per line
    """
    lines = read_lines(path, "give a text file, one text per line")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise HeadwiseError(f"{str(path)!r} has no texts: write one per line")
    return texts
