"""Running a plan: rows fetched, calls asked, answers put in place."""
