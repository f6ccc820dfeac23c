"""Calls as LOTUS's documentation shows them, with relquery's import; the data are shorter.

Each gives what LOTUS gives: the columns of its result.
"""

from __future__ import annotations

COURSES = """
import pandas as pd
import relquery.frames.lotus as lotus
from relquery.frames.lotus.models import LM

lotus.settings.configure(lm=LM(model="gpt-4o-mini"))
courses = pd.DataFrame({"Course Name": [
    "Probability", "Optimization", "Digital Design", "Computer Security"]})
"""

EXAMPLES: dict[str, tuple[str, list[str]]] = {
    "filter": (
        COURSES + """
result = courses.sem_filter("{Course Name} requires a lot of math")
""",
        ["Course Name"],
    ),
    "filter that keeps all rows": (
        COURSES + """
result = courses.sem_filter(
    "{Course Name} requires a lot of math", return_all=True, suffix="_math_heavy")
""",
        ["Course Name", "_math_heavy"],
    ),
    "map": (
        COURSES + """
result = courses.sem_map(
    "What is a similar course to {Course Name}? Be concise.", suffix="_similar_course")
""",
        ["Course Name", "_similar_course"],
    ),
    "map of two columns": (
        COURSES + """
courses["Department"] = "Math"
result = courses.sem_map("Is {Course Name} typical of {Department}?")
""",
        ["Course Name", "Department", "_map"],
    ),
    "extract": (
        COURSES + """
result = courses.sem_extract(["Course Name"], {"tag": "the topic", "stars": "how hard it is"})
""",
        ["Course Name", "tag", "stars"],
    ),
    "aggregate": (
        COURSES + """
result = courses.sem_agg("Summarize all {Course Name}")
print(result._output[0])
""",
        ["_output"],
    ),
    "aggregate by group": (
        COURSES + """
courses["Category"] = ["Tech", "Env", "Tech", "Env"]
result = courses.sem_agg(
    "Summarize the {Course Name} for each {Category}.", group_by=["Category"])
print(result._output)
""",
        ["_output", "Category"],
    ),
    "top k": (
        COURSES + """
for method in ["quick", "heap", "naive"]:
    result, stats = courses.sem_topk(
        "Which {Course Name} requires the least math?", K=2, method=method, return_stats=True)
    print(result, stats)
""",
        ["Course Name"],
    ),
    "top k by group": (
        COURSES + """
courses["Department"] = ["Math", "CS", "Math", "CS"]
result, stats = courses.sem_topk(
    "Which {Course Name} is the most challenging?", K=1, method="heap", return_stats=True,
    group_by=["Department"])
""",
        ["Course Name", "Department"],
    ),
    "join": (
        COURSES + """
skills = pd.DataFrame({"Skill": ["Math", "Computer Science"]})
result = courses.sem_join(
    skills, "Taking {Course Name:left} will help me learn {Skill:right}")
lotus.settings.lm.print_total_usage()
""",
        ["Course Name", "Skill"],
    ),
    "search": (
        COURSES + """
from relquery.frames.lotus.models import SentenceTransformersRM
from relquery.frames.lotus.vector_store import FaissVS

lotus.settings.configure(rm=SentenceTransformersRM(model="intfloat/e5-base-v2"), vs=FaissVS())
result = courses.sem_index("Course Name", "index_dir").sem_search(
    "Course Name", "Which course is about computer security?", K=3, n_rerank=2)
""",
        ["Course Name"],
    ),
    "similarity join": (
        COURSES + """
from relquery.frames.lotus.models import LiteLLMRM
from relquery.frames.lotus.vector_store import FaissVS

lotus.settings.configure(rm=LiteLLMRM(model="text-embedding-3-small"), vs=FaissVS())
skills = pd.DataFrame({"Skill": ["SQL", "Chip Design"]}).sem_index("Skill", "index_dir")
result = courses.sem_sim_join(skills, left_on="Course Name", right_on="Skill", K=1)
""",
        ["Course Name", "_scores", "Skill"],
    ),
    "duplicates": (
        COURSES + """
result = courses.sem_index("Course Name", "index_dir").sem_dedup("Course Name", threshold=0.815)
""",
        ["Course Name"],
    ),
    "another model for a block": (
        COURSES + """
cheap_lm = LM(model="gpt-4o-mini")
with lotus.settings.context(lm=cheap_lm, enable_cache=False):
    result = courses.sem_filter("Is {Course Name} hard?")
result = result.sem_map("Summarise {Course Name} in one sentence.")
""",
        ["Course Name", "_map"],
    ),
}  # fmt: skip
