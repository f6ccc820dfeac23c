"""Rules that rewrite a whole statement before its SELECTs are planned one by one, so that fewer
calls are made and more forms can be run. One rule a file; `rules` lists them in order."""
