"""Tables for notebooks and pages: escaped, without scripts, readable on light and dark pages."""
