"""/v1/relqueries: a table and a template."""
