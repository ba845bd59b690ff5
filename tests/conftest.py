"""What every test shares: one thread per worker, hypothesis without a clock, no window for figures."""

import os

# Before torch and NumPy are imported: pytest-xdist already uses every core, and a sum over
# threads may be rounded differently from run to run.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

torch.set_num_threads(1)

# No deadline: the first call into torch is slow, and tests never judge time.
settings.register_profile(
    "dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture
def dataset():
    """Three clouds of 40 points, and as many to test."""
    random = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = random.normal(size=(240, 5)) + 4 * np.eye(3, 5)[np.tile(y, 2)]
    from coteach.data import Dataset

    return Dataset.from_arrays(x[:120], y, x[120:], y)
