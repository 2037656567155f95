"""tools/count.py: which lines count, and names that are not unique."""

from __future__ import annotations

from tools import count


def test_public_classes_have_different_names() -> None:
    assert count.shared_class_names() == []


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
