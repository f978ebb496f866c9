"""The server driver: stores, folds and serves live tasks.

setup   the application put together: options, certificates, socket, life
pages   what people look at
http    the table of routes, the front door, what answers
tasks   what runs a task: writer, folding, crowd, secure sums
store   everything that must not be forgotten
"""
