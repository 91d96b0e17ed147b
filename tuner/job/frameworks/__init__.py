"""Frameworks side by side: each one's default and its tuned setting against TensorFlow's default, batch by batch.

Stages, in the order of what people want to know first:

    starts  the model is made ready for each framework; outputs and precision are held against TensorFlow's
    tune    a search in each framework at one batch size
    finals  rounds of new processes, one of each framework's default and tuned setting: the verdicts
    starts  once more: how long each takes until its first answer, with files in the page cache and without
    scan    a process for each setting and batch size, in turns with TensorFlow's default at that batch size

An entrant is a framework that could take part (`entrant`), a participant one that does (`participant`). What the
stages share is the contest (`contest`); whatever has been measured is stored at once (`store`), and not again. How the
time is divided between finals and scan is in `schedule`.
"""
