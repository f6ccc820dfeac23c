"""Groups of rows whose texts are near, by k-means over their vectors."""

from __future__ import annotations

import numpy as np
import pandas as pd

from relquery.backends.embedders import embedder_of
from relquery.errors import ConfigError, MissingExtraError
from relquery.frames.lotus.settings import SHARED
from relquery.retrieval.embedder import Trigrams, unit_parts

CLUSTER = "cluster_id"


def sem_cluster_by(
    table: pd.DataFrame,
    col_name: str,
    ncentroids: int,
    return_scores: bool = False,
    return_centroids: bool = False,
    niter: int = 20,
    verbose: bool = False,
) -> pd.DataFrame:
    """The rows with the number of their group, from 0, in the column `cluster_id`.

    Texts are compared by the `rm` of the settings, as by the other verbs. return_scores,
    return_centroids and verbose have no effect, as in LOTUS.
    """
    del return_scores, return_centroids, verbose
    if col_name not in table.columns:
        raise ConfigError(
            f"Column {col_name!r} not found in DataFrame. It has: "
            f"{', '.join(map(str, table.columns))}."
        )
    try:
        from sklearn.cluster import KMeans
    except ImportError as error:
        raise MissingExtraError("sem_cluster_by", "retrieval") from error
    texts = table[col_name].astype(str)
    codes, distinct = pd.factorize(texts)
    if not len(distinct):
        return table.assign(**{CLUSTER: pd.Series([], dtype="int64")})
    embedder = embedder_of("auto" if SHARED.rm is None else SHARED.rm.embedder) or Trigrams()
    parts = dict(
        pair
        for places, vectors in unit_parts(embedder, list(distinct))
        for pair in zip(places, vectors, strict=True)
    )
    points = np.array([parts[index] for index in range(len(distinct))])
    count = min(ncentroids, len(distinct))
    groups = KMeans(count, n_init=10, max_iter=niter, random_state=0).fit_predict(points)
    return table.assign(**{CLUSTER: groups[codes].astype("int64")})
