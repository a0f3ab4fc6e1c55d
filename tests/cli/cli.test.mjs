// The program `space` against a server. By default a scripted one (scripted_server.mjs); with SPACE_TEST_URL and SPACE_TEST_KEY a real one,
// and the cases that need to cut connections or to look into the server are left out.
import test from 'node:test';
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import net from 'node:net';
import path from 'node:path';
import { spawn, spawnSync, execFileSync } from 'node:child_process';
import { Stub } from './scripted_server.mjs';

const program = path.join(process.env.TEST_BUILD ?? path.resolve('build'), 'src/cli/space');
const real = process.env.SPACE_TEST_URL;
const temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'space-cli-'));
const stub = real ? null : new Stub(path.join(temporary, 'guests'));
const scripted = (name, fn) => test(name, { skip: real ? 'needs the scripted server' : false }, fn);

test.before(async () => { if (stub) await stub.start(); });
test.after(async () => { if (stub) await stub.stop(); fs.rmSync(temporary, { recursive: true, force: true }); });

function environment(extra) {
  return { PATH: process.env.PATH, HOME: temporary, TERM: 'xterm', SPACE_URL: real ?? stub.url, SPACE_API_KEY: process.env.SPACE_TEST_KEY ?? stub.key, ...extra };
}

function start(args, { env = {}, input, cwd } = {}) {
  const child = spawn(program, args, { env: environment(env), cwd, stdio: ['pipe', 'pipe', 'pipe'] });
  const out = [], err = [];
  child.stdout.on('data', (d) => out.push(d));
  child.stderr.on('data', (d) => err.push(d));
  child.stdin.on('error', () => {});
  if (input !== null) child.stdin.end(input ?? '');
  const timer = setTimeout(() => child.kill('SIGKILL'), 60000);
  const result = new Promise((done) => {
    child.on('close', (code, signal) => { clearTimeout(timer); done({ code, signal, out: Buffer.concat(out).toString(), err: Buffer.concat(err).toString(), raw: Buffer.concat(out) }); });
  });
  return { child, result, seen: () => Buffer.concat(out).toString() };
}
const space = (args, options) => start(args, options).result;
const ok = (r) => assert.equal(r.code, 0, r.err);

async function until(what, condition) {
  const deadline = Date.now() + 20000;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `in time: ${what}`);
    await new Promise((done) => { setTimeout(done, 10); });
  }
}

async function sandbox(...args) {
  const r = await space(['create', ...args]);
  assert.equal(r.code, 0, r.err);
  assert.match(r.out, /^s[a-z2-7]{20}\n$/);
  return r.out.trim();
}

test('every command has help, a man page that formats, and its options in the completion', async () => {
  const overview = await space(['--help']);
  assert.equal(overview.code, 0);
  const completion = (await space(['completion', 'bash'])).out;
  execFileSync('bash', ['-n'], { input: completion });
  const names = [...completion.matchAll(/command='([^']+)'/g)].map((m) => m[1]);
  assert.ok(names.length > 30);
  for (const name of names) {
    const help = await space([...name.split(' '), '--help']);
    assert.equal(help.code, 0, name);
    assert.match(help.out, new RegExp(`^Usage: space ${name}`), name);
    const man = await space(['help', '--man', ...name.split(' ')]);
    assert.match(man.out, /^\.SH SYNOPSIS$/m, name);
    const groff = spawnSync('groff', ['-man', '-Tutf8', '-ww', '-K', 'utf8'], { input: man.out });
    assert.deepEqual([groff.status, groff.stderr.toString()], [0, ''], name);
  }
});

test('wrong use is exit code 2 and says what to do', async () => {
  for (const [args, text] of [[['exek'], /did you mean "exec"/], [['exec', '--nothing', 'x'], /no option --nothing.*space exec --help/],
    [['kill'], /--all/], [['run'], /no command to run/], [['ls', '--metadata', 'x'], /KEY=VALUE/], [['create', '--vcpus', '99'], /not between 1 and 8/]]) {
    const r = await space(args);
    assert.ok([2, 125].includes(r.code), args.join(' '));
    assert.match(r.err, text);
  }
});

test('run passes on output, exit code and signal, and leaves no sandbox', async () => {
  const before = JSON.parse((await space(['ls', '--json'])).out).length;
  const r = await space(['run', '--', 'sh', '-c', 'echo out; echo err >&2; exit 7']);
  assert.deepEqual([r.code, r.out, r.err], [7, 'out\n', 'err\n']);
  assert.equal((await space(['run', '-s', 'kill -9 $$'])).code, 137);
  assert.equal((await space(['run', '--', '/no/such/program'])).code, 127);
  assert.equal((await space(['run', '--timeout', '200ms', '--', 'sleep', '30'])).code, 124);
  // The removal is asked for and not waited for.
  await until('no sandbox is left', async () => JSON.parse((await space(['ls', '--json'])).out).length === before);
});

scripted('run needs four requests on one connection', async () => {
  stub.requests.length = 0;
  stub.connections = 0;
  const r = await space(['run', '--', 'echo', 'hi']);
  assert.equal(r.out, 'hi\n');
  assert.deepEqual(stub.requests.map((x) => x.replace(/[sx][a-z2-7]{20}/g, 'ID')), ['POST /v1/sandboxes', 'POST /v1/sandboxes/ID/execs',
    'GET /v1/sandboxes/ID/execs/ID/output', 'DELETE /v1/sandboxes/ID']);
  assert.equal(stub.connections, 1);
});

test('exec streams bytes as they are, also many', async () => {
  const id = await sandbox();
  const r = await space(['exec', id, '--', 'sh', '-c', "printf 'a\\0\\377b'; head -c 3000000 /dev/zero"]);
  assert.equal(r.code, 0, r.err);
  assert.equal(r.raw.length, 3000004);
  assert.deepEqual([...r.raw.subarray(0, 4)], [97, 0, 255, 98]);
  await space(['kill', id]);
});

test('exec -i passes standard input on to its end', async () => {
  const id = await sandbox();
  const input = Buffer.alloc(1500000, 'x');
  const r = await space(['exec', '-i', id, '--', 'wc', '-c'], { input });
  assert.deepEqual([r.code, r.out.trim()], [0, '1500000']);
  const closed = await space(['exec', '-i', id, '--', 'head', '-c', '3'], { input });
  assert.deepEqual([closed.code, closed.out], [0, 'xxx']);
  assert.equal((await space(['exec', id, '--', 'cat'], { input })).out, '');
  await space(['kill', id]);
});

test('environment, folder and user reach the command', async () => {
  const id = await sandbox();
  const r = await space(['exec', '-e', 'A=1', '-e', 'B', id, '-s', 'echo $A$B'], { env: { B: '2' } });
  assert.deepEqual([r.code, r.out], [0, '12\n']);
  const missing = await space(['exec', '-e', 'NOT_THERE', id, '--', 'true']);
  assert.equal(missing.code, 125);
  await space(['kill', id]);
});

scripted('a lost connection is taken up again without loss or repetition', async () => {
  const id = await sandbox();
  const lines = Array.from({ length: 400 }, (_, i) => `line ${i}\n`).join('');
  stub.cutAfterBytes = 1234;
  const r = await space(['exec', id, '--', 'sh', '-c', 'for i in $(seq 0 399); do echo line $i; done; exit 3']);
  assert.equal(r.code, 3, r.err);
  assert.equal(r.out, lines);
  assert.match(r.err, /taking it up again/);
  const seen = stub.requests.filter((x) => x.endsWith('/output'));
  assert.ok(seen.length >= 2);
  await space(['kill', id]);
});

test('signals are passed on; the command decides', async () => {
  const id = await sandbox();
  const s = start(['exec', id, '--', 'sh', '-c', 'trap "echo caught; exit 9" TERM; echo ready; while :; do sleep 0.05; done']);
  await until('ready', () => s.seen().includes('ready'));
  s.child.kill('SIGTERM');
  const r = await s.result;
  assert.deepEqual([r.code, r.out], [9, 'ready\ncaught\n']);
  await space(['kill', id]);
});

test('run deletes its sandbox when it is interrupted', async () => {
  const s = start(['run', '--', 'sh', '-c', 'echo ready; sleep 60']);
  await until('ready', () => s.seen().includes('ready'));
  const during = JSON.parse((await space(['ls', '--json'])).out).length;
  s.child.kill('SIGINT');
  assert.equal((await s.result).code, 130);
  const after = JSON.parse((await space(['ls', '--json', '--filter-state', 'running'])).out).length;
  assert.ok(after < during || real);
});

test('a reader of the output that goes away ends the command', async () => {
  const id = await sandbox();
  const child = spawn('bash', ['-c', '"$0" exec "$1" -- sh -c "while :; do echo y; done" | head -n 2; echo "${PIPESTATUS[0]}"', program, id], { env: environment() });
  let out = '';
  child.stdout.on('data', (d) => { out += d; });
  await new Promise((done) => { child.on('close', done); });
  assert.equal(out, 'y\ny\n141\n');
  await space(['kill', id]);
});

test('detached commands: ps, logs, logs -f', async () => {
  const id = await sandbox();
  const exec = (await space(['exec', '-d', id, '-s', 'echo one; sleep 0.3; echo two; exit 4'])).out.trim();
  assert.match(exec, /^x[a-z2-7]{20}$/);
  assert.match((await space(['ps', id])).out, new RegExp(`${exec}.*(running|exited)`));
  const r = await space(['logs', '-f', id, exec]);
  assert.deepEqual([r.code, r.out], [4, 'one\ntwo\n']);
  assert.equal((await space(['logs', '--from', '4', id, exec])).out, 'two\n');
  await space(['kill', id]);
});

test('exec --json gives one event a line', async () => {
  const id = await sandbox();
  const lines = (await space(['exec', '--json', id, '--', 'sh', '-c', 'printf hi; exit 2'])).out.trim().split('\n').map((l) => JSON.parse(l));
  assert.equal(lines.at(-1).event, 'exit');
  assert.equal(lines.at(-1).data.exit_code, 2);
  assert.equal(lines.filter((l) => l.event === 'stdout').map((l) => Buffer.from(l.data, 'base64')).join(''), 'hi');
  await space(['kill', id]);
});

function terminal(args, env) {
  const line = [program, ...args].map((a) => `'${a}'`).join(' ');
  const child = spawn('script', ['-qec', line, '/dev/null'], { env: environment(env), stdio: ['pipe', 'pipe', 'pipe'] });
  let out = '';
  child.stdout.on('data', (d) => { out += d; });
  const result = new Promise((done) => { child.on('close', (code) => done({ code, out })); });
  return { child, result, seen: () => out };
}

test('a terminal: typed input, window size, exit code', async () => {
  const id = await sandbox();
  const t = terminal(['exec', '-t', id, '--', 'sh', '-c', 'echo ready; read line; echo "got $line"; exit 5']);
  await until('ready', () => t.seen().includes('ready'));
  t.child.stdin.write(real ? 'hello\r' : 'hello\n');
  const r = await t.result;
  assert.equal(r.code, 5, r.out);
  assert.match(r.out, /got hello/);
  if (stub) assert.ok(stub.controls.some((c) => c.type === 'resize') || true);
  await space(['kill', id]);
});

scripted('a terminal is taken up again after a loss', async () => {
  const id = await sandbox();
  stub.cutAfterBytes = 100;
  const t = terminal(['exec', '-t', id, '--', 'sh', '-c', 'for i in $(seq 0 99); do echo line $i; done; exit 6']);
  const r = await t.result;
  assert.equal(r.code, 6, r.out);
  assert.deepEqual(r.out.match(/line \d+/g), Array.from({ length: 100 }, (_, i) => `line ${i}`));
  await space(['kill', id]);
});

test('leaving a terminal with ~. leaves the command', async () => {
  const id = await sandbox();
  const t = terminal(['exec', '-t', id, '--', 'sh', '-c', 'echo ready; sleep 5']);
  await until('ready', () => t.seen().includes('ready'));
  t.child.stdin.write('~.');
  const r = await t.result;
  assert.equal(r.code, 0, r.out);
  assert.match((await space(['ps', id])).out, /running/);
  await space(['kill', id]);
});

test('names stand for ids; two with one name are refused', async () => {
  const id = await sandbox('--name', 'twin', '--metadata', 'k=v');
  assert.equal(JSON.parse((await space(['inspect', '--json', 'twin'])).out).id, id);
  assert.match((await space(['inspect', 'twin'])).out, /k=v/);
  const other = await sandbox('--name', 'twin');
  const r = await space(['inspect', 'twin']);
  assert.equal(r.code, 13);
  assert.match(r.err, /several sandboxes/);
  assert.equal((await space(['inspect', 'nobody'])).code, 12);
  await space(['kill', id, other]);
});

test('pause, resume, update, kill', async () => {
  const id = await sandbox();
  ok(await space(['pause', id]));
  assert.match((await space(['ls'])).out, new RegExp(`${id}.*paused`));
  ok(await space(['resume', id]));
  ok(await space(['update', id, '--timeout', '1h']));
  assert.equal((await space(['update', id])).code, 2);
  const r = await space(['kill', id]);
  assert.deepEqual([r.code, r.out], [0, `${id}\n`]);
});

test('files both ways, standard input and output', async () => {
  const id = await sandbox();
  const file = path.join(temporary, 'data.bin');
  const data = Buffer.alloc(700000, 'q');
  fs.writeFileSync(file, data, { mode: 0o755 });
  ok(await space(['cp', file, `${id}:/tmp/data.bin`]));
  ok(await space(['cp', `${id}:/tmp/data.bin`, path.join(temporary, 'back.bin')]));
  assert.ok(fs.readFileSync(path.join(temporary, 'back.bin')).equals(data));
  assert.equal(fs.statSync(path.join(temporary, 'back.bin')).mode & 0o777, 0o755);
  ok(await space(['cp', '-', `${id}:/tmp/in.txt`], { input: 'hello\n' }));
  assert.equal((await space(['cp', `${id}:/tmp/in.txt`, '-'])).out, 'hello\n');
  ok(await space(['cp', file, `${id}:/tmp/`]));
  assert.equal((await space(['cp', `${id}:/tmp/not-there`, '-'])).code, 12);
  assert.equal((await space(['cp', `${id}:relative`, '-'])).code, 2);
  assert.deepEqual(fs.readdirSync(temporary).filter((n) => n.includes('.space-')), []);
  await space(['kill', id]);
});

test('folders both ways', async () => {
  const id = await sandbox();
  const tree = path.join(temporary, 'tree');
  fs.mkdirSync(path.join(tree, 'sub', 'empty'), { recursive: true });
  fs.writeFileSync(path.join(tree, 'sub', 'a.txt'), 'a');
  fs.writeFileSync(path.join(tree, 'b.txt'), Buffer.alloc(300000, 'b'));
  fs.symlinkSync('sub/a.txt', path.join(tree, 'link'));
  ok(await space(['cp', tree, `${id}:/srv/copy`]));
  ok(await space(['cp', `${id}:/srv/copy`, path.join(temporary, 'back')]));
  execFileSync('diff', ['-r', tree, path.join(temporary, 'back')]);
  assert.equal(fs.readlinkSync(path.join(temporary, 'back', 'link')), 'sub/a.txt');
  ok(await space(['cp', tree, `${id}:/srv/copy`]));
  assert.equal((await space(['cp', `${id}:/srv/copy/tree/b.txt`, '-'])).raw.length, 300000);
  await space(['kill', id]);
});

scripted('an archive of a hostile sandbox writes nothing outside of the target', async () => {
  const id = await sandbox();
  fs.mkdirSync(stub.guest(stub.sandboxes.get(id), '/d'), { recursive: true });
  const make = (code) => execFileSync('python3', ['-c', `
import tarfile, io, sys
out = io.BytesIO()
t = tarfile.open(fileobj=out, mode='w')
def add(name, **k):
    i = tarfile.TarInfo(name)
    for a, b in k.items(): setattr(i, a, b)
    i.size = 4 if i.type == tarfile.REGTYPE else 0
    t.addfile(i, io.BytesIO(b'evil') if i.size else None)
${code}
t.close()
sys.stdout.buffer.write(out.getvalue())`], { maxBuffer: 1 << 24 });
  const cases = [`add('../evil')`, `add('${temporary}/evil')`, `add('l', type=tarfile.SYMTYPE, linkname='${temporary}')\nadd('l/evil')`,
    `add('h', type=tarfile.LNKTYPE, linkname='../outside')\nadd('x')`];
  fs.writeFileSync(path.join(temporary, 'outside'), 'kept');
  for (const [i, code] of cases.entries()) {
    stub.hostileTar = make(code);
    const r = await space(['cp', `${id}:/d`, path.join(temporary, `target${i}`)]);
    assert.notEqual(r.code, 0, code);
    assert.ok(!fs.existsSync(path.join(temporary, 'evil')), code);
    assert.equal(fs.readFileSync(path.join(temporary, 'outside'), 'utf8'), 'kept');
  }
  stub.hostileTar = make(`add('ok', mode=0o4755)\nadd('dev', type=tarfile.CHRTYPE, devmajor=1, devminor=3)`);
  const r = await space(['cp', `${id}:/d`, path.join(temporary, 'good')]);
  assert.equal(r.code, 0, r.err);
  assert.deepEqual(fs.readdirSync(path.join(temporary, 'good')), ['ok']);
  assert.equal(fs.statSync(path.join(temporary, 'good', 'ok')).mode & 0o7777, 0o755);
  stub.hostileTar = make(`[add('f%d' % n) for n in range(100)]`);
  assert.equal((await space(['cp', '--max-size', '100', `${id}:/d`, path.join(temporary, 'small')])).code, 14);
  stub.hostileTar = null;
  await space(['kill', id]);
});

test('port passes TCP on, both ways, with half-closed ends', async () => {
  const id = await sandbox();
  const guestPort = 20000 + (process.pid % 20000);
  const server = `
import socketserver
class Reverse(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read()[::-1])
socketserver.ThreadingTCPServer.allow_reuse_address = True
with socketserver.ThreadingTCPServer(('127.0.0.1', ${guestPort}), Reverse) as s:
    print('listening', flush=True)
    s.serve_forever()`;
  const inner = start(['exec', id, '--', 'python3', '-c', server], { input: null });
  await until('the program in the sandbox listens', () => inner.seen().includes('listening'));
  const s = start(['port', '--json', id, `0:${guestPort}`, '0:1'], { input: null });
  await until('it listens', () => s.seen().trimEnd().endsWith(']'));
  const [local, dead] = JSON.parse(s.seen()).map((p) => p.port);
  const talk = (port, data) => new Promise((done, failed) => {
    const c = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    const parts = [];
    c.on('data', (d) => parts.push(d));
    c.on('end', () => { c.end(); done(Buffer.concat(parts)); });
    c.on('error', failed);
    c.end(data);
  });
  const data = Buffer.from(Array.from({ length: 500000 }, (_, i) => i & 255));
  const answers = await Promise.all([talk(local, data), talk(local, 'abc'), talk(local, '')]);
  assert.ok(answers[0].equals(Buffer.from(data).reverse()));
  assert.equal(answers[1].toString(), 'cba');
  assert.equal(answers[2].length, 0);
  assert.equal((await talk(dead, 'x').catch(() => Buffer.alloc(0))).length, 0);
  s.child.kill('SIGTERM');
  assert.match((await s.result).err, /port 1: .*(listens|refused)/);
  inner.child.kill('SIGTERM');
  await inner.result;
  assert.match((await space(['port', '--show-url', id, '8080'])).out, new RegExp(`/v1/sandboxes/${id}/ports/8080/\n$`));
  await space(['kill', id]);
});

test('lists: JSON, quiet, tables without control characters', async () => {
  const id = await sandbox();
  assert.ok(JSON.parse((await space(['ls', '--json'])).out).some((s) => s.id === id));
  assert.ok((await space(['ls', '-q'])).out.split('\n').includes(id));
  const table = (await space(['ls'])).out.split('\n');
  assert.match(table[0], /^ID +NAME +STATE/);
  const node = await space(['node']);
  assert.equal(node.code, 0);
  assert.ok(!node.out.includes('\u001b'));
  ok(await space(['op', 'ls']));
  assert.match((await space(['template', 'ls'])).out, /base/);
  ok(await space(['metrics', id]));
  ok(await space(['console', id]));
  await space(['kill', id]);
});

scripted('lists follow every page', async () => {
  stub.pageSize = 2;
  const ids = await Promise.all(Array.from({ length: 5 }, () => sandbox()));
  const all = (await space(['ls', '-q'])).out.trim().split('\n');
  assert.ok(ids.every((x) => all.includes(x)));
  stub.pageSize = undefined;
  ok(await space(['kill', '--all']));
  assert.equal((await space(['ls', '-q'])).out, '');
});

scripted('a slow create is followed, a failed one is told with its code', async () => {
  stub.slowCreates = 1;
  const id = await sandbox();
  await space(['kill', id]);
  stub.failNext = { type: '/problems/no_space', title: 'x', status: 507, detail: 'the disk is full', code: 'no_space', request_id: 'r9' };
  const r = await space(['create']);
  assert.equal(r.code, 14);
  assert.match(r.err, /the disk is full/);
  const before = stub.sandboxes.size;
  assert.equal((await space(['run', '--', 'true'])).code, 125);
  assert.equal(stub.sandboxes.size, before, 'the sandbox that failed is deleted');
  stub.failNext = undefined;
  stub.slowCreates = 0;
});

test('errors have their exit codes, in words or as JSON', async () => {
  const wrong = await space(['ls'], { env: { SPACE_API_KEY: 'sk_space_wrong' } });
  assert.equal(wrong.code, 10);
  const gone = await space(['ls'], { env: { SPACE_URL: 'http://127.0.0.1:1' } });
  assert.equal(gone.code, 17);
  assert.match(gone.err, /space serve/);
  const json = await space(['--json', 'inspect', 's' + 'a'.repeat(20)]);
  assert.equal(json.code, 12);
  assert.equal(JSON.parse(json.err).error.code, 'not_found');
  assert.equal((await space(['run', '--', 'true'], { env: { SPACE_URL: 'http://127.0.0.1:1' } })).code, 125);
});

test('keys: create, list, revoke', async () => {
  const r = await space(['key', 'create', 'ci', '--scope', 'execs,files', '--expires', '30d']);
  assert.match(r.out, /^sk_space_[0-9a-f]{40}\n$/);
  const keys = JSON.parse((await space(['key', 'ls', '--json'])).out);
  const key = keys.find((k) => k.name === 'ci');
  assert.deepEqual(key.scopes, ['execs', 'files']);
  ok(await space(['key', 'revoke', key.id]));
});

scripted('URL and key come from the state folder', async () => {
  const state = path.join(temporary, 'state');
  fs.mkdirSync(state, { recursive: true });
  fs.writeFileSync(path.join(state, 'url'), stub.url + '\n');
  fs.writeFileSync(path.join(state, 'admin.key'), stub.key + '\n');
  const env = { SPACE_URL: '', SPACE_API_KEY: '' };
  ok(await space(['--state-dir', state, 'ls'], { env }));
  ok(await space(['ls'], { env: { ...env, SPACE_STATE_DIR: state } }));
  ok(await space(['--url', stub.url, '--key-file', path.join(state, 'admin.key'), 'ls'], { env }));
  assert.equal((await space(['--key-file', '/not/there', 'ls'], { env })).code, 2);
});

scripted('template build shows steps, imports and prints the digest; a failed one says so', async () => {
  const home = path.join(temporary, 'installed');
  fs.mkdirSync(path.join(home, 'bin'), { recursive: true });
  fs.mkdirSync(path.join(home, 'libexec/space/template'), { recursive: true });
  fs.copyFileSync(program, path.join(home, 'bin/space'));
  const script = path.join(home, 'libexec/space/template/build-base.sh');
  fs.writeFileSync(script, '#!/bin/sh\necho "$@" > "$2/arguments"\necho "@progress kernel 0 1 downloading"\necho "@progress rootfs 50 100 packages"\necho "@result base-1"\n', { mode: 0o755 });
  const state = path.join(temporary, 'state-build');
  fs.mkdirSync(state, { recursive: true });
  const build = () => new Promise((done) => {
    const child = spawn(path.join(home, 'bin/space'), ['--state-dir', state, 'template', 'build', 'base', '--fresh', '--size', '1G'], { env: environment() });
    let out = '', err = '';
    child.stdout.on('data', (d) => { out += d; });
    child.stderr.on('data', (d) => { err += d; });
    child.on('close', (code) => done({ code, out, err }));
  });
  const r = await build();
  assert.equal(r.code, 0, r.err);
  assert.equal(r.out, 'cd'.repeat(32) + '\n');
  assert.match(r.err, /kernel[^]*rootfs[^]*freeze/);
  assert.equal(fs.readFileSync(path.join(state, 'arguments'), 'utf8'), `--state ${state} --name base --size-mib 1024 --fresh\n`);
  fs.writeFileSync(script, '#!/bin/sh\necho "mirror is away" >&2\nexit 1\n');
  const failed = await build();
  assert.equal(failed.code, 1);
  assert.match(failed.err, /mirror is away[^]*the build failed/);
  ok(await space(['template', 'tag', 'cdcdcdcd', 'next']));
  ok(await space(['template', 'rm', 'cdcdcdcd']));
});

test('doctor and bench', async () => {
  const findings = JSON.parse((await space(['doctor', '--json'])).out);
  for (const name of ['accelerator', 'cgroups', 'namespaces', 'seccomp', 'server']) assert.ok(findings.some((f) => f.name === name), name);
  const rows = JSON.parse((await space(['bench', '-n', '2', '--execs', '2', '--json'])).out);
  assert.deepEqual(rows.map((x) => x.name), ['create', 'exec_first', 'exec', 'kill']);
});
