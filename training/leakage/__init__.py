"""What training must not know: signs of it are looked for in the rows before a model is fitted.

sample.py      raw columns of some rows, as plain arrays
single.py      one feature and the label: AUC, dependence, presence
aggregates.py  counts and means per user or item that include a row's own label or later rows
running.py     counts that step up with their own row
future.py      times after the row's own, a split that mixes the times
parts.py       duplicates, shared units, shifted values, ids of single rows
report.py      all of them, as a table
"""
