"""ONNX Runtime's part of int8.lua.

    int8_peer.py run FILE BATCH THREADS SECONDS    prints the best time of a run in milliseconds
    int8_peer.py quantize FILE TARGET BATCH        quantises a real net by ONNX Runtime's own tool
"""
import sys
import time

import numpy as np
import onnxruntime as ort


def inputs_of(session):
    rng = np.random.default_rng(1)
    return {i.name: rng.random(i.shape, dtype=np.float32) for i in session.get_inputs()}


def session_of(path, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path, threads, seconds):
    session = session_of(path, threads)
    feeds = inputs_of(session)
    for _ in range(3):
        session.run(None, feeds)
    best, ends = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        begin = time.perf_counter()
        session.run(None, feeds)
        best = min(best, time.perf_counter() - begin)
    print(best * 1000)


def quantize(path, target):
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.left = [inputs_of(session_of(path, 1))]

        def get_next(self):
            return self.left.pop() if self.left else None

    q.quantize_static(path, target, Reader(), quant_format=q.QuantFormat.QOperator,
                      per_channel=True, activation_type=q.QuantType.QUInt8,
                      weight_type=q.QuantType.QInt8)


if sys.argv[1] == "run":
    run(sys.argv[2], int(sys.argv[4]), float(sys.argv[5]))
else:
    quantize(sys.argv[2], sys.argv[3])
