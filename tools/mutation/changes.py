"""The changes that can be made to a Python file, one fault each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

DOCUMENTS = {"DOCUMENTATION", "EXAMPLES", "RETURN", "__all__", "__metaclass__"}
OPPOSITES = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "|": "&", "&": "|", "<<": ">>", ">>": "<<",
    "any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list", "True": "False", "False": "True",
}  # fmt: skip
NO_EFFECT = {"encoding": "", "check": "False", "frozen": "", "slots": "", "kw_only": "", "usedforsecurity": ""}
"""Keyword arguments (with this value, or any) that tests cannot miss: defaults, those of the test machine included, and
what forbids mistakes in code."""
ANY_ORDER = {"min", "max", "suppress", "isinstance", "issubclass", "map", "filter", "partial"}
"""Functions that do the same with their arguments swapped, or that cannot work at all."""
TRIMMING = {"strip", "lstrip", "rstrip", "lower", "upper", "casefold", "copy", "resolve", "absolute", "expanduser"}
COMPARISON = r"not\s+in|is\s+not|[<>=!]=|<|>|\bin\b|\bis\b"
ARITHMETIC = r"//|<<|>>|[-+*/%|&]"
LOOSE = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
CACHES = ("cache", "lru_cache", "cached_property")


@dataclass(frozen=True)
class Change:
    path: str
    line: int
    column: int
    kind: str
    before: str
    after: str
    span: tuple[int, int]
    """the bytes that are replaced"""
    lines: tuple[int, int]
    """the lines of the statement, or of its head"""
    at_import: bool
    """It takes effect when the module is imported, or once in a process."""
    text: str
    """the line as it is"""

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}:{self.column}:{self.kind}"

    @property
    def description(self) -> str:
        return f"{_short(self.before)} → {_short(self.after) or 'nothing'}"

    @property
    def identity(self) -> str:
        """It stays the same when other lines of the file change."""
        return f"{self.text}\n{self.kind}\n{self.before}\n{self.after}"

    def apply(self, source: bytes) -> bytes:
        """Return the changed source. Other lines keep their numbers."""
        start, end = self.span
        new = self.after.encode()
        return source[:start] + new + b"\n" * (source[start:end].count(b"\n") - new.count(b"\n")) + source[end:]

    def changes(self, source: bytes) -> bool:
        """Whether the result is a program, and another one."""
        try:
            changed = ast.parse(self.apply(source))
            compile(changed, self.path, "exec")
        except (SyntaxError, ValueError):
            return False
        return ast.dump(changed) != ast.dump(ast.parse(source))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


class Places:
    """Find the places of a file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.rows = source.splitlines(keepends=True)
        self.starts = [0]
        for row in self.rows:
            self.starts.append(self.starts[-1] + len(row))
        self.tree = ast.parse(source)

    def all(self) -> Iterator[Change]:
        yield from self._block(self.tree.body, at_import=True)

    def _span(self, node: ast.AST, last: ast.AST | None = None) -> tuple[int, int]:
        end = last or node
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self.starts[end.end_lineno - 1] + end.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _block(self, body: list[ast.stmt], at_import: bool) -> Iterator[Change]:
        for statement in body:
            yield from self._statement(statement, at_import)

    def _statement(self, node: ast.stmt, at_import: bool) -> Iterator[Change]:
        if _is_left_out(node):
            return
        bodies = [
            value
            for _, value in ast.iter_fields(node)
            if isinstance(value, list) and value and isinstance(value[0], (ast.stmt, ast.ExceptHandler))
        ]
        first_inner = min((body[0].lineno for body in bodies), default=0)
        head = (node.lineno, max(node.lineno, first_inner - 1) if first_inner else node.end_lineno or node.lineno)

        def made(kind: str, span: tuple[int, int], after: str, lines: tuple[int, int] = head) -> Change:
            before = self.source[span[0] : span[1]].decode()
            line = self.source.count(b"\n", 0, span[0]) + 1
            column = span[0] - self.starts[line - 1] + 1
            text = self.rows[line - 1].decode().strip()
            return Change(self.path, line, column, kind, before, after, span, lines, at_import, text)

        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for default in [*node.args.defaults, *(value for value in node.args.kw_defaults if value)]:
                for kind, span, after in self._expression(default):
                    yield made("default" if isinstance(default, ast.Constant) else kind, span, after)
            once = any(word in ast.unparse(decorator) for decorator in node.decorator_list for word in CACHES)
            yield from self._block(node.body, at_import=once)
            return
        if isinstance(node, ast.ClassDef):
            yield from self._block(node.body, at_import)
            return
        for kind, span, after in self._of_statement(node):
            yield made(kind, span, after)
        for field in ast.iter_child_nodes(node):
            if isinstance(field, ast.ExceptHandler):
                here = (field.lineno, field.lineno)
                if field.type is not None:
                    yield made("handler", self._span(field.type), "()", here)
                if not isinstance(field.body[0], ast.Pass):
                    yield made("handler-body", self._span(field.body[0], field.body[-1]), "pass", here)
                yield from self._block(field.body, at_import)
            elif isinstance(field, ast.expr) and field is not getattr(node, "annotation", None):
                for kind, span, after in self._expression(field):
                    yield made(kind, span, after)
            elif isinstance(field, ast.withitem):
                for kind, span, after in self._expression(field.context_expr):
                    yield made(kind, span, after)
        for body in bodies:
            if isinstance(body[0], ast.stmt):
                yield from self._block(body, at_import)

    def _of_statement(self, node: ast.stmt) -> Iterator[tuple[str, tuple[int, int], str]]:
        match node:
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete():
                yield "statement", self._span(node), "pass"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield "statement", self._span(node), "pass"
            case ast.Raise():
                yield "raise", self._span(node), "pass"
            case ast.Return(value=ast.expr() as value) if not _is_false(value):
                yield "return", self._span(node), "return None"
            case ast.Break():
                yield "loop", self._span(node), "continue"
            case ast.Continue():
                yield "loop", self._span(node), "break"
        if isinstance(node, ast.AugAssign):
            yield from self._between("arithmetic", node.target, node.value, r"//|<<|>>|[-+*/%|&](?==)")
        if isinstance(node, (ast.If, ast.While, ast.Assert)):
            yield from self._negated(node.test)

    def _negated(self, test: ast.expr) -> Iterator[tuple[str, tuple[int, int], str]]:
        if not isinstance(test, ast.UnaryOp):
            yield "negate", self._span(test), f"(not ({self._text(test)}))"

    def _between(
        self, kind: str, left: ast.AST, right: ast.AST, pattern: str
    ) -> Iterator[tuple[str, tuple[int, int], str]]:
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[start:end].decode(errors="replace")
        if "#" not in gap and (operator := re.search(pattern, gap)):
            span = start + operator.start(), start + operator.end()
            yield kind, span, OPPOSITES[" ".join(operator[0].split())]

    def _expression(self, node: ast.expr) -> Iterator[tuple[str, tuple[int, int], str]]:
        # Positions in f-strings are wrong before Python 3.12.
        if isinstance(node, ast.JoinedStr):
            return
        match node:
            case ast.Compare(left=left, comparators=[right]):
                yield from self._between("compare", left, right, COMPARISON)
            case ast.BinOp(left=left, right=right) if not (_is_text(left) or _is_text(right)):
                yield from self._between("arithmetic", left, right, ARITHMETIC)
            case ast.BoolOp(op=op, values=values):
                yield from self._bool_op(node, " and " if isinstance(op, ast.And) else " or ", values)
            case ast.IfExp(test=test):
                yield from self._negated(test)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield "not", self._span(node), f"({self._text(operand)})"
            case ast.Constant(value=value):
                yield from self._constant(node, value)
            case ast.Call():
                yield from self._call(node)
            case ast.Slice(lower=lower, upper=upper):
                for bound in (lower, upper):
                    if bound is not None:
                        yield "slice", self._span(bound), ""
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.comprehension):
                yield from self._expression(inner.iter)
                for test in inner.ifs:
                    yield "filter", self._span(test), "True"
                    yield from self._negated(test)
                    yield from self._expression(test)
            elif isinstance(inner, ast.keyword):
                yield from self._expression(inner.value)
            elif isinstance(inner, ast.expr):
                yield from self._expression(inner)

    def _bool_op(self, node: ast.expr, word: str, values: list[ast.expr]) -> Iterator[tuple[str, tuple[int, int], str]]:
        texts = [f"({self._text(value)})" if isinstance(value, LOOSE) else self._text(value) for value in values]
        span = self._span(node)
        yield "and-or", span, f"({(' or ' if word == ' and ' else ' and ').join(texts)})"
        for number, value in enumerate(values):
            rest = word.join(text for place, text in enumerate(texts) if place != number)
            if span != self._span(value):
                yield "operand", span, f"({rest})"

    def _constant(self, node: ast.Constant, value: object) -> Iterator[tuple[str, tuple[int, int], str]]:
        span = self._span(node)
        if isinstance(value, bool):
            yield "bool", span, OPPOSITES[str(value)]
        elif isinstance(value, (int, float)):
            yield "number", span, str(value - 1 if value and node.col_offset % 2 else value + 1)
        elif isinstance(value, str) and not re.search(r"\s", value):
            yield "string", span, repr(f"{value}x")

    def _call(self, node: ast.Call) -> Iterator[tuple[str, tuple[int, int], str]]:
        func = node.func
        if isinstance(func, ast.Name) and func.id in ("any", "all", "min", "max"):
            yield "aggregate", self._span(func), OPPOSITES[func.id]
        if isinstance(func, ast.Name) and func.id == "sorted" and node.args:
            yield "sorted", self._span(node), f"list({self._text(node.args[0])})"
        if isinstance(func, ast.Attribute) and func.attr in TRIMMING and not node.args:
            yield "trim", self._span(node), self._text(func.value)
        words = [word for word in node.args if not isinstance(word, ast.Starred)]
        name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
        if (
            name not in ANY_ORDER
            and len(words) > 1
            and words == node.args[: len(words)]
            and ast.dump(words[0]) != ast.dump(words[1])
        ):
            start, middle = self._span(words[0])
            next_start, end = self._span(words[1])
            gap = self.source[middle:next_start].decode()
            yield "arguments", (start, end), self._text(words[1]) + gap + self._text(words[0])
        all_words: list[ast.AST] = sorted([*node.args, *node.keywords], key=self._span)
        for keyword in node.keywords:
            if keyword.arg is None or NO_EFFECT.get(keyword.arg) in ("", self._text(keyword.value)):
                continue
            place = all_words.index(keyword)
            start, end = self._span(keyword)
            if place + 1 < len(all_words):
                end = self._span(all_words[place + 1])[0]
            elif place:
                start = self._span(all_words[place - 1])[1]
            yield "keyword", (start, end), ""


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _is_left_out(node: ast.stmt) -> bool:
    """Imports, documentation, and what only type checkers read."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant() | ast.JoinedStr()):
            return True
        case ast.If(test=test):
            return any(word in ast.unparse(test) for word in ("TYPE_CHECKING", "__name__"))
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            alias = isinstance(value, (ast.Subscript, ast.BinOp)) and name[:1].isupper() and not name.isupper()
            return alias or name in DOCUMENTS or "TypeVar" in ast.unparse(value)
        case ast.AnnAssign(annotation=annotation):
            return "TypeAlias" in ast.unparse(annotation)
    return False
