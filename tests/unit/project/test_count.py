"""The figures of tools/count.py that the product has reached."""

from __future__ import annotations

from tools import count


def test_no_pronoun_or_participle_is_an_identifier() -> None:
    assert count.banned_identifiers().examples == ()


def test_no_word_of_a_private_dialect_is_in_the_prose() -> None:
    assert count.banned_words().examples == ()


def test_public_classes_have_different_names() -> None:
    assert count.shared_class_names().examples == ()


def test_entry_points_stay_few() -> None:
    assert [f"{figure.name}: {figure.value}" for figure in count.entry_points() if not figure.ok] == []


def test_only_code_is_counted() -> None:
    source = '''"""A module."""

DOCUMENTATION = """
options: {}
"""
LIMIT = 3  # a comment
"""What the limit is."""


def f() -> str:
    # Nothing.
    return """two
lines"""
'''
    assert count.code_lines(source) == 4
