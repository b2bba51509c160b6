"""Imports point one way, and house rules that a linter does not know.

The table below is the map: a module belongs to the area that names it or a package around it, so
that modules may move into packages without a change to the rules.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "parallel_fuse"

# area → (its modules, the areas it may import beside its own)
AREAS: dict[str, tuple[str, str]] = {
    "words": ("errors policy plain wording", ""),
    "keras": ("_keras _backend", ""),
    "layers": ("layers", "keras"),
    "view": ("graph plan masks rulebook", "words keras"),
    "lanes": ("lanes activations options apart", "words keras layers view"),
    "rules": ("kinds joins splits", "words keras layers view lanes"),
    "pieces": ("pieces", "words keras view lanes rules"),
    "matching": ("matching", "words keras view lanes rules pieces"),
    "deciding": ("deciding", "words keras view lanes rules pieces matching"),
    "rebuilding": ("rebuilding", "words keras view lanes rules pieces matching deciding"),
    "inlining": ("inlining", "words keras rebuilding"),
    "verification": ("verification", "words keras"),
    "report": ("report", ""),
    "telling": ("describe", "words keras view deciding report"),
    "translation": ("translation", "words"),
    "api": (
        "api",
        "words keras view rules matching deciding rebuilding inlining verification report telling",
    ),
    "outside": (
        "__init__ __main__ command conversion targets reading bench",
        "words keras translation layers view lanes rules pieces matching deciding rebuilding "
        "inlining verification report telling api",
    ),
}
PRINTS = ("command", "__main__")
BACKENDS = ("tensorflow", "jax", "torch")
MAY_USE_A_BACKEND = (
    "layers", "_backend", "bench", "targets", "inlining.dispatch", "translation.frozen",
    "translation.inlined", "reading",
)  # fmt: skip


def sources() -> dict[str, Path]:
    """Dotted name below the package → file; a package has the name of its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


SOURCES = sources()
TREES = {name: ast.parse(path.read_text()) for name, path in SOURCES.items()}


def inside(module: str, names: str | tuple[str, ...]) -> bool:
    listed = names.split() if isinstance(names, str) else names
    return any(module == name or module.startswith(f"{name}.") for name in listed)


def area_of(module: str) -> str:
    return next((a for a, (modules, _) in AREAS.items() if inside(module, modules)), "unlisted")


def imported(tree: ast.AST) -> Iterator[str]:
    """Full dotted names of everything imported, as far as the statement says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(names: Iterable[str]) -> set[str]:
    """The modules of this package among imported names."""
    split = [full.split(".") for full in names if full.split(".")[0] == "parallel_fuse"]
    paths = ([".".join(p[1:end]) for end in range(len(p), 1, -1)] for p in split)
    return {next((b for b in below if b in SOURCES), "__init__") for below in paths}


def own_modules(name: str) -> set[str]:
    """The modules of this package that a module imports, at once or later."""
    return ours(imported(TREES[name]))


def calls_of(tree: ast.AST, *names: str) -> list[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in names]


def test_every_module_has_one_area():
    for module in SOURCES:
        areas = [area for area, (modules, _) in AREAS.items() if inside(module, modules)]
        assert len(areas) == 1, f"{module}: {areas or 'add it to the table of areas'}"


@pytest.mark.parametrize("area", AREAS)
def test_imports_point_one_way(area):
    allowed = {area, *AREAS[area][1].split()}
    for module in (m for m in SOURCES if area_of(m) == area):
        wrong = {m for m in own_modules(module) if area_of(m) not in allowed}
        assert not wrong, f"{module} ({area}) imports {wrong}"


def test_the_machine_knows_no_rule_by_name():
    """It takes the rules as arguments; only their protocols are its business."""
    for module in (m for m in SOURCES if area_of(m) in ("matching", "deciding", "rebuilding")):
        rules = {m for m in own_modules(module) if area_of(m) == "rules"}
        assert all(m.endswith(".base") for m in rules), f"{module} imports {rules}"


def test_no_two_modules_import_each_other():
    below = {module: own_modules(module) - {module} for module in SOURCES}
    while below:
        leaves = {m for m, wants in below.items() if not (wants & below.keys())}
        assert leaves, f"a circle among {sorted(below)}"
        below = {m: wants for m, wants in below.items() if m not in leaves}


# --- Keras and the backends


def defined_here() -> set[str]:
    """Every underscore name that this package itself gives to something."""
    found = {part for name in SOURCES for part in name.split(".")}
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and _sets_on_self(node):
                found.add(node.attr)
    return found


def _sets_on_self(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_attributes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.attr
    for call in calls_of(tree, "getattr", "setattr", "hasattr", "delattr"):
        second = call.args[1]
        if isinstance(second, ast.Constant) and is_private(str(second.value)):
            yield second.value


def test_private_keras_names_stand_in_one_file():
    known = defined_here()
    for module in SOURCES.keys() - {"_keras"}:
        source = ast.unparse(TREES[module])
        assert "keras.src" not in source.replace("'keras.src", ""), module
        foreign = set(private_attributes(TREES[module])) - known
        assert not foreign, f"{module}: {foreign} belong into _keras.py"


def test_backends_are_imported_where_they_may_be_and_only_when_used():
    for module, tree in TREES.items():
        used = {full.split(".")[0] for full in imported(tree)} & set(BACKENDS)
        assert not used or inside(module, MAY_USE_A_BACKEND), f"{module} imports {used}"
        at_once = {full.split(".")[0] for node in tree.body for full in imported_at_once(node)}
        if at_once & set(BACKENDS):
            eager = [m for m in SOURCES if module in imported_at_load(m)]
            assert not eager, f"{eager} import {module}, and with it {at_once}, when loaded"


def imported_at_once(node: ast.stmt) -> Iterator[str]:
    """What a statement of a module imports when the module is loaded."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not _types_only(node):
        yield from imported(node)


def _types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported_at_load(module: str) -> set[str]:
    return ours(full for node in TREES[module].body for full in imported_at_once(node))


LIGHT = """
import sys
import keras
before = set(sys.modules)
import parallel_fuse
import parallel_fuse.conversion.convert
new = {name.split(".")[0] for name in set(sys.modules) - before}
heavy = new & {"click", "rich", "sklearn", "scipy", "pandas", "matplotlib", "onnx", "tf2onnx"}
assert not heavy, heavy
others = {"tensorflow", "jax", "torch"} - {keras.backend.backend()}
assert not new & (others - {name.split(".")[0] for name in before}), new
assert not {"parallel_fuse.command.cli", "parallel_fuse.command.demo"} & sys.modules.keys()
"""


def test_importing_the_package_is_light():
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


# --- house rules


def test_print_belongs_to_the_command_line():
    for module, tree in TREES.items():
        assert inside(module, PRINTS) or not calls_of(tree, "print"), module


def test_no_assert_and_no_bare_except():
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Assert), f"{module}:{node.lineno}"
            bare = isinstance(node, ast.ExceptHandler) and node.type is None
            assert not bare, f"{module}:{node.lineno}"


def test_one_logger():
    for module, path in SOURCES.items():
        names = re.findall(r"getLogger\((.*?)\)", path.read_text())
        assert set(names) <= {'"parallel_fuse"'}, f"{module}: {names}"


def test_files_stay_short_and_say_what_they_are_for():
    for module, path in SOURCES.items():
        # One file holds every private Keras name, however many there are.
        limit = 450 if module == "_keras" else 300
        assert len(path.read_text().splitlines()) <= limit, module
        assert ast.get_docstring(TREES[module]) or module == "__main__", f"{module}: no docstring"


def test_rules_are_data():
    """No class hierarchy but Keras' own and the errors."""
    allowed = {"Layer", "Exception", "ValueError", "Error", "Enum", "IntEnum", "Protocol"}
    for module, tree in TREES.items():
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
            bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
            other = [b for b in bases if not any(b.endswith(a) for a in allowed)]
            assert not other or inside(module, "layers"), f"{module}.{node.name}: {other}"


# --- pages


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    clean = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in clean}


def test_no_dead_links_between_pages():
    found = 0
    for page in pages():
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(file), f"{page.name}: {target}"
            found += 1
    assert found > 3


def test_every_public_name_stands_on_the_api_page():
    page = (ROOT / "docs" / "api.md").read_text()
    tree = TREES["__init__"]
    names = next(n.value for n in tree.body if _assigns(n, "__all__"))
    for name in ast.literal_eval(names):
        assert name in page, f"docs/api.md does not name {name}"


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
