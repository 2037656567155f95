"""Problems and names as they are joined for a message."""

from __future__ import annotations

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.tables import join_names
from ansible_collections.deeplearning.aws.plugins.module_utils.messages import join_problems


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        (["a is wrong"], "a is wrong"),
        (["a is wrong", "a is wrong"], "a is wrong"),
        (["b is wrong", "a is wrong", "b is wrong"], "2 settings are wrong:\n- b is wrong\n- a is wrong"),
    ],
)
def test_each_problem_is_a_line_once(problems: list[str], text: str) -> None:
    assert join_problems(problems, "{} settings are wrong:") == text


def test_names_beyond_the_most_are_counted() -> None:
    assert join_names([]) == ""
    assert join_names(["a", "b", "c"], 3) == "a, b, c"
    assert join_names(["a", "b", "c", "d", "e"], 3) == "a, b, c and 2 more"
    assert join_names([str(number) for number in range(12)]).endswith("10, 11")
    assert join_names([str(number) for number in range(13)]).endswith("10, 11 and 1 more")
