"""Answers the questions of docs/how-to/analyze.md in DuckDB and pandas, over the files of the current directory.

Standard input: {"views": [SQL], "frames": Python, "questions": [{"sql": …, "python": …}]}.
Standard output: for each question the rows of both, as objects.
"""

import ast
import json
import sys

import duckdb

page = json.load(sys.stdin)
for view in page["views"]:
    duckdb.sql(view)
names = {}
exec(page["frames"], names)


def value(program):
    """What the last expression of a program is."""
    *before, last = ast.parse(program).body
    exec(compile(ast.Module(before, []), "page", "exec"), names)
    return eval(compile(ast.Expression(last.value), "page", "eval"), names)


def rows(frame):
    return json.loads(frame.to_json(orient="records", date_format="iso"))


answers = [[rows(duckdb.sql(asked["sql"]).df()), rows(value(asked["python"]))] for asked in page["questions"]]
print(json.dumps(answers))
