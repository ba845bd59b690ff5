"""What every test shares: one thread per worker, hypothesis without a clock, no window for figures, a browser."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from importlib.util import find_spec

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

# A shell turns Ctrl-C off for what it starts in the background, and for all that this starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first call into torch is slow, and tests never judge time.
settings.register_profile(
    "dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


# ---- no test is slow without saying so ------------------------------------------------------------------------

CPU_SECONDS = 1.5  # of a test that is not marked slow, on a machine that adds a million squares in …
SQUARES_SECONDS = 0.08
LEEWAY = 2  # the first test of a process also pays for its imports


def cpu_seconds() -> float:
    """CPU seconds of this process, and of those it has started and seen the end of."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@pytest.fixture(scope="session")
def slowness() -> float:
    """How many times slower this machine is; 1 of a faster one."""
    started = time.process_time()
    sum(i * i for i in range(1_000_000))
    return max(1.0, (time.process_time() - started) / SQUARES_SECONDS)


@pytest.fixture(scope="session", autouse=True)
def fonts() -> None:
    """The first figure on a new machine looks for them for seconds."""
    from matplotlib import font_manager  # noqa: F401


@pytest.fixture(autouse=True)
def quick_unless_marked(request: pytest.FixtureRequest, slowness: float) -> Iterator[None]:
    started = cpu_seconds()
    yield
    spent = cpu_seconds() - started
    # a GPU takes seconds to start
    exempt = torch.cuda.is_available() or any(map(request.node.get_closest_marker, ("slow", "soak")))
    if spent > CPU_SECONDS * LEEWAY * slowness and not exempt:
        pytest.fail(f"it took {spent:.1f} s of CPU: make it cheaper, or mark it slow")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever looks at a page is slow: a browser's CPU time is not that of the test."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


# ---- what tests share -----------------------------------------------------------------------------------------


@pytest.fixture
def dataset():
    """Three clouds of 40 points, and as many to test."""
    random = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = random.normal(size=(240, 5)) + 4 * np.eye(3, 5)[np.tile(y, 2)]
    from coteach.data import Dataset

    return Dataset.from_arrays(x[:120], y, x[120:], y)


@pytest.fixture
def nothing_stays_registered():
    """What a test registers is forgotten."""
    from coteach import losses, methods, names, networks

    tables: list[dict] = [methods.METHODS, names.METHOD_MEANINGS, losses.LOSSES, names.LOSS_MEANINGS]
    tables += [networks.NETWORKS, networks._OF_USERS]
    before = [dict(table) for table in tables]
    yield
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)


# ---- a browser for the pages ----------------------------------------------------------------------------------

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = "no browser"


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window. Where there is none the tests are skipped, but in CI they fail."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None or find_spec("playwright") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_BROWSER)
    from playwright.sync_api import sync_playwright

    # Without a sandbox, which root may not have: it opens our own pages only. It would call home otherwise.
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=quiet)
        yield running
        running.close()


@pytest.fixture
def review(browser, tmp_path):
    """A function that opens the review page; in the end nothing may have gone wrong or been asked for."""
    from page_cases import harmless
    from review_pages import opener

    contexts: list = []
    pages: list = []
    with harmless(pages, contexts):
        yield opener(contexts, pages, browser, tmp_path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """As the last thing said."""
    yield
    skipped = [
        report for report in terminalreporter.stats.get("skipped", []) if NO_BROWSER in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.section("THE PAGES WERE NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(
            f"{len(skipped)} tests need a browser and were skipped. To run them: apt-get install chromium on "
            "Debian or Ubuntu, or put chromium or google-chrome on the PATH; '.[dev]' brings Playwright."
        )
