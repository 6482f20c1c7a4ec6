"""Build the wheel, install it into an empty environment and use it there.

What a user gets is what is tested: no checkout on the path, no development package,
a bare Django project with one more line in INSTALLED_APPS.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NAMES = """
import convmem

missing = [name for name in convmem.__all__ if not hasattr(convmem, name)]
assert not missing, missing
print(len(convmem.__all__), "public names, version", convmem.__version__)
"""
WRITE = """
from convmem.handlers import stores

reply = {"role": "assistant", "content": "Hi."}
stores["default"].add("hello", ["My name is Ada.", reply])
"""
READ = """
from convmem.handlers import stores

texts = [message.text for message in stores["default"].get("hello")]
assert texts == ["My name is Ada.", "Hi."], texts
print("a second process reads", texts)
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="convmem-wheel-") as name:
        folder = Path(name)
        wheel = build(folder)
        inspect(wheel)
        python = environment(folder / "venv", wheel)
        use(python, bare_project(python, folder))
    print("The wheel works in a bare project.")


def run(*command: object, cwd: Path) -> None:
    """Run a command without the checkout on the path; stop when it fails."""
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DJANGO"))
    }
    words = [str(part) for part in command]
    if subprocess.run(words, cwd=cwd, env=env, check=False).returncode:
        sys.exit(f"Failed: {' '.join(words)}")


def build(folder: Path) -> Path:
    """Return the wheel, built by way of the source archive, as a release is."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def inspect(wheel: Path) -> None:
    """Check that the wheel has every file of the package and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    strangers = {
        n for n in names if n.split("/")[0] != "convmem" and ".dist-info/" not in n
    }
    tracked = subprocess.run(
        ["git", "ls-files", "convmem"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    lost = set(tracked.stdout.split()) - names
    if strangers or lost:
        sys.exit(f"{wheel.name}: not ours: {sorted(strangers)}; lost: {sorted(lost)}")
    print(wheel.name, len(names), "files,", wheel.stat().st_size // 1024, "KiB")


def environment(folder: Path, wheel: Path) -> Path:
    """Return the interpreter of a new environment that has the wheel alone."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return python


def bare_project(python: Path, folder: Path) -> Path:
    """Return a project as Django makes it, with convmem in its INSTALLED_APPS."""
    run(python, "-m", "django", "startproject", "bare", cwd=folder)
    settings = folder / "bare" / "bare" / "settings.py"
    text = settings.read_text()
    settings.write_text(
        text.replace("INSTALLED_APPS = [", "INSTALLED_APPS = [\n    'convmem',")
    )
    return settings.parent.parent


def use(python: Path, project: Path) -> None:
    manage = (python, "-W", "error::DeprecationWarning:convmem", "manage.py")
    run(*manage, "check", cwd=project)
    run(*manage, "migrate", "--verbosity", "0", cwd=project)
    run(*manage, "makemigrations", "--check", "--dry-run", cwd=project)
    for script in (NAMES, WRITE, READ):
        run(*manage, "shell", "-c", script, cwd=project)


if __name__ == "__main__":
    main()
