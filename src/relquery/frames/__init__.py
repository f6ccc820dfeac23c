"""Lazy data frames whose verbs ask a model. A frame is one SQL statement, planned as a whole.

rq.frame(df, con).sem_filter("{review} complains about shipping").collect()
"""
