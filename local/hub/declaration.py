"""The format of a fixture's `repository.yaml`. Reads and checks it; touches no other file."""

from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from slipway.tasks.contracts.errors import InputError


class FixtureError(InputError):
    """A fixture repository is declared wrongly."""


def _stays_inside(path: str) -> str:
    if path.startswith("/") or ".." in Path(path).parts:
        raise ValueError(f"{path!r} leaves the repository's folder; give a relative path without '..'")
    return path


InsidePath = Annotated[str, AfterValidator(_stays_inside)]


class Declared(BaseModel):
    """Closed and frozen: a misspelt key is an error, not a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Damage(Declared):
    """A repeatable corruption of tensors of one safetensors file."""

    file: InsidePath
    tensor: str = Field(description="tensor name or glob; must match at least one")
    kind: Literal["noise", "scale", "zero-rows"]
    seed: int = Field(default=0, ge=0, description="same seed, same bytes; `scale` needs none")
    amount: float = Field(
        description="noise: standard deviations of the tensor itself; scale: factor; zero-rows: share of rows in (0, 1]"
    )

    @model_validator(mode="after")
    def _amount_fits_the_kind(self) -> Self:
        if self.kind == "zero-rows" and not 0 < self.amount <= 1:
            raise ValueError(f"zero-rows needs amount in (0, 1], got {self.amount:g}")
        return self


class RevisionDeclaration(Declared):
    """One commit: a folder of files, or an earlier commit with changes, in the order overlay, remove, damage."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    parent: str | None = Field(default=None, alias="from", description="an earlier revision of the same repository")
    files: InsidePath | None = Field(default=None, description="folder beside repository.yaml; adds or replaces files")
    remove: tuple[str, ...] = ()
    damage: tuple[Damage, ...] = ()
    wrong_digest: tuple[str, ...] = Field(
        default=(), description="files listed with a digest that differs from their bytes"
    )

    @model_validator(mode="after")
    def _has_files(self) -> Self:
        if self.parent is None and self.files is None:
            raise ValueError(f"revision {self.name!r} has neither `files` nor `from`; it would be empty")
        return self


class RefsDeclaration(Declared):
    """Names that point at revisions."""

    branches: dict[str, str]
    tags: dict[str, str] = {}


class RepositoryDeclaration(Declared):
    """All of `repository.yaml`."""

    gated: bool = False
    tokens: tuple[str, ...] = Field(default=(), description="made-up tokens that may read a gated repository's files")
    refs: RefsDeclaration
    revisions: tuple[RevisionDeclaration, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        known: set[str] = set()
        for revision in self.revisions:
            if revision.parent is not None and revision.parent not in known:
                raise ValueError(
                    f"revision {revision.name!r} is `from: {revision.parent}`, which is not listed before it"
                )
            if revision.name in known:
                raise ValueError(f"revision {revision.name!r} is listed twice")
            known.add(revision.name)
        for ref, target in (*self.refs.branches.items(), *self.refs.tags.items()):
            if target not in known:
                raise ValueError(f"ref {ref!r} points at {target!r}; the revisions are {', '.join(sorted(known))}")
        return self


def read_declaration(file: Path) -> RepositoryDeclaration:
    """Read one `repository.yaml`.

    Raises:
        FixtureError: it is not YAML or does not fit the format; the text names the file and each wrong field.
    """
    try:
        return RepositoryDeclaration.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise FixtureError(f"{file} is not valid", found=error) from error
