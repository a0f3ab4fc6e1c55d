// A server that answers like spaced does, with processes and a folder of this machine in place of a sandbox. It lets the
// tests of the client cut connections, count requests and send what a hostile server could.
import http from 'node:http';
import net from 'node:net';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { spawn } from 'node:child_process';

const letters = 'abcdefghijklmnopqrstuvwxyz234567';
const id = (kind) => kind + Array.from(crypto.randomBytes(20), (b) => letters[b % 32]).join('');
const now = () => new Date().toISOString();
const titles = { invalid_request: 400, unauthenticated: 401, not_found: 404, conflict: 409, wrong_state: 409, gone: 410,
  range_not_satisfiable: 416, unavailable: 503 };

export class Problem extends Error {
  constructor(code, detail) { super(detail); this.code = code; this.status = titles[code] ?? 500; }
}

export class Stub {
  constructor(root) {
    this.root = root;
    this.key = 'sk_space_' + '0'.repeat(40);
    this.sandboxes = new Map();
    this.operations = new Map();
    this.keys = [];
    this.templates = [{ digest: 'ab'.repeat(32), tags: ['base'], architecture: 'x86_64', kernel: '6.1.0', agent_sha256: 'cd'.repeat(32),
      default_shape: { vcpus: 1, memory_mib: 256, disk_mib: 2048 }, size_bytes: 1 << 30, created_at: now(), checkpoints: [] }];
    this.requests = [];     // "METHOD path"
    this.connections = 0;
    this.cutAfterBytes = 0; // end an output stream after so many bytes of output, once
    this.slowCreates = 0;   // so many polls until a create is done
    this.server = http.createServer({ keepAliveTimeout: 20000 }, (q, a) => this.handle(q, a));
    this.server.on('connection', () => { this.connections++; });
    this.server.on('upgrade', (q, s, head) => this.upgrade(q, s, head));
  }

  async start() {
    await new Promise((done) => { this.server.listen(0, '127.0.0.1', done); });
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  async stop() {
    for (const s of this.sandboxes.values()) for (const x of s.execs.values()) x.child?.kill('SIGKILL');
    this.server.closeAllConnections();
    await new Promise((done) => { this.server.close(done); });
  }

  sandboxJson(s) { const { execs, polls, ...json } = s; return json; }

  sandbox(sid) {
    const s = this.sandboxes.get(sid);
    if (!s) throw new Problem('not_found', `no sandbox "${sid}"`);
    return s;
  }

  exec(s, xid) {
    const x = s.execs.get(xid);
    if (!x) throw new Problem('not_found', `no exec "${xid}"`);
    return x;
  }

  operation(kind, target, state = 'succeeded') {
    const o = { id: id('o'), kind, state, progress: { done: 0, total: 3, step: 'load the machine' }, error: null,
      target: { type: kind.split('.')[0], id: target }, created_at: now(), started_at: now(), ended_at: state === 'running' ? null : now() };
    this.operations.set(o.id, o);
    return o;
  }

  async body(q) {
    const parts = [];
    for await (const p of q) parts.push(p);
    return Buffer.concat(parts);
  }

  async json(q) { const b = await this.body(q); return b.length ? JSON.parse(b) : {}; }

  async handle(q, a) {
    this.requests.push(`${q.method} ${q.url}`);
    const url = new URL(q.url, 'http://stub');
    const send = (status, value) => {
      const text = value === undefined ? '' : JSON.stringify(value);
      a.writeHead(status, value === undefined ? {} : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
      a.end(text);
    };
    try {
      if (q.headers.authorization !== `Bearer ${this.key}`) throw new Problem('unauthenticated', 'no valid key');
      await this.route(q, a, url, send);
    } catch (error) {
      if (a.headersSent) { a.destroy(); return; }
      const status = error.status ?? 500;
      a.writeHead(status, { 'Content-Type': 'application/problem+json' });
      a.end(JSON.stringify({ type: `/problems/${error.code}`, title: 'x', status, detail: error.message,
        code: titles[error.code] ? error.code : 'internal', request_id: 'r1' }));
    }
  }

  page(url, all) {
    const limit = Math.min(Number(url.searchParams.get('limit') ?? 100), this.pageSize ?? 1000);
    const at = Number(url.searchParams.get('cursor') ?? 0);
    return { items: all.slice(at, at + limit), next_cursor: at + limit < all.length ? String(at + limit) : null };
  }

  async route(q, a, url, send) {
    const p = url.pathname.split('/').slice(2);
    const key = `${q.method} ${p[0]}${p.length > 1 ? '/' : ''}`;
    if (key === 'POST sandboxes') return this.create(q, send);
    if (key === 'GET sandboxes') {
      const name = url.searchParams.get('name');
      return send(200, this.page(url, [...this.sandboxes.values()].filter((s) => !name || s.name === name).map((s) => this.sandboxJson(s))));
    }
    if (p[0] === 'sandboxes') return this.routeSandbox(q, a, url, send, this.sandbox(p[1]), p.slice(2));
    if (p[0] === 'operations') {
      if (p.length === 1) return send(200, this.page(url, [...this.operations.values()]));
      const o = this.operations.get(p[1]);
      if (!o) throw new Problem('not_found', `no operation "${p[1]}"`);
      if (o.state === 'running') {
        o.progress.done++;
        if (o.progress.done >= 3) { Object.assign(o, this.failNext ? { state: 'failed', error: this.failNext } : { state: 'succeeded' }, { ended_at: now() }); }
      }
      return send(200, o);
    }
    if (p[0] === 'node') return send(200, { version: '0.1.0', started_at: now(), accelerator: 'tcg', accelerator_reason: 'no kvm', qemu_version: '10.0',
      isolation: { jail: 'reduced', missing: [{ name: 'uid', reason: 'not root\u001b[31m' }] }, require_jail: false, require_hardware_isolation: false, domain: null,
      capacity: { machines_max: 8, machines_used: 1, memory_mib_max: 4096, memory_mib_used: 256 }, sandboxes: {},
      pools: [{ template: 'ab'.repeat(32), shape: { vcpus: 1, memory_mib: 256, disk_mib: 2048 }, kind: 'hot', target: 2, ready: 1, starting: 1 }] });
    if (p[0] === 'templates') return this.routeTemplate(q, url, send, p.slice(1));
    if (key === 'POST keys') {
      const body = await this.json(q);
      const k = { id: id('k'), project_id: id('p'), name: body.name, prefix: 'sk_space_1111', scopes: body.scopes, created_at: now(), expires_at: body.expires_at ?? null, last_used_at: null, revoked_at: null };
      this.keys.push(k);
      return send(201, { key: k, secret: 'sk_space_' + '1'.repeat(40) });
    }
    if (key === 'GET keys') return send(200, this.page(url, this.keys));
    if (key === 'DELETE keys/') { this.keys = this.keys.filter((k) => k.id !== p[1]); return send(204); }
    throw new Problem('not_found', 'no such path');
  }

  async create(q, send) {
    const body = await this.json(q);
    const known = this.templates.some((t) => t.tags.includes(body.template ?? 'base') || t.digest === body.template);
    if (!known) throw new Problem('not_found', `no template "${body.template}"`);
    const s = { id: id('s'), project_id: id('p'), name: body.name ?? null, state: 'running', reason: null,
      template: { digest: this.templates[0].digest, tag: 'base' }, shape: { vcpus: 1, memory_mib: 256, disk_mib: 2048, ...body.shape }, accelerator: 'tcg',
      isolation: { jail: 'full', missing: [] }, pool: 'hot', metadata: body.metadata ?? {}, timeout_ms: body.timeout_ms ?? 300000, created_at: now(), ready_at: now(),
      expires_at: new Date(Date.now() + (body.timeout_ms ?? 300000)).toISOString(), ended_at: null, execs: new Map() };
    fs.mkdirSync(this.guest(s, '/'), { recursive: true });
    this.sandboxes.set(s.id, s);
    const slow = this.slowCreates > 0;
    const operation = this.operation('sandbox.create', s.id, slow ? 'running' : 'succeeded');
    send(q.headers.prefer && !slow ? 201 : 202, { operation, sandbox: this.sandboxJson(s) });
  }

  guest(s, file) { return path.join(this.root, s.id, path.normalize('/' + file)); }

  async routeSandbox(q, a, url, send, s, rest) {
    const what = `${q.method} ${rest[0] ?? ''}`;
    const change = async (kind, state) => { s.state = state; send(q.headers.prefer ? 200 : 202, { operation: this.operation(kind, s.id), sandbox: this.sandboxJson(s) }); };
    if (what === 'GET ') return send(200, this.sandboxJson(s));
    if (what === 'PATCH ') { Object.assign(s, await this.json(q)); return send(200, this.sandboxJson(s)); }
    if (what === 'DELETE ') { this.sandboxes.delete(s.id); return change('sandbox.delete', 'deleted'); }
    if (what === 'POST pause') return change('sandbox.pause', 'paused');
    if (what === 'POST resume') return change('sandbox.resume', 'running');
    if (what === 'GET console') { a.writeHead(200, { 'Content-Type': 'text/plain' }); return a.end('boot\u001b]52;c;x\u0007\nready\n'); }
    if (what === 'GET metrics') return send(200, { sandbox_id: s.id, at: now(), uptime_ms: 61000, cpu: { vcpus: 1, busy_us: 1, idle_us: 1, load1: 0.5 },
      memory: { total_bytes: 1 << 28, used_bytes: 1 << 20, available_bytes: 1 }, disk: { total_bytes: 1 << 30, used_bytes: 1 << 20 }, processes: 3, execs_running: 1,
      host: { memory_bytes: 1 << 20, cpu_us: 5, disk_bytes: 1 } });
    if (what === 'POST run') {
      const x = this.makeExec(s, await this.json(q));
      this.startExec(s, x);
      await x.ended;
      return send(200, { exec_id: x.id, ...this.result(x), stdout: Buffer.concat(x.log.map((l) => l.data)).toString(), stderr: '', encoding: 'utf-8', truncated: false });
    }
    if (rest[0] === 'files') return this.routeFiles(q, a, url, send, s, rest[1] ?? '');
    if (rest[0] === 'execs') return this.routeExecs(q, a, url, send, s, rest.slice(1));
    throw new Problem('not_found', 'no such path');
  }

  execJson(x) { return x.json; }

  makeExec(s, body) {
    const x = { id: id('x'), body, log: [], bytes: 0, readers: new Set() };
    x.json = { id: x.id, sandbox_id: s.id, state: 'reserved', reason: null, command: body.command ?? null, shell: body.shell ?? null, user: body.user ?? 'root',
      cwd: body.cwd ?? null, stdin: !!body.stdin, terminal: body.terminal ?? null, buffer_bytes: 4194304, timeout_ms: body.timeout_ms ?? null, pid: null, exit_code: null,
      signal: null, created_at: now(), started_at: null, ended_at: null };
    x.ended = new Promise((done) => { x.end = done; });
    s.execs.set(x.id, x);
    return x;
  }

  startExec(s, x) {
    if (x.json.state !== 'reserved') return;
    const argv = x.body.command ?? ['/bin/sh', '-c', x.body.shell];
    x.json.state = 'running';
    x.child = spawn(argv[0], argv.slice(1), { cwd: this.guest(s, '/'), env: { PATH: process.env.PATH, ...x.body.env }, stdio: [x.body.stdin || x.body.terminal ? 'pipe' : 'ignore', 'pipe', 'pipe'], detached: true });
    x.child.stdin?.on('error', () => {});
    const take = (name) => (data) => { x.bytes += data.length; x.log.push({ name, data, end: x.bytes }); this.wake(x); };
    x.child.stdout.on('data', take('stdout'));
    x.child.stderr.on('data', take('stderr'));
    x.child.on('error', (error) => { Object.assign(x.json, { state: 'failed', reason: error.code === 'ENOENT' ? `${argv[0]}: not found` : String(error.code), ended_at: now() }); x.end(); this.wake(x); });
    x.child.on('close', (code, signal) => {
      if (x.json.state !== 'running') return;
      Object.assign(x.json, { state: 'exited', exit_code: code, signal: signal ? signal.slice(3) : null, ended_at: now() });
      x.end();
      this.wake(x);
    });
    if (x.body.timeout_ms) setTimeout(() => { x.timedOut = true; this.signal(x, 'SIGKILL'); }, x.body.timeout_ms).unref();
  }

  signal(x, name) { try { process.kill(-x.child.pid, name); } catch { /* it has ended */ } }

  result(x) {
    return { exec_id: x.id, state: x.json.state, reason: x.json.reason, exit_code: x.json.exit_code, signal: x.json.signal, timed_out: !!x.timedOut, oom_killed: false,
      started_at: x.json.created_at, ended_at: x.json.ended_at, duration_ms: 1, output_bytes: x.bytes, dropped_bytes: 0, cpu_user_us: 0, cpu_system_us: 0, max_rss_bytes: 0 };
  }

  wake(x) { for (const r of x.readers) r(); }

  async routeExecs(q, a, url, send, s, rest) {
    if (rest.length === 0 && q.method === 'POST') {
      const x = this.makeExec(s, await this.json(q));
      return send(201, { exec: x.json, attach_token: 'at_' + 'a'.repeat(30), attach_token_expires_at: now() });
    }
    if (rest.length === 0) return send(200, this.page(url, [...s.execs.values()].map((x) => x.json)));
    const x = this.exec(s, rest[0]);
    const what = `${q.method} ${rest[1] ?? ''}`;
    if (what === 'GET ') return send(200, x.json);
    if (what === 'POST attach') { this.startExec(s, x); return send(200, x.json); }
    if (what === 'GET output') return this.output(q, a, url, s, x);
    if (what === 'POST signal') { const body = await this.json(q); this.signal(x, 'SIG' + body.signal); return send(204); }
    if (what === 'POST stdin') {
      const data = await this.body(q);
      if (x.json.state !== 'running' || x.eof) throw new Problem('wrong_state', 'its input is closed');
      if (data.length) await new Promise((done) => { x.child.stdin.write(data, done); });
      if (url.searchParams.get('eof') === 'true') { x.eof = true; x.child.stdin.end(); }
      return send(200, { accepted_bytes: data.length, eof: !!x.eof });
    }
    throw new Problem('not_found', 'no such path');
  }

  output(q, a, url, s, x) {
    const last = q.headers['last-event-id'];
    if (last === 'end') { a.writeHead(204); return a.end(); }
    let at = Number(last ?? url.searchParams.get('from') ?? 0), ended = false;
    const follow = url.searchParams.get('follow') !== 'false';
    if (follow || x.json.state === 'reserved') this.startExec(s, x);
    a.writeHead(200, { 'Content-Type': 'text/event-stream' });
    a.flushHeaders();
    const next = () => {
      for (const l of x.log) {
        if (l.end <= at || ended) continue;
        let data = l.data.subarray(Math.max(0, at - (l.end - l.data.length)));
        if (this.cutAfterBytes && at + data.length > this.cutAfterBytes) {
          data = data.subarray(0, Math.max(this.cutAfterBytes - at, 0));
          ended = true;
        }
        at += data.length;
        if (data.length) a.write(`id: ${at}\nevent: ${l.name}\ndata: ${data.toString('base64')}\n\n`);
        if (ended) { this.cutAfterBytes = 0; x.readers.delete(next); setTimeout(() => a.socket?.destroy(), 20); return; }
      }
      const over = ['exited', 'failed', 'lost'].includes(x.json.state);
      if (over) a.write(`id: end\nevent: exit\ndata: ${JSON.stringify(this.result(x))}\n\n`);
      if (over || !follow) { ended = true; x.readers.delete(next); a.end(); }
    };
    x.readers.add(next);
    a.on('close', () => x.readers.delete(next));
    next();
  }

  async routeFiles(q, a, url, send, s, kind) {
    const file = this.guest(s, url.searchParams.get('path') ?? '/');
    const missing = (error) => { throw new Problem('not_found', `no file: ${error.code}`); };
    const what = `${q.method} ${kind}`;
    if (what === 'GET stat') {
      let st;
      try { st = fs.statSync(file); } catch (error) { missing(error); }
      return send(200, { path: url.searchParams.get('path'), name: path.basename(file), type: st.isDirectory() ? 'directory' : 'file', size_bytes: st.size, mode: '0644', uid: 0, gid: 0, modified_at: now(), target: null });
    }
    if (what === 'PUT ') {
      fs.mkdirSync(path.dirname(file), { recursive: true });
      const data = await this.body(q);
      fs.writeFileSync(file, data, { mode: parseInt(url.searchParams.get('mode') ?? '0644', 8) });
      return send(200, { path: url.searchParams.get('path'), size_bytes: data.length });
    }
    if (what === 'GET ') {
      const st = fs.statSync(file);
      a.writeHead(200, { 'Content-Length': st.size, 'Space-Mode': '0' + (st.mode & 0o777).toString(8) });
      return fs.createReadStream(file).pipe(a);
    }
    if (what === 'PUT tar') {
      fs.mkdirSync(file, { recursive: true });
      const tar = spawn('tar', ['-x', '-C', file]);
      q.pipe(tar.stdin);
      const code = await new Promise((done) => { tar.on('close', done); });
      if (code !== 0) throw new Problem('invalid_request', 'the archive is broken');
      return send(204);
    }
    if (what === 'GET tar') {
      a.writeHead(200, { 'Content-Type': 'application/x-tar' });
      if (this.hostileTar) return a.end(this.hostileTar);
      return spawn('tar', ['-c', '--format=pax', '-C', file, '.']).stdout.pipe(a);
    }
    throw new Problem('not_found', 'no such path');
  }

  async routeTemplate(q, url, send, rest) {
    if (q.method === 'GET' && rest.length === 0) return send(200, this.page(url, this.templates));
    if (q.method === 'POST') {
      const body = await this.json(q);
      const t = { ...this.templates[0], digest: 'cd'.repeat(32), tags: [body.tag] };
      this.templates.push(t);
      return send(202, { operation: this.operation('template.import', t.digest, 'running') });
    }
    const t = this.templates.find((x) => x.digest === rest[0] || x.tags.includes(rest[0]));
    if (!t) throw new Problem('not_found', `no template "${rest[0]}"`);
    if (q.method === 'PUT') { t.tags.push(rest[2]); return send(200, t); }
    if (q.method === 'DELETE') { if (rest.length === 1) this.templates = this.templates.filter((x) => x !== t); return send(204); }
    return send(200, t);
  }

  // Terminals (echo of what a shell without a terminal does) and plain TCP.
  upgrade(q, socket, head) {
    this.requests.push(`${q.method} ${q.url}`);
    socket.on('error', () => {});
    const url = new URL(q.url, 'http://stub');
    const p = url.pathname.split('/').slice(2);
    const s = this.sandboxes.get(p[1]);
    if (q.headers.authorization !== `Bearer ${this.key}` || !s) {
      const body = JSON.stringify({ code: 'not_found', detail: 'no such sandbox', status: 404 });
      return socket.end(`HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    }
    if (p[2] === 'tcp') {
      const inner = net.connect({ port: Number(p[3]), host: '127.0.0.1', allowHalfOpen: true });
      inner.on('connect', () => { socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n'); inner.write(head); socket.pipe(inner); inner.pipe(socket); });
      inner.on('error', () => {
        const body = JSON.stringify({ code: 'unavailable', detail: `nothing listens on port ${p[3]}`, status: 503 });
        socket.end(`HTTP/1.1 503 Service Unavailable\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      });
      return undefined;
    }
    return this.terminal(q, socket, s, s.execs.get(p[3]), Number(url.searchParams.get('from') ?? 0));
  }

  terminal(q, socket, s, x, from) {
    const accept = crypto.createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    const frame = (opcode, data) => {
      const size = data.length < 126 ? Buffer.from([data.length]) : Buffer.from([126, data.length >> 8, data.length & 255]);
      socket.write(Buffer.concat([Buffer.from([0x80 | opcode]), size, data]));
    };
    this.startExec(s, x);
    this.controls ??= [];
    let at = from, done = false;
    frame(1, Buffer.from(JSON.stringify({ type: 'start', exec_id: x.id, offset: at })));
    const next = () => {
      for (const l of x.log) {
        if (l.end <= at || done) continue;
        let data = l.data.subarray(Math.max(0, at - (l.end - l.data.length)));
        if (this.cutAfterBytes && at + data.length > this.cutAfterBytes) { data = data.subarray(0, this.cutAfterBytes - at); done = true; }
        at += data.length;
        if (data.length) frame(2, data);
        if (done) { this.cutAfterBytes = 0; x.readers.delete(next); setTimeout(() => socket.destroy(), 20); return; }
      }
      if (x.json.state === 'exited' && !done) { done = true; frame(1, Buffer.from(JSON.stringify({ type: 'exit', ...this.result(x) }))); }
    };
    x.readers.add(next);
    socket.on('close', () => x.readers.delete(next));
    let pending = Buffer.alloc(0);
    socket.on('data', (data) => {
      pending = Buffer.concat([pending, data]);
      for (;;) {
        if (pending.length < 2) return;
        let len = pending[1] & 127, at2 = 2;
        if (len === 126) { len = pending.readUInt16BE(2); at2 = 4; }
        if (pending.length < at2 + 4 + len) return;
        const mask = pending.subarray(at2, at2 + 4);
        const payload = Buffer.from(pending.subarray(at2 + 4, at2 + 4 + len).map((b, i) => b ^ mask[i & 3]));
        const opcode = pending[0] & 15;
        pending = pending.subarray(at2 + 4 + len);
        if (opcode === 2) x.child.stdin.write(payload);
        if (opcode === 1) {
          const message = JSON.parse(payload);
          this.controls.push(message);
          if (message.type === 'eof') x.child.stdin.end();
          if (message.type === 'signal') this.signal(x, 'SIG' + message.signal);
        }
        if (opcode === 8) { socket.end(); return; }
      }
    });
    next();
  }
}
