"""Writes the wheel of nacre-embedded, which contains libnacre, and prints the name of the file.

    python3 wheel.py LIBRARY VERSION FOLDER

The wheel is for a platform, and for each version of Python: sdk-py loads the library with ctypes.
"""

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path

NAME = "nacre_embedded"
# So that two builds of the same library give the same file.
TIME = (2026, 1, 1, 0, 0, 0)

INIT = '''"""libnacre: a database in the process. `nacre.connect("nacre:///folder")` loads it."""

from pathlib import Path

LIBRARY = Path(__file__).with_name("libnacre.so")
"""The library."""
'''

METADATA = """Metadata-Version: 2.1
Name: nacre-embedded
Version: {version}
Summary: The native library of nacre for databases in the process
License: Apache-2.0
Requires-Python: >=3.11
"""

WHEEL = """Wheel-Version: 1.0
Generator: nacre
Root-Is-Purelib: false
Tag: {tag}
"""


def main() -> None:
    library, version, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"py3-none-{platform}"
    information = f"{NAME}-{version}.dist-info"
    files = {
        f"{NAME}/__init__.py": INIT.encode(),
        f"{NAME}/libnacre.so": library.read_bytes(),
        f"{information}/METADATA": METADATA.format(version=version).encode(),
        f"{information}/WHEEL": WHEEL.format(tag=tag).encode(),
    }
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    record += f"{information}/RECORD,,\n"
    files[f"{information}/RECORD"] = record.encode()
    wheel = f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(folder / wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    print(wheel)


main()
