"""Hypothesis tries the same examples in every run; `--hypothesis-profile=explore` tries others."""

from __future__ import annotations

import os
import shutil
import signal

from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("same")

if shutil.which("nvidia-smi") is None:  # without a GPU, Triton's kernels are interpreted
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

os.environ.setdefault("RELQUERY_CACHE", "off")  # networks are checked in every run
os.environ["RELQUERY_CONFIG"] = os.devnull  # prices are those that are shipped

# A shell starts what runs in the background with signals ignored; tests send them to themselves.
for sent, handler in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(sent) is signal.SIG_IGN:
        signal.signal(sent, handler)
