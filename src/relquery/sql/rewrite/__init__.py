"""Rewrites a whole statement, before its SELECTs are planned one by one, so that fewer calls are
made and more forms can be run. One rule a module; `rules` lists them in order."""
