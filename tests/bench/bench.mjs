// make bench: what the platform costs, each figure beside the floor measured in the same run. Writes build/bench.json:
// a list of {name, unit, n, p50, p99, floor_p50, ratio_p50}; higher is better only where the unit is a rate (MB/s, 1/s).
//
//   node bench.mjs --spaced PATH --space PATH --floor PATH --qemu PATH --qemu-data DIR --incoming DIR --out FILE
import { spawn, spawnSync } from 'node:child_process';
import http from 'node:http';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const options = Object.fromEntries(process.argv.slice(2).reduce((all, word, i, words) =>
  word.startsWith('--') ? [...all, [word.slice(2), words[i + 1]]] : all, []));
const scratch = fs.mkdtempSync('/var/tmp/space-bench.');
fs.chmodSync(scratch, 0o755);
const state = path.join(scratch, 'state');
const results = [];
const started = Date.now();
const say = (text) => process.stderr.write(`[${((Date.now() - started) / 1000).toFixed(0).padStart(4)} s] ${text}\n`);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => Number(process.hrtime.bigint()) / 1e6;
const at = (values, q) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * q))];

function report(name, unit, values, floor, { higher = false, limit = null, extra = {} } = {}) {
  const list = Array.isArray(values) ? values : [values];
  const floors = floor == null ? null : Array.isArray(floor) ? floor : [floor];
  const round = (x) => (x == null ? null : Number(x.toPrecision(4)));
  const p50 = at(list, 0.5);
  const floor50 = floors ? at(floors, 0.5) : null;
  const entry = { name, unit, n: list.length, p50: round(p50), p99: round(at(list, higher ? 0.01 : 0.99)), floor_p50: round(floor50),
    ratio_p50: floor50 ? round(p50 / floor50) : null, ...extra };
  if (limit) entry.limit = limit;
  results.push(entry);
  say(`${name}: ${entry.p50} ${unit} (p99 ${entry.p99})` + (floor50 ? `, floor ${entry.floor_p50}, ratio ${entry.ratio_p50}` : '') + (limit ? `   [${limit}]` : ''));
}

// ---- the daemon ----
let daemon, port, key;
const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });

function call(method, target, { body, raw, headers = {}, onResponse } = {}) {
  return new Promise((resolve, reject) => {
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const request = http.request({ host: '127.0.0.1', port, method, path: target, agent,
      headers: { authorization: `Bearer ${key}`, ...(payload ? { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) } : {}), ...headers } }, (response) => {
      if (onResponse) { onResponse(response, resolve, reject); return; }
      const parts = [];
      response.on('data', (d) => parts.push(d));
      response.on('end', () => {
        const text = Buffer.concat(parts).toString();
        if (response.statusCode >= 400) reject(new Error(`${method} ${target}: ${response.statusCode} ${text}`));
        else resolve(text && response.headers['content-type']?.includes('json') ? JSON.parse(text) : text);
      });
      response.on('error', reject);
    });
    request.on('error', reject);
    if (raw) raw.pipe(request); else request.end(payload);
  });
}

async function start(settings) {
  port = 20000 + (process.pid % 20000);
  const args = ['--state-dir', state, '--listen', `127.0.0.1:${port}`, '--qemu-path', options.qemu, '--qemu-data', options['qemu-data'],
    '--set', 'log_level=warn', '--set', 'max_sandboxes=1000', '--set', 'max_sandboxes_per_project=1000'];
  for (const [k, v] of Object.entries(settings)) args.push('--set', `${k}=${v}`);
  daemon = spawn(options.spaced, args, { stdio: ['ignore', 'ignore', fs.openSync(path.join(scratch, 'spaced.log'), 'a')], env: { PATH: process.env.PATH, HOME: process.env.HOME } });
  for (let i = 0; i < 300; i++) {
    await sleep(50);
    if (daemon.exitCode !== null) throw new Error(`spaced ended: ${fs.readFileSync(path.join(scratch, 'spaced.log'), 'utf8').slice(-2000)}`);
    try {
      key = fs.readFileSync(path.join(state, 'admin.key'), 'utf8').trim();
      const text = await call('GET', '/readyz');
      if (text) return;
    } catch { /* not yet */ }
  }
  throw new Error('spaced did not get ready');
}

async function stop() {
  agent.destroy();
  const ended = new Promise((done) => daemon.once('exit', done));
  daemon.kill('SIGTERM');
  await ended;
}

async function pools(want) {
  for (let i = 0; i < 600; i++) {
    const node = await call('GET', '/v1/node');
    const ready = { hot: 0, blank: 0 };
    for (const p of node.pools) ready[p.kind] += p.ready;
    if (Object.entries(want).every(([k, n]) => ready[k] >= n)) return;
    await sleep(50);
  }
  throw new Error(`the pools did not fill: ${JSON.stringify(await call('GET', '/v1/node'))}`);
}

async function create() {
  const begin = now();
  const answer = await call('POST', '/v1/sandboxes', { body: { timeout_ms: 600000 }, headers: { prefer: 'wait=60' } });
  const ms = now() - begin;
  if (answer.sandbox.state !== 'running') throw new Error(`create: ${JSON.stringify(answer)}`);
  return { id: answer.sandbox.id, ms };
}
const remove = (id) => call('DELETE', `/v1/sandboxes/${id}`, { headers: { prefer: 'wait=60' } });

// One exec to its exit, the output counted; resolves to {bytes, exit}.
async function exec(id, command) {
  const made = await call('POST', `/v1/sandboxes/${id}/execs`, { body: { command, user: 'root' } });
  return call('GET', `/v1/sandboxes/${id}/execs/${made.exec.id}/output`, { onResponse: (response, resolve, reject) => {
    let bytes = 0, tail = '';
    response.on('data', (d) => { bytes += d.length; tail = (tail + d.subarray(Math.max(0, d.length - 2000)).toString('latin1')).slice(-2000);
      if (tail.includes('event: exit')) { response.resume(); } });
    response.on('end', () => resolve({ bytes, tail }));
    response.on('error', reject);
  } });
}

// ---- the floor ----
function floor(mode, ...rest) {
  const templates = path.join(state, 'templates');
  const template = path.join(templates, fs.readdirSync(templates).find((n) => !n.startsWith('.')));
  const shapes = path.join(template, 'shapes');
  const shape = path.join(shapes, fs.readdirSync(shapes).find((n) => !n.startsWith('.')));
  const run = spawnSync(options.floor, [mode, options.qemu, options['qemu-data'], template, shape, ...rest.map(String)], { encoding: 'utf8', maxBuffer: 1 << 26 });
  if (run.status !== 0) throw new Error(`floor ${mode}: ${run.stderr}`);
  return run.stdout.trim().split('\n');
}
const numbers = (lines) => lines.map(Number);

function qemus() {
  const all = [];
  for (const pid of fs.readdirSync('/proc').filter((n) => /^\d+$/.test(n))) {
    try {
      const line = fs.readFileSync(`/proc/${pid}/cmdline`, 'latin1');
      if (line.includes('microvm,') && line.includes('space-') && line.includes('qemu')) all.push(Number(pid));
    } catch { /* gone */ }
  }
  return all;
}
const pss = (pid) => Number(/^Pss:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]);
const rss = (pid) => Number(/^VmRSS:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
const ticks = (pid) => { const f = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' '); return Number(f[11]) + Number(f[12]); };

async function creates(n, want) {
  const values = [];
  for (let i = 0; i < n; i++) {
    if (want) { await pools(want); await sleep(100); }
    const sb = await create();
    values.push(sb.ms);
    await remove(sb.id);
  }
  return values;
}

async function main() {
  fs.mkdirSync(state, { recursive: true });
  say('preparing the template');
  await start({ pool_hot: 0, pool_blank: 0 });
  const incoming = path.join(state, 'incoming', 'base');
  spawnSync('cp', ['-r', '--sparse=always', options.incoming, incoming]);
  spawnSync('chown', ['-R', '--reference', state, incoming]); // the daemon is not root
  const imported = await call('POST', '/v1/templates', { body: { incoming: 'base', tag: 'base' }, headers: { prefer: 'wait=60' } });
  for (let op = imported.operation ?? imported; !['succeeded', 'failed'].includes(op.state);) {
    op = await call('GET', `/v1/operations/${op.id}?wait=30s`);
    op = op.operation ?? op;
    if (op.state === 'failed') throw new Error(JSON.stringify(op));
  }

  say('create');
  const cold = [], base = [];
  for (let i = 0; i < 3; i++) { base.push(...numbers(floor('create', 6))); cold.push(...await creates(6)); }
  report('create_cold', 'ms', cold, base, { limit: '≤ 1.15 × floor' });
  await stop();

  await start({ pool_hot: 0, pool_blank: 2 });
  await create().then((sb) => remove(sb.id));
  const blank = [], base2 = [];
  for (let i = 0; i < 3; i++) { base2.push(...numbers(floor('create', 4))); blank.push(...await creates(6, { blank: 2 })); }
  report('create_blank', 'ms', blank, base2, { limit: '≤ 0.80 × floor' });
  await stop();

  await start({ pool_hot: 2, pool_blank: 1 });
  await create().then((sb) => remove(sb.id));
  report('create_hot', 'ms', await creates(20, { hot: 2, blank: 1 }), base2, { limit: 'p50 ≤ 5 ms and ≤ 0.08 × floor' });

  say('python in a new sandbox');
  const python = [];
  for (let i = 0; i < 12; i++) {
    await pools({ hot: 2, blank: 1 });
    await sleep(100);
    const begin = now();
    const run = spawnSync(options.space, ['run', '--', 'python3', '-c', 'print(1)'], { encoding: 'utf8',
      env: { PATH: process.env.PATH, SPACE_URL: `http://127.0.0.1:${port}`, SPACE_API_KEY: key } });
    if (run.stdout !== '1\n') throw new Error(`space run: ${run.status} ${run.stdout} ${run.stderr}`);
    python.push(now() - begin);
  }
  report('run_python', 'ms', python, runsc(), { limit: '≤ 1.5 × runsc' });

  say('execs');
  const sb = await create();
  for (let i = 0; i < 10; i++) await exec(sb.id, ['/bin/true']);
  const trues = [], spawns = [];
  for (let r = 0; r < 3; r++) {
    spawns.push(...numbers(floor('spawn', 40)).slice(10));
    for (let i = 0; i < 40; i++) { const begin = now(); await exec(sb.id, ['/bin/true']); trues.push(now() - begin); }
  }
  report('exec_true', 'ms', trues, spawns, { limit: '≤ 1.5 × spawn in the guest' });

  say('streams');
  const raw = floor('raw', 256).map((line) => line.split(' ').map(Number));
  const stream = [];
  for (let i = 0; i < 3; i++) {
    const begin = now();
    const got = await exec(sb.id, ['head', '-c', '100000000', '/dev/zero']);
    if (got.bytes < 133000000) throw new Error(`exec_stream: only ${got.bytes} bytes: ${got.tail}`);
    stream.push(100000000 / 1e3 / (now() - begin));
  }
  report('exec_stream', 'MB/s', stream, raw.map((r) => r[0]), { higher: true, limit: '≥ 0.5 × raw' });
  const size = 256 << 20, block = Buffer.alloc(1 << 20, 7), puts = [], gets = [];
  for (let i = 0; i < 2; i++) {
    let begin = now();
    await new Promise((resolve, reject) => {
      const request = http.request({ host: '127.0.0.1', port, method: 'PUT', path: `/v1/sandboxes/${sb.id}/files?path=/tmp/big`, agent,
        headers: { authorization: `Bearer ${key}`, 'content-length': size } }, (response) => { response.resume(); response.on('end', () => response.statusCode < 300 ? resolve() : reject(new Error(`put: ${response.statusCode}`))); });
      request.on('error', reject);
      let left = size;
      const more = () => { while (left > 0) { left -= block.length; if (!request.write(block)) { request.once('drain', more); return; } } request.end(); };
      more();
    });
    puts.push(size / 1e3 / (now() - begin));
    begin = now();
    const got = await call('GET', `/v1/sandboxes/${sb.id}/files?path=/tmp/big`, { onResponse: (response, resolve, reject) => {
      let bytes = 0; response.on('data', (d) => { bytes += d.length; }); response.on('end', () => resolve(bytes)); response.on('error', reject); } });
    if (got !== size) throw new Error(`get: ${got} bytes`);
    gets.push(size / 1e3 / (now() - begin));
  }
  report('file_put', 'MB/s', puts, raw.map((r) => r[1]), { higher: true, limit: '≥ 0.6 × raw' });
  report('file_get', 'MB/s', gets, raw.map((r) => r[0]), { higher: true, limit: '≥ 0.6 × raw' });
  await remove(sb.id);

  say('create and kill');
  const cores = os.cpus().length;
  const floorRate = Number(floor('rate', 20, cores)[0]);
  const seconds = 60, end = now() + seconds * 1000;
  let done = 0;
  const begin = now();
  await Promise.all(Array.from({ length: cores }, async () => { while (now() < end) { const one = await create(); await remove(one.id); done++; } }));
  report('create_kill_rate', '1/s', done / ((now() - begin) / 1000), floorRate, { higher: true, limit: '≥ 0.8 × floor', extra: { created: done } });
  await stop();

  say('memory and cpu');
  await start({ pool_hot: 0, pool_blank: 0 });
  const clonePss = Number(floor('pss')[0]), cloneIdle = Number(floor('idle', 8)[0]);
  const first = [];
  const sandboxes = [];
  for (let i = 0; i < 8; i++) sandboxes.push((await create()).id);
  await sleep(2000);
  const total = () => qemus().reduce((sum, pid) => sum + pss(pid), 0) + pss(daemon.pid);
  const eight = total();
  for (let i = 0; i < 8; i++) sandboxes.push((await create()).id);
  await sleep(2000);
  first.push((total() - eight) / 8);
  report('memory_per_idle_sandbox', 'KiB', first, clonePss, { limit: '≤ 1.1 × clone' });
  const machines = qemus();
  const before = machines.map(ticks);
  await sleep(10000);
  const idle = machines.map((pid, i) => (ticks(pid) - before[i]) / 10);
  report('idle_cpu', '% of a core', idle, null, { limit: '≤ 1 %', extra: { floor_p50: cloneIdle } });
  while (sandboxes.length < 200)
    await Promise.all([create(), create()].map((p) => p.then((one) => sandboxes.push(one.id))));
  for (let i = 0; i < 1000; i++) await call('POST', `/v1/sandboxes/${sandboxes[i % 200]}/execs`, { body: { command: ['/bin/true'] } });
  await sleep(500);
  report('daemon_rss', 'MB', rss(daemon.pid) * 1024 / 1e6, null, { limit: '≤ 40 MB', extra: { sandboxes: sandboxes.length, execs: 1000 } });
  for (let i = 0; i < sandboxes.length; i += 20) await Promise.all(sandboxes.slice(i, i + 20).map(remove));
  await stop();
}

// The peer: gVisor runs the same command on the same root file system. Null (and no ratio) where it cannot.
function runsc() {
  const root = path.join(scratch, 'rootfs');
  if (process.getuid() !== 0 || spawnSync('runsc', ['--version']).status !== 0) { say('runsc is not installed or this is not root: run_python has no peer'); return null; }
  const templates = path.join(state, 'templates');
  const image = path.join(templates, fs.readdirSync(templates).find((n) => !n.startsWith('.')), 'rootfs.raw');
  fs.mkdirSync(path.join(root, 'rootfs'), { recursive: true });
  const mount = spawnSync('mount', ['-o', 'loop,ro,noload', image, path.join(root, 'rootfs')], { encoding: 'utf8' });
  if (mount.status !== 0) { say(`no peer: ${mount.stderr}`); return null; }
  try {
    fs.writeFileSync(path.join(root, 'config.json'), JSON.stringify({ ociVersion: '1.0.0', process: { user: { uid: 0, gid: 0 },
      args: ['python3', '-c', 'print(1)'], env: ['PATH=/usr/bin:/bin'], cwd: '/' }, root: { path: 'rootfs', readonly: true },
      mounts: [{ destination: '/proc', type: 'proc', source: 'proc' }], linux: { namespaces: [{ type: 'pid' }, { type: 'network' }, { type: 'ipc' }, { type: 'uts' }, { type: 'mount' }] } }));
    const times = [];
    for (let i = 0; i < 12; i++) {
      const begin = now();
      const run = spawnSync('runsc', ['--root', path.join(scratch, 'runsc'), '--network=none', '--ignore-cgroups', 'run', '--bundle', root, `bench-${process.pid}-${i}`], { encoding: 'utf8' });
      if (run.stdout !== '1\n') { say(`no peer: runsc: ${run.stderr || run.stdout}`); return null; }
      times.push(now() - begin);
    }
    return times;
  } finally {
    spawnSync('umount', [path.join(root, 'rootfs')]);
  }
}

let failed = null;
try { await main(); } catch (error) { failed = error; }
if (daemon && daemon.exitCode === null) daemon.kill('SIGTERM');
fs.mkdirSync(path.dirname(options.out), { recursive: true });
fs.writeFileSync(options.out, JSON.stringify(results, null, 2) + '\n');
if (failed) {
  say(`failed: ${failed.stack}`);
  try { process.stderr.write(fs.readFileSync(path.join(scratch, 'spaced.log'), 'utf8').slice(-3000)); } catch { /* none */ }
}
await sleep(200);
for (const pid of qemus()) { try { if (fs.readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(scratch)) process.kill(pid, 'SIGKILL'); } catch { /* gone */ } }
fs.rmSync(scratch, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
