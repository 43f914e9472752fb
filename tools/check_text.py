# SPDX-License-Identifier: Apache-2.0
"""Each source file opens with its licence line, no file names a folder of somebody's machine, and links in documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import tree

SOURCES = (".h", ".cc", ".py", ".pyi", ".sh", ".cmake", "CMakeLists.txt", "Makefile", ".ci/run")
SPDX = re.compile(r"^(//|#) SPDX-License-Identifier: Apache-2\.0$")
# An absolute path into a personal or working folder; written in pieces, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.~)}\]/*$-])/" + "(work|root|home)" + r"(/|\b(?!\.))")
# [text](target) and ![text](target) of Markdown, where the target is a file of the tree.
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def check(root: Path) -> list[str]:
    problems = []
    for path in tree.files(root):
        if path.suffix in (".png", ".svg", ".bin", ".pt"):
            continue
        content = tree.lines(root, path)
        is_source = path.name.endswith(SOURCES) or str(path).endswith(SOURCES)
        head = content[1:2] if content and content[0].startswith("#!") else content[:1]
        if is_source and content and not (head and SPDX.match(head[0])):
            comment = "//" if path.suffix in (".h", ".cc") else "#"
            problems.append(f"{path}:1: begin with '{comment} SPDX-License-Identifier: Apache-2.0' (after #! where there is one)")
        for number, line in enumerate(content, 1):
            if found := MACHINE_PATH.search(line):
                problems.append(f"{path}:{number}: '{found[0]}' is a path of one machine: derive it, or take it as an argument")
            if path.suffix == ".md":
                for target in LINK.findall(line):
                    if not (root / path.parent / target).exists():
                        problems.append(f"{path}:{number}: the link leads to {target}, which does not exist")
    return problems


if __name__ == "__main__":
    root = tree.root_from_arguments()
    raise SystemExit(tree.report("text", check(root), f"licence lines and paths of {len(tree.files(root))} files"))
