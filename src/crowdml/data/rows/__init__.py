"""Rows as their owners have them: what each must look like, and files of them, for devices and for simulations."""
