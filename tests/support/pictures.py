"""A small net for small pictures, as most of a task file: tests add how it learns and what is promised."""

PICTURES = """
crowdml = 1
name = "pictures"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }]
[model]
kind = "cnn"
shape = [8, 8, 1]
convolutions = [4]
layers = []
norm = "group"
groups = 2
[algorithm]
kind = "fedavg"
per-round = 2
local-batch = 40"""
