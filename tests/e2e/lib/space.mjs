// A real spaced for a test: its own state folder (a copy of the prepared one), its own uid range, its own port.
//
//   SPACE_TEST_STATE   the folder that prepare.mjs made (a state folder with the template `base`)
//   SPACE_BUILD        the build folder (default: build/ of this tree)
//   SPACE_TEST_LOGS    where logs of daemons are kept (default: a folder under the system's temporary one)
//   SPACE_TEST_WRAP    what the daemon is started with, for debugging: "valgrind -q"
//   TEST_BUILD, TEST_QEMU, TEST_QEMU_DATA, TEST_TMP: as tools/check.py gives them
import { spawn, execFileSync } from 'node:child_process';
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
export const build = path.resolve(process.env.SPACE_BUILD ?? process.env.TEST_BUILD ?? path.join(root, 'build'));
export const prepared = process.env.SPACE_TEST_STATE;
export const isRoot = process.getuid() === 0;
const logs = process.env.SPACE_TEST_LOGS ?? fs.mkdtempSync(path.join(os.tmpdir(), 'space-logs-'));

export const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

/** Call `probe` until it gives something true; what it throws is kept for the message of the timeout. */
export async function until(what, probe, timeoutMs = 10000, stepMs = 20) {
  const end = Date.now() + timeoutMs;
  let last;
  for (;;) {
    try {
      const value = await probe();
      if (value) return value;
    } catch (error) {
      if (error.fatal) throw error;
      last = error;
    }
    if (Date.now() > end) throw new Error(`waited ${timeoutMs} ms for ${what}${last ? `: ${last.message}` : ''}`);
    await sleep(stepMs);
  }
}

export class ApiError extends Error {
  constructor(method, url, answer) {
    super(`${method} ${url}: ${answer.status} ${answer.text?.slice(0, 300)}`);
    this.status = answer.status;
    this.problem = answer.json;
  }
}

/** One request; { status, headers, text, json }. `body`: object (JSON), Buffer, string, or a stream. */
export function request(base, key, method, target, { body, headers = {}, agent, timeoutMs = 90000 } = {}) {
  const url = new URL(target, base);
  const all = { ...(key ? { authorization: `Bearer ${key}` } : {}), ...headers };
  let payload = body;
  if (body !== undefined && !(body instanceof Buffer) && typeof body !== 'string' && typeof body.pipe !== 'function') {
    payload = JSON.stringify(body);
    all['content-type'] ??= 'application/json';
  }
  if (typeof payload === 'string' || payload instanceof Buffer) all['content-length'] = Buffer.byteLength(payload);
  return new Promise((done, fail) => {
    const r = http.request(url, { method, headers: all, agent, timeout: timeoutMs }, (answer) => {
      const parts = [];
      answer.on('data', (d) => parts.push(d));
      answer.on('error', fail);
      answer.on('aborted', () => fail(new Error(`${method} ${target}: the answer broke off`)));
      answer.on('end', () => {
        const data = Buffer.concat(parts), text = data.toString();
        let json;
        if (/json/.test(answer.headers['content-type'] ?? '')) { try { json = JSON.parse(text); } catch { /* seen by the test */ } }
        done({ status: answer.statusCode, headers: answer.headers, data, text, json });
      });
    });
    r.on('timeout', () => r.destroy(new Error(`${method} ${target}: no answer in ${timeoutMs} ms`)));
    r.on('error', fail);
    if (payload && typeof payload.pipe === 'function') payload.pipe(r);
    else r.end(payload);
  });
}

/** Server-Sent Events of a path, as an async iterator of { id, event, data }. Ends when the stream does. */
export async function* events(base, key, target, { headers = {}, signal } = {}) {
  const answer = await fetch(new URL(target, base), {
    headers: { ...(key ? { authorization: `Bearer ${key}` } : {}), accept: 'text/event-stream', ...headers }, signal });
  if (answer.status !== 200) {
    const text = await answer.text();
    throw new ApiError('GET', target, { status: answer.status, text, json: text ? JSON.parse(text) : undefined });
  }
  let rest = '';
  const decoder = new TextDecoder();
  for await (const piece of answer.body) {
    rest += decoder.decode(piece, { stream: true });
    let end;
    while ((end = rest.indexOf('\n\n')) >= 0) {
      const event = {};
      for (const line of rest.slice(0, end).split('\n')) {
        const colon = line.indexOf(': ');
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      rest = rest.slice(end + 2);
      if (event.event) yield event;
    }
  }
}

let ranges = 0;

export class Space {
  /** options: config { key: value }, bare (no copy of the prepared state), user (a uid: the daemon runs without root). */
  static async start(options = {}) {
    const space = new Space(options);
    space.makeState();
    await space.launch();
    return space;
  }

  constructor(options) {
    this.options = options;
    this.state = fs.mkdtempSync(path.join(process.env.SPACE_TEST_TMP ?? process.env.TEST_TMP ?? os.tmpdir(), 'space-e2e-'));
    // A range of uids of its own: every test file is a process of its own, a process may have several daemons.
    this.uidBase = 0x60000000 + (process.pid % 4096) * 65536 + (ranges++ % 16) * 4096;
    this.logPath = path.join(logs, `${path.basename(this.state)}.log`);
    this.agent = new http.Agent({ keepAlive: true, maxSockets: 256 });
  }

  makeState() {
    fs.chmodSync(this.state, 0o755); // the service's uid passes through
    this.state = path.join(this.state, 'state');
    fs.mkdirSync(this.state, { mode: 0o700 });
    if (!this.options.bare) {
      if (!prepared) throw new Error('SPACE_TEST_STATE is not set (see tests/e2e/prepare.mjs)');
      execFileSync('cp', ['-a', '--sparse=always', '--reflink=auto', `${prepared}/templates`, `${prepared}/space.db`, this.state]);
    }
    const owner = this.options.user ?? this.uidBase;
    if (isRoot) execFileSync('chown', ['-R', `${owner}:${owner}`, this.state]);
  }

  /** Options of spaced. */
  argv() {
    const config = { listen: '127.0.0.1:0', pool_hot: 1, pool_blank: 1, slots: 512, ...this.options.config };
    const qemu = process.env.SPACE_TEST_QEMU ?? process.env.TEST_QEMU, data = process.env.SPACE_TEST_QEMU_DATA ?? process.env.TEST_QEMU_DATA;
    if (qemu) config.qemu_path ??= qemu;
    if (data) config.qemu_data ??= data;
    config.uid_base ??= this.uidBase; // without root too: machines carry it in their name
    return ['--state-dir', this.state, ...Object.entries(config).flatMap(([key, value]) => ['--set', `${key}=${value}`])];
  }

  async launch({ wait = true, wrap = process.env.SPACE_TEST_WRAP?.split(' ') ?? [] } = {}) {
    fs.rmSync(path.join(this.state, 'url'), { force: true });
    const out = fs.openSync(this.logPath, 'a');
    const user = this.options.user ? ['setpriv', '--reuid', this.options.user, '--regid', this.options.user, '--clear-groups', '--'].map(String) : [];
    const argv = [...user, ...wrap, path.join(build, 'src/bin/spaced'), ...this.argv()];
    const env = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith('SPACE_')));
    if (this.options.user) Object.assign(env, { HOME: path.dirname(this.state), USER: 'nobody', LOGNAME: 'nobody' });
    this.child = spawn(argv[0], argv.slice(1), { stdio: ['ignore', out, out], env });
    fs.closeSync(out);
    const child = this.child;
    this.exited = new Promise((done) => { child.on('exit', (code, signal) => done({ code, signal })); });
    let exit;
    this.exited.then((e) => { exit = e; });
    await until('the daemon to listen', () => {
      if (exit) throw Object.assign(new Error(`spaced ended: ${JSON.stringify(exit)}\n${this.log().slice(-2000)}`), { fatal: true });
      return fs.existsSync(path.join(this.state, 'url'));
    }, 30000);
    this.url = fs.readFileSync(path.join(this.state, 'url'), 'utf8').trim();
    this.key = fs.readFileSync(path.join(this.state, 'admin.key'), 'utf8').trim();
    if (wait) await until('the daemon to be ready', async () => (await request(this.url, null, 'GET', '/readyz')).status === 200, 60000);
  }

  log() { return fs.existsSync(this.logPath) ? fs.readFileSync(this.logPath, 'utf8') : ''; }

  /** kill -9 of the daemon alone; machines go on. */
  async kill9() {
    this.child.kill('SIGKILL');
    await this.exited;
    this.agent.destroy();
    this.agent = new http.Agent({ keepAlive: true, maxSockets: 256 });
  }

  async stopDaemon() {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill('SIGTERM');
      const late = setTimeout(() => this.child.kill('SIGKILL'), 20000);
      await this.exited;
      clearTimeout(late);
    }
    this.agent.destroy();
  }

  /** End everything and remove the state. */
  async stop() {
    try {
      const list = await this.api('GET', '/v1/sandboxes?limit=1000');
      await Promise.all(list.items.map((s) => this.call('DELETE', `/v1/sandboxes/${s.id}?wait=30s`)));
    } catch { /* it may be dead on purpose */ }
    await this.stopDaemon();
    for (const pid of this.machines()) { try { process.kill(pid, 'SIGKILL'); } catch { /* gone */ } }
    fs.rmSync(path.dirname(this.state), { recursive: true, force: true });
  }

  /** One request whatever its status. */
  call(method, target, options = {}) {
    return request(this.url, options.key === undefined ? this.key : options.key, method, target, { agent: this.agent, ...options });
  }

  /** One request that must succeed; its JSON. */
  async api(method, target, body, options = {}) {
    const answer = await this.call(method, target, { ...options, body });
    if (answer.status >= 400) throw new ApiError(method, target, answer);
    return answer.json;
  }

  /** A running sandbox, however long it takes (the first use of a shape can take a minute). */
  async create(body = {}) {
    const { sandbox, operation } = await this.api('POST', '/v1/sandboxes?wait=60s', body);
    return sandbox.state === 'creating' ? this.finished(operation) : sandbox;
  }

  /** The sandbox that an operation was about, when the operation has ended well. */
  async finished({ id }) {
    const operation = await until(`operation ${id}`, async () => {
      const now = await this.api('GET', `/v1/operations/${id}?wait=30s`);
      return now.ended_at && now;
    }, 300000);
    if (operation.state !== 'succeeded') throw new Error(JSON.stringify(operation));
    return this.get(operation.target.id);
  }

  get(id) { return this.api('GET', `/v1/sandboxes/${id}`); }
  async remove(id) { return (await this.api('DELETE', `/v1/sandboxes/${id}?wait=60s`)).sandbox; }
  run(id, body) { return this.api('POST', `/v1/sandboxes/${id}/run`, typeof body === 'string' ? { shell: body } : body); }
  async exec(id, body) { return this.api('POST', `/v1/sandboxes/${id}/execs`, typeof body === 'string' ? { shell: body } : body); }
  events(target, options) { return events(this.url, this.key, target, options); }

  /** All output of an exec from an offset, and its exit: { stdout, stderr, exit, dropped, ids }. */
  async output(id, execId, { from = 0, headers } = {}) {
    const got = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), dropped: 0, ids: [], exit: null };
    for await (const e of this.events(`/v1/sandboxes/${id}/execs/${execId}/output?from=${from}`, { headers })) {
      got.ids.push(e.id);
      if (e.event === 'exit') got.exit = JSON.parse(e.data);
      else if (e.event === 'dropped') got.dropped += JSON.parse(e.data).bytes;
      else got[e.event] = Buffer.concat([got[e.event], Buffer.from(e.data, 'base64')]);
    }
    return got;
  }

  /** What of the machines of this daemon there is on the host. */
  machines() {
    const pids = [];
    for (const name of fs.readdirSync('/proc')) {
      if (!/^\d+$/.test(name)) continue;
      try {
        const status = fs.readFileSync(`/proc/${name}/status`, 'utf8');
        const command = fs.readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
        if (/^State:\s+Z/m.test(status) || !/qemu/.test(command[0])) continue;
        if (command.some((word) => word.startsWith(`space-${this.uidBase}-`))) pids.push(Number(name));
      } catch { /* gone meanwhile */ }
    }
    return pids;
  }

  folders(name) { try { return fs.readdirSync(path.join(this.state, name)); } catch { return []; } }
}

/** A WebSocket client with just enough for the tests; the built-in one of later nodes cannot set headers. */
export function websocket(base, target, headers = {}) {
  const url = new URL(target, base), key = crypto.randomBytes(16).toString('base64');
  const socket = net.connect(Number(url.port), url.hostname);
  const ws = { socket, frames: [], closed: null, status: 0, waiters: [] };
  let rest = Buffer.alloc(0), open = false;
  const wake = () => { for (const w of ws.waiters.splice(0)) w(); };
  socket.write(`GET ${url.pathname}${url.search} HTTP/1.1\r\n${headers.Host ? '' : `Host: ${url.host}\r\n`}Connection: Upgrade\r\nUpgrade: websocket\r\n`
    + `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n${Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join('')}\r\n`);
  socket.on('error', () => {});
  socket.on('close', () => { ws.closed ??= 1006; wake(); });
  socket.on('data', (data) => {
    rest = Buffer.concat([rest, data]);
    if (!open) {
      const end = rest.indexOf('\r\n\r\n');
      if (end < 0) return;
      ws.head = rest.subarray(0, end).toString();
      ws.status = Number(ws.head.split(' ')[1]);
      rest = rest.subarray(end + 4);
      open = true;
    }
    for (;;) {
      if (rest.length < 2) break;
      let len = rest[1] & 0x7f, at = 2;
      if (len === 126) { if (rest.length < 4) break; len = rest.readUInt16BE(2); at = 4; }
      else if (len === 127) { if (rest.length < 10) break; len = Number(rest.readBigUInt64BE(2)); at = 10; }
      if (rest.length < at + len) break;
      const opcode = rest[0] & 15, payload = Buffer.from(rest.subarray(at, at + len));
      rest = rest.subarray(at + len);
      if (opcode === 8) { ws.closed = payload.length >= 2 ? payload.readUInt16BE(0) : 1005; ws.send(payload, 8); socket.end(); }
      else if (opcode === 9) ws.send(payload, 10);
      else if (opcode === 1 || opcode === 2) ws.frames.push({ text: opcode === 1, data: payload });
    }
    wake();
  });
  ws.send = (data, opcode) => {
    const payload = Buffer.from(data), mask = crypto.randomBytes(4);
    const head = payload.length < 126 ? Buffer.from([0x80 | opcode, 0x80 | payload.length])
      : Buffer.from([0x80 | opcode, 0x80 | 126, payload.length >> 8, payload.length & 255]);
    const masked = Buffer.from(payload.map((b, i) => b ^ mask[i % 4]));
    socket.write(Buffer.concat([head, mask, masked]));
  };
  ws.text = (value) => ws.send(typeof value === 'string' ? value : JSON.stringify(value), 1);
  ws.binary = (data) => ws.send(data, 2);
  ws.bytes = () => Buffer.concat(ws.frames.filter((f) => !f.text).map((f) => f.data)).toString();
  ws.json = () => ws.frames.filter((f) => f.text).map((f) => JSON.parse(f.data));
  return ws;
}
