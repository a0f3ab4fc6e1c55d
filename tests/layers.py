#!/usr/bin/env python3
"""Holds the order of the folders: a folder of src/ may include itself and what stands before it in meson.build's list.

Says every include that breaks it, and every folder that is not in the list; exit code 1 then.
"""
import os
import re
import sys

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SRC = os.path.join(REPO, "src")

text = open(os.path.join(REPO, "meson.build")).read()
order = re.findall(r"'src/([a-z_]+)'", text)
rank = {name: i for i, name in enumerate(order)}
# Programs that run elsewhere use these and nothing else, whatever the list would allow.
NARROW = {
    "agent": {"base", "wire", "agent"},
    "jail": {"base", "jail"},
    "cli": {"base", "cli"},
}
wrong = [f"src/{folder} is not in the list of meson.build"
         for folder in sorted(os.listdir(SRC)) if os.path.isdir(os.path.join(SRC, folder)) and folder not in rank]

for folder in order:
    path = os.path.join(SRC, folder)
    for where, _, files in os.walk(path):
        for file in sorted(files):
            if not file.endswith((".c", ".h")):
                continue
            name = os.path.join(where, file)
            for number, line in enumerate(open(name), 1):
                m = re.match(r'\s*#\s*include\s+"([a-z_]+)/', line)
                if not m or m.group(1) not in rank:
                    continue
                other = m.group(1)
                if rank[other] > rank[folder] or (folder in NARROW and other not in NARROW[folder]):
                    wrong.append(f"{os.path.relpath(name, REPO)}:{number}: {folder} may not include {other}")

for line in wrong:
    print(line)
sys.exit(1 if wrong else 0)
