"""Copies into the chart what helm cannot read outside it: `make chart-files`. Standard library only."""

import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "k8s" / "chart" / "files"
HEAD = (
    "# What adapters/*/adapter.toml say of each FRAMEWORK: its folder and its variables. Made by `make chart-files`.\n"
)


def frameworks() -> str:
    """Every variant that our host can run, as YAML."""
    variants = {}
    for file in (ROOT / "adapters").glob("*/adapter.toml"):
        for variant in tomllib.loads(file.read_text(encoding="utf-8"))["variant"]:
            if "entry" in variant:  # a program of its own does not listen where a pod is reached
                variants[variant["name"]] = (file.parent.name, variant.get("env", {}))
    lines = [HEAD]
    for name, (folder, variables) in sorted(variants.items()):
        lines.append(f"{name}:\n  adapter: {folder}\n")
        if variables:
            lines.append("  env:\n")
            lines += [f'    {variable}: "{value}"\n' for variable, value in sorted(variables.items())]
    return "".join(lines)


def main() -> None:
    """Make all copies anew."""
    shutil.copyfile(ROOT / "otel" / "collector.yaml", FILES / "collector.yaml")
    (FILES / "frameworks.yaml").write_text(frameworks(), encoding="utf-8")
    for name, pattern in (("dashboards", "dashboards/*.json"), ("rules", "prometheus/rules/*.y*ml")):
        for old in (FILES / name).glob("*.*ml" if name == "rules" else "*.json"):
            old.unlink()
        for file in sorted((ROOT / "grafana").glob(pattern)):
            shutil.copyfile(file, FILES / name / file.name)


if __name__ == "__main__":
    main()
