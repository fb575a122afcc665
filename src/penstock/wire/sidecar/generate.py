"""Compile the `.proto` files beside this one: `python -m penstock.wire.sidecar.generate`.

A test does the same and compares, so that what is committed is what the files say. It needs grpcio-tools.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
MESSAGES = HERE / "messages"
NAMES = ("nexusd", "penstock", "health", "reflection", "reflection_v1alpha")
HEAD = '# mypy: disable-error-code="type-arg"\n'


def compile_to(folder: Path) -> None:
    """Write what each file is compiled to, and the types of its messages, into a folder."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # noqa: PLC0415 - developers have it

    for name in NAMES:
        with TemporaryDirectory() as made:
            failure = protoc.main(
                [
                    "",
                    f"-I{HERE}",
                    f"--descriptor_set_out={folder / name}.binpb",
                    f"--pyi_out={made}",
                    f"{name}.proto",
                ]
            )
            if failure:
                raise SystemExit(f"{name}.proto cannot be compiled")
            types = (Path(made) / f"{name}_pb2.pyi").read_text(encoding="utf-8")
            (folder / f"{name}.pyi").write_text(HEAD + types, encoding="utf-8")


if __name__ == "__main__":
    compile_to(MESSAGES)
