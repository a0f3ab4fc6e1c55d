// JSON Schema 2020-12, as much of it as api/openapi.yaml uses. An unknown keyword is an error: nothing is passed over in
// silence.
const known = new Set(['$ref', 'type', 'enum', 'const', 'properties', 'required', 'additionalProperties', 'items', 'oneOf',
  'allOf', 'anyOf', 'pattern', 'minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems', 'uniqueItems',
  'minProperties', 'maxProperties', 'propertyNames', 'format', 'default', 'description', 'example', 'examples', 'title']);

const typeOf = (v) => (v === null ? 'null' : Array.isArray(v) ? 'array' : Number.isInteger(v) ? 'integer' : typeof v);

export class Schemas {
  constructor(document) { this.document = document; }

  resolve(thing) {
    while (thing?.$ref) thing = thing.$ref.slice(2).split('/').reduce((at, key) => at[key], this.document);
    return thing;
  }

  /** Faults as texts; empty: it fits. */
  faults(schema, value, at = '') {
    const out = [];
    const bad = (text) => out.push(`${at || '/'}: ${text}`);
    if (schema === true || schema === undefined) return out;
    if (schema === false) return [`${at}: not allowed`];
    if (schema.$ref) out.push(...this.faults(this.resolve(schema), value, at));
    for (const key of Object.keys(schema)) if (!known.has(key) && !key.startsWith('x-')) bad(`keyword ${key} of the schema is not known here`);
    const type = typeOf(value);
    if (schema.type) {
      const types = [schema.type].flat();
      if (!types.includes(type) && !(type === 'integer' && types.includes('number'))) bad(`is ${type}, not ${types.join(' or ')}`);
    }
    if (schema.enum && !schema.enum.includes(value)) bad(`${JSON.stringify(value)} is none of ${schema.enum.join(', ')}`);
    if ('const' in schema && schema.const !== value) bad(`is not ${schema.const}`);
    if (type === 'string') {
      if (schema.pattern && !new RegExp(schema.pattern, 'u').test(value)) bad(`${JSON.stringify(value)} does not match ${schema.pattern}`);
      if (schema.minLength > value.length || schema.maxLength < value.length) bad('length');
      if (schema.format === 'date-time' && !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(value)) bad(`${value} is no time`);
    }
    if (type === 'integer' || type === 'number') if (value < schema.minimum || value > schema.maximum) bad(`${value} is out of bounds`);
    if (type === 'array') {
      if (value.length < schema.minItems || value.length > schema.maxItems) bad('number of items');
      if (schema.items) value.forEach((item, i) => out.push(...this.faults(schema.items, item, `${at}/${i}`)));
    }
    if (type === 'object') {
      for (const key of schema.required ?? []) if (!(key in value)) bad(`${key} is missing`);
      for (const [key, item] of Object.entries(value)) {
        if (schema.properties && key in schema.properties) out.push(...this.faults(schema.properties[key], item, `${at}/${key}`));
        else if (schema.additionalProperties !== undefined) out.push(...this.faults(schema.additionalProperties, item, `${at}/${key}`));
        // Answers hold nothing that is not described.
        else if (schema.properties && !schema.allOf) bad(`${key} is not described`);
        if (schema.propertyNames) out.push(...this.faults(schema.propertyNames, key, `${at}/${key}`));
      }
    }
    for (const part of schema.allOf ?? []) out.push(...this.faults(part, value, at));
    for (const [word, least, most] of [['oneOf', 1, 1], ['anyOf', 1, Infinity]])
      if (schema[word]) {
        const results = schema[word].map((part) => this.faults(part, value, at)), fits = results.filter((r) => !r.length).length;
        if (fits < least || fits > most) bad(`${word}: ${fits} fit (${results.map((r) => r.join('; ')).join(' | ')})`);
      }
    return out;
  }
}

/** Holds answers against the operations of the description, and knows which were seen. */
export class Contract {
  constructor(document) {
    this.schemas = new Schemas(document);
    this.operations = new Map();
    this.seen = new Map();
    for (const [path, item] of Object.entries(document.paths))
      for (const [method, operation] of Object.entries(item))
        if (operation.operationId) this.operations.set(operation.operationId, { path, method, operation });
  }

  /** Throws when the answer is not one that the operation describes. Returns its JSON. */
  check(operationId, answer, status) {
    const found = this.operations.get(operationId);
    if (!found) throw new Error(`no operation ${operationId}`);
    const where = `${operationId} ${answer.status}`;
    if (status !== undefined && answer.status !== status) throw new Error(`${where}: expected ${status}: ${answer.text}`);
    if (!answer.headers['x-request-id']) throw new Error(`${where}: no X-Request-Id`);
    const responses = found.operation.responses;
    // 405, 404 and 500 belong to every path and are described once for all.
    const response = this.schemas.resolve(responses[answer.status] ?? responses.default
      ?? (answer.status === 405 ? { content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } } } : undefined));
    if (!response) throw new Error(`${where}: this status is not described: ${answer.text}`);
    this.seen.set(operationId, (this.seen.get(operationId) ?? new Set()).add(answer.status));
    const type = (answer.headers['content-type'] ?? '').split(';')[0];
    const described = response.content?.[type];
    if (response.content && !described && answer.data?.length) throw new Error(`${where}: ${type} is not described`);
    if (described && /json/.test(type)) {
      const faults = this.schemas.faults(described.schema, answer.json);
      if (faults.length) throw new Error(`${where}: ${faults.join('\n')}\n${answer.text}`);
    }
    return answer.json;
  }

  missing() { return [...this.operations.keys()].filter((id) => !this.seen.has(id)); }
}
