"""What a run's ledger says of its labels, on a page: losses over time, given against suggested, flips.

C classes.
"""

import base64
import io

import numpy as np

from coteach.report.loss_frames import OPEN, Frame, cut_off, drawing, frames_of, in_words
from coteach.report.matrices import confusion, doubted_share, shares
from coteach.report.page import Markup, element, joined, scrolled
from coteach.report.run_files import Run

WITH_NUMBERS = 20  # classes, at most
SHADES = 10
NO_LEDGER = "No ledger was kept of losses and labels: repeat it without --no-ledger to see them."


def losses(run: Run, id_: str) -> Markup:
    """A drawing for each of some epochs; a script makes a slider of them."""
    frames = frames_of(run)
    if not frames:
        return element("p", NO_LEDGER, class_="muted")
    known = run.truth_known
    key = (
        joined(
            (
                element("span", "right labels", class_="key-right"),
                element("span", "wrong labels", class_="key-wrong"),
            )
        )
        if known
        else element("span", "all labels; which are wrong is not known", class_="key-right")
    )
    slider = element(
        "label",
        "Epoch ",
        Markup(f'<input type="range" min="0" max="{len(frames) - 1}" value="{len(frames) - 1}" step="1">'),
        Markup(" <output></output>"),
        class_="slider",
        hidden="hidden",
    )
    drawn = [frame_figure(frame, known) for frame in frames]
    about = "Share of all samples by their loss (logarithmic scale), over all networks and seeds."
    return joined(
        (
            element("p", about, " ", key, class_="muted"),
            element("div", slider, element("div", *drawn, class_="strip"), class_="frames", id=f"{id_}-losses"),
        )
    )


def frame_figure(frame: Frame, known: bool) -> Markup:
    words = "; ".join([in_words(frame, known), *cuts_in_words(frame, known)])
    picture = Markup(drawing(frame, known, f"Histogram of the losses in epoch {frame.epoch}: {words}"))
    caption = element("figcaption", element("b", f"epoch {frame.epoch}"), f": {words}")
    return element(
        "figure", picture, caption, class_="frame key" if frame.key else "frame", data_epoch=frame.epoch
    )


def cuts_in_words(frame: Frame, known: bool) -> list[str]:
    return [
        f"the bar {OPEN[place]} is cut off (of all samples: {share})"
        for place, share in cut_off(frame, known).items()
    ]


def flips(run: Run) -> Markup:
    """Given against suggested labels, and how labels flip: as it seems, and as it was drawn."""
    if run.noise is None or not run.opinions:
        true = [true_matrix(run)] if shows_matrix(run) else []
        return joined(
            (element("p", NO_LEDGER, class_="muted"), *(element("div", *true, class_="matrices") for _ in true))
        )
    counts_CC, share = confusion(run), doubted_share(run)
    n = len(run.opinions)
    about = (
        f"The {100 * share:.3g} % of labels that the networks trusted least are taken for wrong, and replaced by "
        f"what they would rather have; counted over {n} seed{'s' * (n > 1)}."
    )
    parts = [
        heat_map(
            counts_CC, shares(counts_CC), "Given labels (down) against suggested ones (across), samples", "given"
        ),
        heat_map(
            None,
            shares(counts_CC.T),
            "Estimated flips: suggested true label (down), given one (across), %",
            "true",
        ),
    ]
    if shows_matrix(run):
        parts.append(true_matrix(run))
    return joined((element("p", about, class_="muted"), element("div", *parts, class_="matrices")))


def shows_matrix(run: Run) -> bool:
    """Whether there are true flips: an image of no class has no true label."""
    return run.noise is not None and run.truth_known and run.noise.kind != "openset"


def true_matrix(run: Run) -> Markup:
    assert run.noise is not None
    drawn = "that came out" if run.noise.kind == "instance" else "that they were drawn from"
    return heat_map(
        None, run.noise.matrix, f"True flips {drawn}: true label (down), given one (across), %", "true"
    )


def heat_map(counts_CC: np.ndarray | None, share_CC: np.ndarray, caption: str, corner: str) -> Markup:
    """A table of numbers on shades, or a picture where classes are many; without counts, per cents."""
    if len(share_CC) > WITH_NUMBERS:
        return picture(share_CC, caption)
    texts = percentages(share_CC) if counts_CC is None else [[f"{n:,}" for n in row] for row in counts_CC]
    classes = range(len(share_CC))
    head = element("tr", element("th", corner, scope="col"), *(element("th", c, scope="col") for c in classes))
    rows = [
        element(
            "tr",
            element("th", c, scope="row"),
            *(shaded(t, s) for t, s in zip(texts[c], share_CC[c], strict=True)),
        )
        for c in classes
    ]
    body = element("caption", element("span", caption)), element("thead", head), element("tbody", *rows)
    return scrolled(element("table", *body, class_="matrix"), caption)


def percentages(share_CC: np.ndarray) -> list[list[str]]:
    return [["–" if np.isnan(s) else f"{100 * s:.0f}" for s in row] for row in share_CC]


def shaded(content: str, share: float) -> Markup:
    return element("td", content, class_=f"s{0 if np.isnan(share) else round(SHADES * float(share))}")


def picture(share_CC: np.ndarray, caption: str) -> Markup:
    """A pixel for each pair of classes; the root of the share, so that rare flips are seen."""
    from matplotlib.image import imsave

    written = io.BytesIO()
    imsave(written, np.sqrt(np.nan_to_num(share_CC)), vmin=0, vmax=1, cmap="cividis", format="png")
    source = "data:image/png;base64," + base64.b64encode(written.getvalue()).decode("ascii")
    size = len(share_CC)
    image = Markup(f'<img src="{source}" width="{size}" height="{size}" alt="{caption.partition(",")[0]}">')
    about = f"{caption.rpartition(', ')[0]}; {size} classes, the brighter the larger the share of its row"
    return element("figure", image, element("figcaption", about), class_="matrix-picture")
