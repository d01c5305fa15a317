"""What people look at: one page about a version, complete in itself, and its model card.

evidence.py    the figures that both are made of
importance.py  what each feature is worth to the model
charts.py      small pictures in SVG
page.py        report.html
card.py        MODEL_CARD.md
"""
