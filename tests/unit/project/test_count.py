"""The figures of tools/count.py that the product and its tests have reached."""

from __future__ import annotations

from tools import count


def test_names_and_prose_have_no_more_banned_words_than_they_have_reached() -> None:
    assert [(figure.name, figure.examples) for figure in count.plain_language() if not figure.ok] == []


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
