"""What `verify` found: a report to read, and the same as JSON."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, NamedTuple


class Check(NamedTuple):
    """One line of the report.

    name: what was measured. measured: the result. promised: what was promised, and by what; or why nothing was.
    ok: None where nothing was promised. more: further lines of text. data: the result as plain data.
    """

    name: str
    measured: str
    promised: str = ""
    ok: bool | None = None
    more: tuple[str, ...] = ()
    data: dict[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Report:
    """What `verify` found. str() is for reading; as_dict() and save(path) hold everything."""

    title: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise holds."""
        return not self.broken

    @property
    def broken(self) -> list[str]:
        """The promises that do not hold, in words."""
        return [f"{c.name}: {c.measured} (promised: {c.promised})" for c in self.checks if c.ok is False]

    def __str__(self) -> str:
        width = max(len(c.name) for c in self.checks) + 2
        lines = [self.title, ""]
        for c in self.checks:
            lines.append(f"{c.name:{width}}{c.measured}")
            lines += [f"{'':{width + 2}}{text}" for text in c.more]
            if c.promised:
                lines[-1] += f"; {'no promise' if c.ok is None else 'promised'}: {c.promised}"
                lines[-1] += {None: "", True: ": ok", False: ": BROKEN"}[c.ok]
        broken = f"{len(self.broken)} BROKEN: {', '.join(c.name for c in self.checks if c.ok is False)}"
        kept = sum(c.ok is True for c in self.checks)
        return "\n".join([*lines, "", broken if self.broken else f"all {kept} promises hold"])

    def as_dict(self) -> dict[str, Any]:
        """As plain data for JSON; a number that is not finite is a text."""
        checks = [
            {"name": c.name, "measured": c.measured, "promised": c.promised, "ok": c.ok, **_plain(c.data)} for c in self.checks
        ]
        return {"title": self.title, "ok": self.ok, "broken": self.broken, "checks": checks}

    def save(self, path: str | Path) -> None:
        """Writes as_dict() as JSON. Raises OSError where it cannot."""
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        Path(path).expanduser().write_text(text + "\n", encoding="utf-8")


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {str(k): _plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(v) for v in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x
