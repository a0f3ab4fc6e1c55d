#!/usr/bin/env python3
"""From api/openapi.yaml: openapi.json, the reference page docs.html, and both as C arrays.

usage: render.py openapi.yaml page.css page.js OUT_JSON OUT_HTML OUT_C

The page is one file without outside parts. All text of the description is escaped; of Markdown it knows paragraphs,
`##` headings, tables and `code`.
"""
import html
import json
import re
import sys

import yaml

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")


def esc(text):
    return html.escape(str(text), quote=True)


def inline(text):
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", esc(text))


def table(lines):
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head = "".join(f"<th>{inline(c)}</th>" for c in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{inline(c)}</td>" for c in r) + "</tr>" for r in rows[2:])
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def markdown(text):
    out = []
    for block in re.split(r"\n\s*\n", (text or "").strip()):
        lines = block.split("\n")
        if lines[0].startswith("## "):
            title = lines.pop(0)[3:]
            out.append(f'<h2 id="{slug(title)}">{inline(title)}</h2>')
        if lines and lines[0].lstrip().startswith("|"):
            out.append(table(lines))
        elif lines and lines[0]:
            out.append("<p>" + inline("\n".join(lines)) + "</p>")
    return "\n".join(out)


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class Page:
    def __init__(self, spec):
        self.spec = spec

    def resolve(self, node):
        seen = 0
        while isinstance(node, dict) and "$ref" in node:
            target = self.spec
            for key in node["$ref"][2:].split("/"):
                target = target[key.replace("~1", "/").replace("~0", "~")]
            node = target
            seen += 1
            if seen > 20:
                raise ValueError("a circle of $ref")
        return node

    # ---- schemas -------------------------------------------------------------------------------------------------

    def type_of(self, schema):
        """A short form of a schema's type, with links to named ones."""
        if "$ref" in schema:
            name = schema["$ref"].split("/")[-1]
            return f'<a href="#schema-{esc(name)}">{esc(name)}</a>'
        for key in ("oneOf", "anyOf"):
            parts = [s for s in schema.get(key, []) if set(s) != {"required"}]
            if parts:
                return " or ".join(self.type_of(s) for s in parts)
        if schema.get("allOf"):
            return self.type_of(schema["allOf"][0])
        kind = schema.get("type", "any")
        kinds = kind if isinstance(kind, list) else [kind]
        out = []
        for k in kinds:
            if k == "array":
                out.append("array of " + self.type_of(schema.get("items", {})))
            elif k == "object" and isinstance(schema.get("additionalProperties"), dict):
                out.append("map of " + self.type_of(schema["additionalProperties"]))
            else:
                out.append(esc(k))
        return " or ".join(out)

    def limits(self, schema):
        s = schema
        bits = []
        if "const" in s:
            bits.append(f"always <code>{esc(json.dumps(s['const']))}</code>")
        if "enum" in s:
            bits.append("one of " + " ".join(f"<code>{esc(v if v is not None else 'null')}</code>" for v in s["enum"]))
        low, high = s.get("minimum"), s.get("maximum")
        if low is not None and high is not None:
            bits.append(f"{low} to {high}")
        elif low is not None:
            bits.append(f"at least {low}")
        for key, text in (("maxLength", "at most {} characters"), ("maxItems", "at most {} items"),
                          ("maxProperties", "at most {} members")):
            if key in s:
                bits.append(text.format(s[key]))
        if "pattern" in s:
            bits.append(f"<code>{esc(s['pattern'])}</code>")
        if "default" in s:
            bits.append(f"default <code>{esc(json.dumps(s['default']))}</code>")
        return "; ".join(bits)

    def describe(self, schema, extra=""):
        own = self.resolve(schema) if "$ref" in schema and self.is_scalar(schema) else schema
        parts = [inline(p) for p in (extra or schema.get("description", "") or own.get("description", ""),) if p]
        limits = self.limits(own)
        if limits:
            parts.append(f'<span class=limits>{limits}</span>')
        return " ".join(parts)

    def is_scalar(self, schema):
        target = self.resolve(schema)
        return "properties" not in target and target.get("type") != "object"

    def members(self, schema, depth=0):
        schema = self.resolve(schema)
        for part in schema.get("allOf", []):
            merged = dict(self.resolve(part))
            merged.update({k: v for k, v in schema.items() if k != "allOf"})
            schema = merged
        if "properties" not in schema:
            return ""
        required = set(schema.get("required", []))
        rows = []
        for name, sub in schema["properties"].items():
            mark = '<span class=req title="always there">*</span>' if name in required else ""
            inner = ""
            if depth < 4 and "$ref" not in sub:
                nested = sub.get("items", sub) if sub.get("type") == "array" else sub
                if "$ref" not in nested:
                    inner = self.members(nested, depth + 1)
            rows.append(f"<tr><td><code>{esc(name)}</code>{mark}</td><td class=type>{self.type_of(sub)}</td>"
                        f"<td>{self.describe(sub)}{inner}</td></tr>")
        return f"<table class=members>{''.join(rows)}</table>"

    def schema_block(self, schema):
        text = ""
        if schema.get("description"):
            text = f"<p>{inline(schema['description'])}</p>"
        body = self.members(schema)
        if not body:
            body = f"<p class=type>{self.type_of(schema)} <span class=limits>{self.limits(schema)}</span></p>"
        for example in ([schema["example"]] if "example" in schema else []):
            body += f"<pre>{esc(json.dumps(example, indent=2))}</pre>"
        return text + body

    # ---- operations ----------------------------------------------------------------------------------------------

    def curl(self, method, path, op):
        parameters = [self.resolve(p) for p in op["parameters"]]
        query = "&".join(f"{p['name']}={p.get('example', '…')}" for p in parameters
                         if p["in"] == "query" and p.get("required"))
        shown = re.sub(r"\{(\w+)\}", lambda m: "$" + m.group(1).upper(), path)
        line = ["curl"]
        if method != "get":
            line.append("-X " + method.upper())
        line.append(f'"$SPACE_URL{shown}{"?" + query if query else ""}"')
        if op.get("security", True):
            line.append('-H "Authorization: Bearer $SPACE_API_KEY"')
        content = self.resolve(op.get("requestBody", {})).get("content", {})
        if "application/json" in content:
            media = content["application/json"]
            value = media.get("example")
            if value is None:
                examples = [e["value"] for e in media.get("examples", {}).values()]
                value = next((e for e in examples if e), None)
            if value is not None:
                line.append("--json '" + json.dumps(value).replace("'", "'\\''") + "'")
        elif content:
            line.append("--data-binary @FILE" if method != "put" else "-T FILE")
        return " \\\n  ".join(line)

    def operation(self, method, path, op):
        out = [f'<section class=op id="{esc(op["operationId"])}" data-search="'
               f'{esc((method + " " + path + " " + op["operationId"] + " " + op.get("summary", "")).lower())}">']
        out.append(f'<h3><span class="m {method}">{method.upper()}</span> <code>{esc(path)}</code> '
                   f'<a class=anchor href="#{esc(op["operationId"])}" aria-label="link">#</a></h3>')
        scope = op.get("x-scope")
        note = "no key needed" if op.get("security") == [] else (
            "any valid key" if scope == "any" else f"scope <code>{esc(scope)}</code>")
        if any("attach_token" in s for s in op.get("security", [])):
            note += " or the exec's attach token"
        out.append(f'<p class=summary>{inline(op.get("summary", ""))} <span class=scope>{note}</span></p>')
        out.append(markdown(op.get("description")))
        if op["parameters"]:
            rows = []
            for p in map(self.resolve, op["parameters"]):
                mark = "<span class=req>*</span>" if p.get("required") else ""
                rows.append(f"<tr><td><code>{esc(p['name'])}</code>{mark}<br><span class=in>{esc(p['in'])}</span></td>"
                            f"<td class=type>{self.type_of(p['schema'])}</td>"
                            f"<td>{self.describe(p['schema'], p.get('description', ''))}</td></tr>")
            out.append(f"<h4>Parameters</h4><div class=scroll><table class=members>{''.join(rows)}</table></div>")
        body = self.resolve(op.get("requestBody", {}))
        for media, spec in body.get("content", {}).items():
            need = "" if body.get("required") else " (may be left out)"
            out.append(f"<h4>Body <span class=media>{esc(media)}{need}</span></h4>")
            schema = spec["schema"]
            link = f"<p>{self.type_of(schema)}</p>" if "$ref" in schema else ""
            out.append(link + self.members(schema))
        out.append(f'<details><summary>With curl</summary><pre>{esc(self.curl(method, path, op))}</pre></details>')
        rows = []
        for code, response in op["responses"].items():
            name = response.get("$ref", "").split("/")[-1]
            response = self.resolve(response)
            kinds = ", ".join(self.type_of(c["schema"]) if "$ref" in c["schema"] else esc(m)
                              for m, c in response.get("content", {}).items())
            rows.append(f'<tr class="{"bad" if name else "good"}"><td><code>{esc(code)}</code></td>'
                        f"<td class=type>{kinds}</td><td>{inline(response['description'])}</td></tr>")
        out.append(f"<h4>Answers</h4><div class=scroll><table class=members>{''.join(rows)}</table></div></section>")
        return "\n".join(out)

    def operations(self):
        by_tag = {tag["name"]: [] for tag in self.spec["tags"]}
        for path, item in self.spec["paths"].items():
            for method in METHODS:
                if method in item:
                    op = dict(item[method])
                    op["parameters"] = item.get("parameters", []) + op.get("parameters", [])
                    by_tag[op["tags"][0]].append((method, path, op))
        return by_tag

    def render(self, css, script):
        info = self.spec["info"]
        by_tag = self.operations()
        nav, main = [], []
        for tag in self.spec["tags"]:
            nav.append(f'<h2><a href="#tag-{slug(tag["name"])}">{esc(tag["name"])}</a></h2><ul>')
            main.append(f'<h2 class=tag id="tag-{slug(tag["name"])}">{esc(tag["name"])}</h2>'
                        f'<p>{inline(tag["description"])}</p>')
            for method, path, op in by_tag[tag["name"]]:
                nav.append(f'<li data-for="{esc(op["operationId"])}"><a href="#{esc(op["operationId"])}">'
                           f'<span class="m {method}">{method.upper()}</span> {esc(op["summary"])}</a></li>')
                main.append(self.operation(method, path, op))
            nav.append("</ul>")
        codes = self.spec["components"]["schemas"]["ProblemCode"]["x-codes"]
        nav.append('<h2><a href="#problems">Error codes</a></h2><h2><a href="#schemas">Schemas</a></h2>')
        rows = "".join(f'<tr id="problem-{esc(code)}"><td><code>{esc(code)}</code></td><td>{c["status"]}</td>'
                       f'<td>{"yes" if c["retry"] else "no"}</td><td>{c["exit_code"]}</td>'
                       f'<td><b>{esc(c["title"])}.</b> {inline(c["text"])}</td></tr>' for code, c in codes.items())
        main.append('<h2 class=tag id=problems>Error codes</h2><div class=scroll><table><thead><tr><th>code</th>'
                    "<th>status</th><th>try again</th><th>exit code of <code>space</code></th><th>meaning</th></tr>"
                    f"</thead><tbody>{rows}</tbody></table></div>")
        main.append("<h2 class=tag id=schemas>Schemas</h2>")
        for name, schema in self.spec["components"]["schemas"].items():
            main.append(f'<section class=schema id="schema-{esc(name)}"><h3>{esc(name)}</h3>'
                        f"{self.schema_block(schema)}</section>")
        return (f'<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>{esc(info["title"])}</title>'
                '<meta name=viewport content="width=device-width, initial-scale=1">'
                f"<style>{css}</style></head><body><header><a class=skip href=#main>To the text</a>"
                f'<b>{esc(info["title"])}</b><input id=search type=search placeholder="Search (press /)" '
                'aria-label="Search" autocomplete=off><button id=theme type=button title="Light or dark">◐</button>'
                '<a href="/openapi.json">openapi.json</a></header>'
                f"<nav aria-label=Contents>{''.join(nav)}</nav><main id=main><h1>{esc(info['title'])}</h1>"
                f"<p class=lead>{esc(info['summary'])}</p>{markdown(info['description'])}"
                f"<p id=none hidden>Nothing found.</p>{''.join(main)}</main><script>{script}</script></body></html>\n")


def c_array(name, data):
    lines = [",".join(map(str, data[i:i + 32])) for i in range(0, len(data), 32)]
    body = ",\n".join(lines)
    return f"const unsigned char {name}[] = {{\n{body}}};\nconst size_t {name}_len = {len(data)};\n"


def main(argv):
    source, css, script, out_json, out_html, out_c = argv[1:]
    with open(source, encoding="utf-8") as f:
        spec = yaml.safe_load(f)
    with open(css, encoding="utf-8") as f:
        css_text = f.read()
    with open(script, encoding="utf-8") as f:
        script_text = f.read()
    as_json = (json.dumps(spec, ensure_ascii=False, separators=(",", ":"), default=str) + "\n").encode()
    as_html = Page(spec).render(css_text, script_text).encode()
    with open(out_json, "wb") as f:
        f.write(as_json)
    with open(out_html, "wb") as f:
        f.write(as_html)
    with open(out_c, "w", encoding="ascii") as f:
        f.write('/* Generated from api/openapi.yaml by api/render.py. */\n#include "api_blobs.h"\n\n')
        f.write(c_array("api_openapi_json", as_json))
        f.write(c_array("api_docs_html", as_html))


if __name__ == "__main__":
    main(sys.argv)
