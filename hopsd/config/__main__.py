"""`python -m hopsd.config`: write conf/hopsd.toml and the tables of docs/configuration.md."""

from __future__ import annotations

from pathlib import Path

from hopsd.config.reference import documentation, reference_file

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "conf" / "hopsd.toml"
DOCUMENTATION = ROOT / "docs" / "configuration.md"


def main() -> None:
    REFERENCE.write_text(reference_file(), encoding="utf-8")
    text = DOCUMENTATION.read_text(encoding="utf-8")
    DOCUMENTATION.write_text(documentation(text), encoding="utf-8")


if __name__ == "__main__":
    main()
