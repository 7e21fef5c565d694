"""Wheels made here, so that pip can install without a package index: of what is installed, and of stand-ins."""

import re
import zipfile
from hashlib import sha256
from importlib.metadata import distributions

WHEEL = "Wheel-Version: 1.0\nGenerator: slipway-tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def names_of(lock):
    """Distributions that a lock file names."""
    return re.findall(r"^([a-z0-9][a-z0-9._-]*)==", lock.read_text(), re.MULTILINE)


def repacked(names, environments, folder):
    """Wheels of installed distributions, of the first environment that has them; locks of these wheels follow."""
    installed = {}
    for environment in reversed(environments):
        packages = next((environment / "lib").glob("python3.*")) / "site-packages"
        installed |= {normalized(each.metadata["Name"]): each for each in distributions(path=[str(packages)])}
    return "".join(_repacked(installed[normalized(name)], folder) for name in names)


def stand_in(name, version, folder, modules=None, requires=()):
    """A wheel of empty modules, or of the given source by path."""
    stem = f"{name.replace('-', '_')}-{version}"
    files = dict(modules or {f"{name.replace('-', '_')}/__init__.py": ""})
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {each}\n" for each in requires
    )
    files |= {f"{stem}.dist-info/METADATA": metadata, f"{stem}.dist-info/WHEEL": WHEEL}
    return _written(name, version, folder, {path: text.encode() for path, text in files.items()}, f"{stem}.dist-info")


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _repacked(distribution, folder):
    name, version = distribution.metadata["Name"], distribution.version
    paths = [path for path in distribution.files or () if ".." not in path.parts and "__pycache__" not in path.parts]
    information = next(path.parts[0] for path in paths if path.parts[0].endswith(".dist-info"))
    files = {
        str(path): path.locate().read_bytes() for path in paths if path.name not in {"RECORD", "INSTALLER", "REQUESTED"}
    }
    files[f"{information}/WHEEL"] = WHEEL.encode()
    files.pop(f"{information}/entry_points.txt", None)
    return _written(name, version, folder, files, information)


def _written(name, version, folder, files, information):
    wheel = folder / f"{normalized(name).replace('-', '_')}-{version}-py3-none-any.whl"
    record = "".join(f"{path},,\n" for path in files) + f"{information}/RECORD,,\n"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for path, data in {**files, f"{information}/RECORD": record.encode()}.items():
            archive.writestr(path, data)
    return f"{normalized(name)}=={version} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n"
