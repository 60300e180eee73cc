#!/usr/bin/env python3
"""How far a model's outputs move when its inputs move by one unit in the last place: golden_conditioning.py MODEL.tflite...

Prints the greatest change of each output under LiteRT's CPU kernels, with the random inputs of the goldens (splitmix64, see
src/cli/inputs.cc). Where that is more than the goldens' tolerance, no exact computation could meet it; such values stand in
tests/goldens/conditioning.json, and the tests allow twice as much. Needs ai-edge-litert 2.3.0 and numpy.
"""
import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType


def draw(shape, first):
    with np.errstate(over="ignore"):
        z = (np.arange(first, first + int(np.prod(shape)), dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = (z ^ (z >> np.uint64(31))) >> np.uint64(40)
    return (bits.astype(np.float32) / np.float32(1 << 24)).reshape(shape)


def run(path, change):
    interpreter = Interpreter(path, num_threads=1, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    first, random = 0, np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        x = draw(detail["shape"], first)
        first += x.size
        if change:
            x = np.nextafter(x, np.where(random.random(x.shape) < 0.5, 0, 2).astype(np.float32)).astype(np.float32)
        interpreter.set_tensor(detail["index"], x)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


for model in sys.argv[1:]:
    for i, (a, b) in enumerate(zip(run(model, False), run(model, True))):
        print("%s output %d: %.3g of a range of %.3g" % (model, i, np.abs(a - b).max(), a.max() - a.min()))
