"""`coteach audit`: its flags and its controller."""

from coteach.audit.request import Audit

AUDIT_EXAMPLES = """
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
"""


def audit_command(request: Audit) -> None:
    request.check()
    from coteach.report import audit

    audit.audit_command(request)
