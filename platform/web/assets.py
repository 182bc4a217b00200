"""Static files: of installed packages only what pages use, and packed in seconds rather than minutes.

Plotly's build is the one its Python side writes for. Everything together and packed by Brotli took a
minute and a half of the first start, most of it for files that no page asks for.
"""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import AppDirectoriesFinder, BaseFinder
from django.core.files.storage import FileSystemStorage, Storage
from whitenoise.compress import Compressor
from whitenoise.storage import CompressedManifestStaticFilesStorage

PLOTLY = "plotly.min.js"
PREFIX = "plotly"
CSS_REFERENCES = (
    r"""(?P<matched>url\((?P<quote>['"]{0,1})\s*(?P<url>.*?)(?P=quote)\))""",
    (r"""(?P<matched>@import\s*["']\s*(?P<url>.*?)["'])""", """@import url("%(url)s")"""),
)


def plotly_folder() -> Path:
    """Return where the plotly package keeps its build, without importing the package."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package plotly is not installed")
    return Path(spec.origin).parent / "package_data"


class LeanFinder(AppDirectoriesFinder):
    """Finds the static files of apps, without source maps and without what only other settings would use."""

    UNUSED = ("*.map", "rest_framework", "redoc", "*-es-bundle*", "oauth2-redirect*", "index.*")

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        yield from super().list([*(ignore_patterns or ()), *self.UNUSED])


class PackedStorage(CompressedManifestStaticFilesStorage):
    """Names files by their content and packs them with gzip."""

    # Source maps are not collected, so that mentions of them stay as they are.
    patterns = (("*.css", CSS_REFERENCES),)

    def create_compressor(self, **options: Any) -> Compressor:
        return Compressor(**{**options, "use_brotli": False})


class PlotlyFinder(BaseFinder):
    """Finds `plotly/plotly.min.js` and nothing else of the package."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.storage = FileSystemStorage(location=plotly_folder())
        self.storage.prefix = PREFIX  # type: ignore[attr-defined]  # collectstatic reads it

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = str(plotly_folder() / PLOTLY) if path == f"{PREFIX}/{PLOTLY}" else None
        if find_all or kwargs.get("all"):
            return [found] if found else []
        return found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        yield PLOTLY, self.storage
