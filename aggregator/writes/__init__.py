"""What the home cluster is told: the status of objects, as records that `watchers.applier` carries out.

In: the model, and what the objects say now. Out: a write for every object that is to say something else. Only home's
objects, only those that are ours to judge; what is ours no more is taken back, if we wrote it. Nothing is written on
the strength of what is merely not known yet.
"""
