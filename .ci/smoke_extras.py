"""What each extra brings is there, and works with what the wheel has."""

import lightning
import numpy as np
import onnxruntime
import ray

import coteach
import coteach.hf

x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
classifier = coteach.RobustClassifier(noise_rate=0.1, epochs=2, random_state=0).fit(x, x[:, 0] > 0)
classifier.export_onnx("model.onnx")
session = onnxruntime.InferenceSession("model.onnx")
answers = session.run(None, {session.get_inputs()[0].name: x})[0]
assert len(answers) == len(x)
assert coteach.encode(["a cat on a mat"], "wordllama").shape == (1, 256)
assert issubclass(coteach.hf.CoteachCallback, object)
assert lightning.__version__
assert ray.__version__
