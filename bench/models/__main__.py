"""Write docs/models.md: .slipway/envs/tasks/bin/python -m bench.models."""

from bench.models import page
from bench.models.records import REPOSITORY

if __name__ == "__main__":
    page.FILE.write_text(page.page())
    print(f"wrote {page.FILE.relative_to(REPOSITORY)}")
