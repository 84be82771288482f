"""Pages link to code, tests and results that lie outside docs/; on the site these become pages and files of their own.

So the same links work where the repository is read on a code host and where the site is read from a folder. What a
link names is put under source/ with its path in the repository: Markdown as a page, code as a page that shows it, a
folder as a page that lists it, anything else as the file it is. What such pages link to comes along.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PLACE = "source"
ALWAYS = ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
CODE = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", "": "makefile"}
CODE_OR_LINK = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2|`[^`\n]+`)|(\]\()([^()\s]+)(\))", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root, docs = _places(config)
    seen = {Path(file.abs_src_path) for file in files if file.abs_src_path}
    ahead = [path for path in seen if path.suffix == ".md"] + [root / name for name in ALWAYS]
    while ahead:
        path = ahead.pop()
        if path not in seen:
            seen.add(path)
            files.append(_file(path, root, config))
        if path.suffix == ".md":
            targets = (_target(link, path) for link in _links(path.read_text(encoding="utf-8")))
            ahead.extend(target for target in targets if target not in seen and _outside(target, root, docs))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead out of docs/, and those of pages from outside, as links between pages of the site."""
    root, docs = _places(config)
    uri = page.file.src_uri
    from_outside = uri.startswith(f"{PLACE}/")
    here = root / uri.removeprefix(f"{PLACE}/") if from_outside else docs / uri

    def moved(match: re.Match[str]) -> str:
        code, _, opening, link, closing = match.groups()
        if code or re.match(r"[a-z]+:|#", link):
            return match[0]
        path, hash_mark, anchor = link.partition("#")
        target = _target(path, here)
        if _outside(target, root, docs):
            place = _uri(target, root)
        elif from_outside and target.is_relative_to(docs):
            place = target.relative_to(docs).as_posix()
        else:
            return match[0]
        relative = os.path.relpath(place, os.path.dirname(uri))
        return f"{opening}{relative}{hash_mark}{anchor}{closing}"

    return CODE_OR_LINK.sub(moved, markdown)


def _places(config: MkDocsConfig) -> tuple[Path, Path]:
    return Path(config.config_file_path).resolve().parent, Path(config.docs_dir).resolve()


def _links(markdown: str) -> list[str]:
    found = (match[4] for match in CODE_OR_LINK.finditer(markdown) if match[4])
    return [link.partition("#")[0] for link in found if not re.match(r"[a-z]+:|#", link)]


def _target(link: str, page: Path) -> Path:
    return Path(os.path.normpath(page.parent / link))


def _outside(path: Path, root: Path, docs: Path) -> bool:
    return path.is_relative_to(root) and not path.is_relative_to(docs) and path.exists()


def _uri(path: Path, root: Path) -> str:
    """Where the site has a file of the repository, as the path of a source file of the site."""
    place = f"{PLACE}/{path.relative_to(root).as_posix()}"
    if path.is_dir():
        return f"{place}/index.md" if not (path / "README.md").exists() else f"{place}/README.md"
    return f"{place}.md" if path.suffix in CODE else place


def _file(path: Path, root: Path, config: MkDocsConfig) -> File:
    uri = _uri(path, root)
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        listed = "\n".join(f"- `{each.name}`" for each in sorted(path.iterdir()) if each.name[0] not in "._")
        return File.generated(config, uri, content=f"# {name}\n\n{listed}\n")
    if path.suffix in CODE:
        hidden = "---\nsearch: {exclude: true}\nhide: [navigation, toc]\n---\n"
        text = path.read_text(encoding="utf-8").rstrip()
        shown = f'`````{{.{CODE[path.suffix]} linenums="1"}}\n{text}\n`````\n'
        return File.generated(config, uri, content=f"{hidden}# {name}\n\n{shown}")
    if path.suffix == ".md":
        return File.generated(config, uri, content=path.read_text(encoding="utf-8"))
    return File.generated(config, uri, abs_src_path=str(path))
