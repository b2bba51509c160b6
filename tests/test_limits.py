"""`docs/limits.md` names every reason the code can give."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "limits.md").read_text()


def spoken(node: ast.expr) -> str:
    """A string literal as the page writes it: `…` for each inserted value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(spoken(v) if isinstance(v, ast.Constant) else "…" for v in node.values)
    if isinstance(node, ast.BinOp):
        return spoken(node.left) + spoken(node.right)
    return "…"


def reasons() -> set[str]:
    found = set()
    for path in (ROOT / "parallel_fuse").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name == "Reject":
                found.add(spoken(node.args[0]))
            if name == "drop" and len(node.args) == 2:
                found.add(spoken(node.args[0]))
    return {re.sub(r"\s+", " ", reason) for reason in found if reason != "…"}


def test_every_reason_stands_on_the_page():
    listed = set(re.findall(r"`([^`]+)`", PAGE))
    missing = sorted(reasons() - listed)
    assert not missing, "add to docs/limits.md:\n" + "\n".join(f"- `{m}`" for m in missing)


def test_the_page_lists_nothing_the_code_cannot_say():
    section = PAGE.split("## Reasons", 1)[1].split("\n## ", 1)[0]
    listed = re.findall(r"^- `([^`]+)`", section, re.M)
    assert listed
    stale = sorted(set(listed) - reasons())
    assert not stale, f"remove from docs/limits.md: {stale}"
