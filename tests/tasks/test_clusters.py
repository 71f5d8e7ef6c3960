"""Which prompts belong together."""

from __future__ import annotations

from words import word_tokenizer

from headwise.tasks.clusters import clusters_of
from headwise.tasks.labelled.binding import binding
from headwise.tasks.labelled.filter import filter


def test_the_coarsest_label_with_values_enough_is_taken() -> None:
    labels = [{"wording": str(i % 7), "entity": str(i % 20), "order": str(i % 2)} for i in range(40)]
    found = clusters_of(labels)
    assert (found.name, len(found)) == ("wording", 7)
    assert found.which.tolist() == [i % 7 for i in range(40)]
    assert clusters_of(labels, least=8).name == "entity"
    assert clusters_of(labels, least=21).name == "prompt"


def test_a_label_that_some_prompts_lack_or_that_parts_a_scene_is_none() -> None:
    labels = [{"entity": str(i)} for i in range(6)] * 2
    assert clusters_of(labels).name == "entity"
    assert clusters_of([*labels, {}]).name == "prompt"
    pairs = [i + 1 if i % 2 == 0 else i - 1 for i in range(12)]
    assert clusters_of(labels, pairs).name == "pair"
    assert len(clusters_of(labels, pairs)) == 6


def test_clusters_of_the_tasks() -> None:
    tokenizer = word_tokenizer()
    task = binding(tokenizer, prompts=40, test=10, scan=40)
    assert (task.test.clusters().name, len(task.test.clusters())) == ("pair", 5)
    assert (task.scan.clusters().name, len(task.scan.clusters())) == ("template", 12)
    lists = filter(tokenizer, prompts=40, test=40, scan=12)
    fruits = lists.involved("fruits")
    assert 0 < len(fruits) < 40 and len(lists.involved("category")) == 40
    for i in fruits:
        example = lists.test.examples[i]
        kinds = dict(zip(example.keys, example.key_groups["category"], strict=True))
        assert "fruits" in [kinds[key] for key in example.swap or ()]
    assert task.involved("order") == list(range(10))
