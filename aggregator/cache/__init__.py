"""Tables in memory and the journals that join tables of several processes.

`table` is what others use; `partitions` keeps its rows, `changelog` what changed, `cursor` is how a reader hears of it,
`merkle` tells whether two tables hold the same. `journal` is a store outside the process (or its stand-in in memory),
`replication` carries a table into a journal and out of it again. Nothing here knows what a row means.
"""
