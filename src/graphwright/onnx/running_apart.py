"""Run an ONNX model in a process of its own, which ONNX Runtime may end: `python running_apart.py FOLDER NUMBER...`.

FOLDER holds model.onnx and, for each number, the inputs NUMBER.in.npz; what comes out is written to NUMBER.out.npz, or
what ONNX Runtime says to NUMBER.error. Nothing of graphwright or torch is imported.
"""

import os
import sys

import numpy
import onnxruntime  # type: ignore[import-untyped]


def main(folder: str, numbers: list[str]) -> None:
    """Run the model on the inputs of each number."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # else it rounds activations
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    for number in numbers:
        with numpy.load(f"{folder}/{number}.in.npz") as inputs:
            feeds = {value.name: inputs[value.name] for value in session.get_inputs()}
        try:
            outputs = session.run(None, feeds)
        except Exception as error:
            _write(f"{folder}/{number}.error", (str(error).splitlines() or [type(error).__name__])[0].encode())
            continue
        numpy.savez(f"{folder}/part.npz", *[numpy.asarray(value) for value in outputs])
        os.replace(f"{folder}/part.npz", f"{folder}/{number}.out.npz")  # whole, or not there


def _write(path: str, text: bytes) -> None:
    with open(path, "wb") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
