#!/usr/bin/env python3
"""Holds api/openapi.yaml against itself and against the error table in src/base/err.c.

Every $ref leads somewhere, every operation has an id of its own, a scope and only known parameters of its path, every code
of the error table is described with its status, exit code and title, and no status is answered that no code has.
"""
import os
import re
import sys

import yaml

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with open(os.path.join(REPO, "api/openapi.yaml"), encoding="utf-8") as f:
    spec = yaml.safe_load(f)
wrong = []


def target(ref):
    node = spec
    for key in ref[2:].split("/"):
        node = node.get(key) if isinstance(node, dict) else None
    return node


def walk(node, where):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str) and target(node["$ref"]) is None:
            wrong.append(f"{where}: {node['$ref']} leads nowhere")
        for key, value in node.items():
            walk(value, f"{where}/{key}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            walk(value, f"{where}/{i}")


walk(spec, "")

with open(os.path.join(REPO, "src/base/err.c"), encoding="utf-8") as f:
    table = {m[1]: (int(m[2]), m[3], int(m[4]), m[5] == "true") for m in
             re.finditer(r'\{ERR_\w+, "(\w+)", (\d+), "([^"]*)", (\d+), (true|false)\}', f.read())}
codes = {name: (c["status"], c["title"], c["exit_code"], c["retry"])
         for name, c in spec["components"]["schemas"]["ProblemCode"]["x-codes"].items()}
if table != codes:
    wrong.append(f"x-codes differ from src/base/err.c: {sorted(set(table.items()) ^ set(codes.items()))}")
if list(codes) != spec["components"]["schemas"]["ProblemCode"]["enum"]:
    wrong.append("ProblemCode: enum and x-codes differ")

scopes = set(spec["components"]["schemas"]["Scope"]["enum"]) | {"any"}
ids = []
for path, item in spec["paths"].items():
    shared = item.get("parameters", [])
    for method, op in item.items():
        if method == "parameters":
            continue
        where = f"{method.upper()} {path}"
        ids.append(op["operationId"])
        if op.get("security") != [] and op.get("x-scope") not in scopes:
            wrong.append(f"{where}: x-scope is missing or unknown")
        parameters = [target(p["$ref"]) if "$ref" in p else p for p in shared + op.get("parameters", [])]
        named = {p["name"] for p in parameters if p["in"] == "path"}
        if named != set(re.findall(r"\{(\w+)\}", path)):
            wrong.append(f"{where}: path parameters {sorted(named)}")
        for status in op["responses"]:
            if status.isdigit() and int(status) >= 400 and int(status) not in {s for s, *_ in table.values()}:
                wrong.append(f"{where}: no error code has status {status}")
if len(ids) != len(set(ids)):
    wrong.append(f"operationId twice: {sorted(i for i in set(ids) if ids.count(i) > 1)}")

for line in wrong:
    print(line)
sys.exit(1 if wrong else 0)
