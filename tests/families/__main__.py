"""Writes docs/models.md: .slipway/envs/tasks/bin/python -m tests.families."""

from tests.families import page
from tests.support.paths import REPOSITORY

if __name__ == "__main__":
    page.FILE.write_text(page.page())
    print(f"wrote {page.FILE.relative_to(REPOSITORY)}")
