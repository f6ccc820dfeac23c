"""Which networks the native runtime computes, one file a family.

A family reads the keys of its configuration one by one: each is understood, known not to matter, or
refused by name, so that no network is computed otherwise than its authors meant.
"""
