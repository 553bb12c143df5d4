"""The package's rooms and arrows: modules import one way, and none is too long to read at a sitting."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "readout_utils"
#: Longer ones are to be split; those that stand here are known, and may only shrink.
LINES = 450
LONGER = {"captions": 741, "encoders": 751, "evaluation": 803, "jacobian": 494, "scenes": 576}


def imports(source: str, package: str = "readout_utils") -> set[str]:
    """Modules of the package that a module imports, inside functions too; not those for type checkers alone."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                walk(child)
            return
        if isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith(f"{package}."))
        elif isinstance(node, ast.ImportFrom):
            own = node.level == 1 or node.module == package or (node.module or "").startswith(f"{package}.")
            inside = (node.module or "").removeprefix(package).strip(".")
            if own:
                found.update([inside.split(".")[0]] if inside else [a.name for a in node.names])
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(source))
    return found


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import each other, from one back to itself; empty if there are none."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(arrows.get(module, ())):
            if found := visit(target, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(arrows) if (found := visit(module, []))), [])


def test_imports_point_one_way():
    sources = {path.stem: path.read_text() for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    arrows = {module: imports(source) & set(sources) for module, source in sources.items()}
    assert sum(map(len, arrows.values())) > 20  # they are seen at all
    assert not (found := circle(arrows)), f"import circle: {' -> '.join(found)}"


@pytest.mark.parametrize(
    "back",
    [
        "from .one import x",
        "def f():\n    from . import one",
        "import readout_utils.one",
        "from readout_utils import one",
    ],
)
def test_a_circle_is_found_and_named(back):
    arrows = {
        "one": imports("from .two import y"),
        "two": imports("from .three import z"),
        "three": imports(back),
    }
    assert circle(arrows) == ["one", "two", "three", "one"]
    arrows["three"] = imports(
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {back}" if "def" not in back else ""
    )
    assert circle(arrows) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_modules_stay_short(path):
    lines = len(path.read_text().splitlines())
    assert lines <= LONGER.get(path.stem, LINES), f"{path.name} has {lines} lines: split it"
    assert path.stem not in LONGER or lines > LINES, f"{path.stem} is short enough now: take it out of LONGER"


def test_the_readme_maps_every_module_in_the_order_of_imports():
    table = (PACKAGE.parent / "README.md").read_text().split("| module |")[1].split("\n\n")[0]
    order = [name.strip(" `") for row in table.splitlines()[2:] for name in row.split("|")[1].split(",")]
    assert sorted(order) == sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
    for place, module in enumerate(order):
        later = imports((PACKAGE / f"{module}.py").read_text()) & set(order[place:])
        assert not later, f"{module} imports {later}, which the README lists below it"
