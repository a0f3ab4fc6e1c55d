// Streams of execs: nothing lost, nothing twice, back-pressure, many at once.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { after, before, test } from 'node:test';
import { Space, until } from './lib/space.mjs';

let space, sandbox;
before(async () => {
  space = await Space.start();
  sandbox = await space.create({ timeout: '1h' });
});
after(() => space.stop());

const x = (id, tail = '') => `/v1/sandboxes/${sandbox.id}/execs/${id}${tail}`;
const attach = (id) => space.api('POST', x(id, '/attach'));
const result = (id, wait = '60s') => space.api('GET', x(id, `/result?wait=${wait}`));
// 100,000 numbered lines, whose hash is known.
const lines = 'seq 1 100000';
const expected = crypto.createHash('sha256').update(Array.from({ length: 100000 }, (_, i) => `${i + 1}\n`).join('')).digest('hex');
const hash = (data) => crypto.createHash('sha256').update(data).digest('hex');

test('a reader that comes back with Last-Event-ID misses nothing and sees nothing twice', async () => {
  const { exec } = await space.exec(sandbox.id, lines);
  let seen = Buffer.alloc(0), last, cuts = 0, exit;
  while (!exit) {
    const stop = new AbortController();
    try {
      let events = 0;
      for await (const e of space.events(x(exec.id, '/output'), { headers: last ? { 'last-event-id': last } : {}, signal: stop.signal })) {
        if (e.event === 'exit') exit = JSON.parse(e.data);
        else {
          assert.equal(e.event, 'stdout');
          seen = Buffer.concat([seen, Buffer.from(e.data, 'base64')]);
          assert.equal(Number(e.id), seen.length, 'ids are byte offsets');
        }
        last = e.id;
        if (!exit && ++events === 2 && cuts < 5) { cuts++; stop.abort(); }
      }
    } catch (error) { if (!stop.signal.aborted) throw error; }
  }
  assert.ok(cuts >= 1);
  assert.equal(hash(seen), expected);
  assert.equal(exit.exit_code, 0);
  assert.equal(exit.output_bytes, seen.length);
});

test('two readers watch one exec, and one that goes away ends nothing', async () => {
  const { exec } = await space.exec(sandbox.id, `sleep 1; ${lines}`);
  const stop = new AbortController();
  const gone = (async () => {
    try { for await (const e of space.events(x(exec.id, '/output'), { signal: stop.signal })) if (e) break; } catch { /* cut */ }
  })();
  const both = [space.output(sandbox.id, exec.id), space.output(sandbox.id, exec.id)];
  setTimeout(() => stop.abort(), 300);
  await gone;
  for (const got of await Promise.all(both)) assert.equal(hash(got.stdout), expected);
});

test('output made while nobody reads is kept, and what is dropped is counted', async () => {
  const { exec } = await space.exec(sandbox.id, { shell: 'head -c 300000 /dev/zero', buffer_bytes: 65536 });
  await attach(exec.id);
  const ended = await result(exec.id);
  assert.equal(ended.exit_code, 0);
  assert.equal(ended.output_bytes, 300000);
  const got = await space.output(sandbox.id, exec.id);
  assert.equal(got.dropped + got.stdout.length, 300000);
  assert.ok(got.dropped >= 300000 - 2 * 65536, `dropped ${got.dropped}`);
});

test('a slow reader slows the command, and the daemon holds little', async () => {
  const rss = async () => Number(/^process_resident_memory_bytes (\S+)/m.exec((await space.call('GET', '/metrics')).text)[1]);
  const { exec } = await space.exec(sandbox.id, 'head -c 64M /dev/zero; echo done >&2');
  const before_ = await rss();
  const stop = new AbortController();
  const answer = await fetch(new URL(x(exec.id, '/output'), space.url), { headers: { authorization: `Bearer ${space.key}` }, signal: stop.signal });
  const reader = answer.body.getReader();
  await reader.read();
  // Reads nothing for a while: the command must come to a stop well before its 64 MiB.
  let last = -1;
  await until('the command to stand still', async () => {
    const state = await space.run(sandbox.id, 'grep wchar /proc/$(pgrep -x head)/io');
    const now = state.stdout;
    const still = now === last && /\d/.test(now);
    last = now;
    return still;
  }, 30000, 500);
  assert.ok(Number(/wchar: (\d+)/.exec(last)?.[1] ?? 0) < 48e6, last);
  assert.ok(await rss() - before_ < 16e6, `grew by ${await rss() - before_}`);
  stop.abort();
  await until('the end', async () => (await result(exec.id, '20s')).state === 'exited', 60000);
});

test('100 MB pass unharmed', async () => {
  const { exec } = await space.exec(sandbox.id, "python3 -c \"import sys\nb=bytes(range(256))*256\nfor i in range(1600): sys.stdout.buffer.write(b)\"");
  const h = crypto.createHash('sha256');
  let n = 0;
  for await (const e of space.events(x(exec.id, '/output'))) {
    if (e.event !== 'stdout') continue;
    const data = Buffer.from(e.data, 'base64');
    n += data.length;
    h.update(data);
  }
  assert.equal(n, 1600 * 65536);
  const want = crypto.createHash('sha256');
  const block = Buffer.from(Array.from({ length: 65536 }, (_, i) => i % 256));
  for (let i = 0; i < 1600; i++) want.update(block);
  assert.equal(h.digest('hex'), want.digest('hex'));
});

test('200 at once', async () => {
  const made = await Promise.all(Array.from({ length: 200 }, (_, i) => space.exec(sandbox.id, `sleep 1; echo ${i}`)));
  await Promise.all(made.map((m) => attach(m.exec.id)));
  const results = await Promise.all(made.map((m) => result(m.exec.id)));
  assert.deepEqual(results.map((r) => r.exit_code), Array(200).fill(0));
  const texts = [];
  for (const m of made) texts.push((await space.output(sandbox.id, m.exec.id)).stdout.toString());
  assert.deepEqual(texts, Array.from({ length: 200 }, (_, i) => `${i}\n`));
});

test('one that nobody attaches to fails when its token expires', async () => {
  const short = await Space.start({ config: { attach_token_ttl: '1s', pool_hot: 0, pool_blank: 0 } });
  try {
    const sb = await short.create({});
    const { exec } = await short.exec(sb.id, 'true');
    const waited = await short.api('GET', `/v1/sandboxes/${sb.id}/execs/${exec.id}/result?wait=10s`);
    assert.equal(waited.state, 'failed');
    assert.equal((await short.call('POST', `/v1/sandboxes/${sb.id}/execs/${exec.id}/attach`)).status, 409);
  } finally { await short.stop(); }
});

test('an exec ends as lost with its sandbox, and its readers are told', async () => {
  const sb = await space.create({});
  const { exec } = await space.exec(sb.id, 'echo begun; sleep 100');
  const events = [];
  const reading = (async () => {
    for await (const e of space.events(`/v1/sandboxes/${sb.id}/execs/${exec.id}/output`)) events.push(e);
  })();
  await until('the first output', () => events.length);
  const waiting = space.api('GET', `/v1/sandboxes/${sb.id}/execs/${exec.id}/result?wait=30s`);
  await space.remove(sb.id);
  assert.equal((await waiting).state, 'lost');
  await reading;
  assert.equal(JSON.parse(events.at(-1).data).state, 'lost');
  assert.equal((await space.call('GET', `/v1/sandboxes/${sb.id}/execs/${exec.id}/output`)).status, 410);
});

test('a run whose caller goes away is killed', async () => {
  const stop = new AbortController();
  const call = fetch(new URL(`/v1/sandboxes/${sandbox.id}/run`, space.url), { method: 'POST', signal: stop.signal,
    headers: { authorization: `Bearer ${space.key}`, 'content-type': 'application/json' }, body: JSON.stringify({ command: ['sleep', '987'] }) });
  await until('it to run', async () => (await space.run(sandbox.id, 'pgrep -f "sleep 98[7]"')).exit_code === 0);
  stop.abort();
  await call.catch(() => {});
  await until('it to be killed', async () => (await space.run(sandbox.id, 'pgrep -f "sleep 98[7]"')).exit_code !== 0);
});
