"""What to type: examples below each help, where the eye is when the rest has scrolled by. At most 80 columns."""

EXAMPLES = {
    "": """
where to begin:
  # see what it is about: all methods on handwritten digits, about a minute
  coteach demo
  # which labels of your own are wrong? A folder of images for each class
  coteach audit --images photos
  # one method on one noisy data set; the numbers, and the trained networks
  coteach run --dataset mnist --method coteaching --noise pair --rate 0.45

Each command has its own --help, with examples. coteach --version tells yours.
""",
    "run": """
examples:
  # half of the digits' labels wrong; nothing to download, ten seconds
  coteach run --method coteaching --noise symmetric --rate 0.5
  # MNIST as in the paper, five seeds together
  coteach run --dataset mnist --noise pair --rate 0.45 --seeds 1 2 3 4 5
  # go on after Ctrl-C, a crash or a power cut
  coteach run --resume runs/digits-coteaching-symmetric-0.5-paper

Every run folder has config.toml (what was run), metrics.jsonl (a row for each
seed and epoch), summary.json (the result), the noise and the networks.
""",
    "demo": """
examples:
  # about a minute on two cores; ends with a table and a figure
  coteach demo
  # a first look
  coteach demo --seeds 1
""",
    "report": """
examples:
  # a page for one run, opened in the browser
  coteach report runs/digits-coteaching-symmetric-0.5-paper --open
  # a page that compares all runs in a folder
  coteach report runs/demo
  # the curves as SVG, PDF and PNG, noises side by side, and their tables
  coteach report runs/demo --figures
  coteach report runs/demo --figures --panels test_accuracy disagreement
""",
    "reproduce": """
examples:
  # which figures and tables there are, and what is measured already
  coteach reproduce
  # one of them: about 5 minutes of an H200
  coteach reproduce mnist
  # a quick look at it, and the tables of what is there
  coteach reproduce mnist --epochs 2 --seeds 1
  coteach reproduce mnist --only-report
  # a part of it, by five processes that share the GPUs
  coteach reproduce ablation --cells cifar10-coteaching --processes 5
""",
    "audit": """
examples:
  # images in a folder for each class, such as photos/cat/1.jpg
  coteach audit --images photos
  # a table: the label in one column, numbers and words in the others
  coteach audit --table people.csv --label group --id name
  # texts in a column of a table
  coteach audit --table letters.csv --label topic --text body
  # arrays x and y: embeddings of large images or long texts
  coteach audit --npz embeddings.npz
  # once you have decided on runs/audit/review.html and exported that
  coteach audit --apply decisions.csv --out runs/audit

It first tells what it read and how long it will take. It writes suspects.csv
(the labels to look at, worst first), cleaned.csv (the others), review.html (to
decide by looking), and the trained model. Your own files stay as they are.
""",
    "data": """
examples:
  # what there is, what is here, and how much would be downloaded
  coteach data
  # fetch two of them
  coteach data mnist cifar10
  # from a folder with the published files in it
  coteach data mnist --data-dir data
""",
}
