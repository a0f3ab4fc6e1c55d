// Many clients on one sandbox at the same time: one legal order, every answer clear, nothing left behind.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Space, until } from './lib/space.mjs';
import { assertLegal, history, query } from './lib/host.mjs';

const clients = Number(process.env.SPACE_TEST_CLIENTS ?? 64);
const rounds = Number(process.env.SPACE_TEST_ROUNDS ?? 6);
let space;
before(async () => { space = await Space.start(); });
after(() => space.stop());

// A fixed sequence, so that a failure can be run again.
let seed = Number(process.env.SPACE_SEED ?? Date.now() % 1000000);
const roll = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor(seed / 65536) % n; };

const fds = async () => Number(/^process_open_fds (\d+)/m.exec((await space.call('GET', '/metrics')).text)[1]);

test(`${clients} clients race create, exec, pause, resume and delete`, { timeout: 600000 }, async (t) => {
  t.diagnostic(`seed ${seed}`);
  const first = await space.create({});
  await space.remove(first.id);
  const fdsBefore = await fds();
  for (let round = 0; round < rounds; round++) {
    const made = (await space.api('POST', '/v1/sandboxes', { timeout: '1h' })).sandbox;
    const s = (tail = '') => `/v1/sandboxes/${made.id}${tail}`;
    const deletes = new Set(), bad = [];
    const client = async (n) => {
      for (let i = 0; i < 6; i++) {
        const what = roll(10);
        let answer;
        if (what < 3) {
          answer = await space.call('POST', s('/execs'), { body: { shell: 'echo hi' } });
          if (answer.status === 201) answer = await space.call('POST', s(`/execs/${answer.json.exec.id}/attach`));
        } else if (what < 5) answer = await space.call('POST', s(`/pause${roll(2) ? '?wait=2s' : ''}`));
        else if (what < 7) answer = await space.call('POST', s(`/resume${roll(2) ? '?wait=2s' : ''}`));
        else if (what < 8) answer = await space.call('POST', s('/run'), { body: { shell: 'true', timeout_ms: 20000 } });
        else if (what < 9) answer = await space.call('PATCH', s(), { body: { metadata: { n: String(n) } } });
        else answer = await space.call('GET', s());
        // 409: another change is under way; 410: it is gone; 503: given up because it is being deleted, or paused in mid-call.
        if (![200, 201, 202, 409, 410, 503, 504].includes(answer.status)) bad.push(`${what}: ${answer.status} ${answer.text}`);
        if (answer.status >= 400 && !answer.json?.detail) bad.push(`${what}: ${answer.status} without a detail`);
      }
      if (n % 8 === 0) {
        const answer = await space.call('DELETE', s());
        if (answer.status !== 202) bad.push(`delete: ${answer.status} ${answer.text}`);
        else deletes.add(answer.json.operation.id);
      }
    };
    await Promise.all(Array.from({ length: clients }, (_, n) => client(n)));
    assert.deepEqual(bad, []);
    assert.equal(deletes.size, 1, 'every delete is the same operation');
    await until('the end', async () => (await space.get(made.id)).state === 'deleted', 30000);
    assert.equal(assertLegal(history(space, made.id), made.id), 'deleted');
    const open = query(space, `SELECT id, kind, state FROM operations WHERE target_id = '${made.id}' AND state < 2`);
    assert.deepEqual(open, []);
    const execs = query(space, `SELECT id, state FROM execs WHERE sandbox_id = '${made.id}' AND state < 2`);
    assert.deepEqual(execs, []);
    assert.ok(!space.folders('sandboxes').includes(made.id));
  }
  await until('the descriptors to go', async () => await fds() <= fdsBefore + 8 + clients, 20000, 200);
});

test('the same create from many clients with one Idempotency-Key is one sandbox', async () => {
  const answers = await Promise.all(Array.from({ length: clients }, () =>
    space.call('POST', '/v1/sandboxes', { body: { name: 'once' }, headers: { 'idempotency-key': 'storm' } })));
  const ids = new Set(answers.filter((a) => a.status === 202).map((a) => a.json.sandbox.id));
  assert.equal(ids.size, 1);
  for (const a of answers) assert.ok(a.status === 202 || (a.status === 409 && a.headers['retry-after']), a.text);
  assert.equal((await space.api('GET', '/v1/sandboxes?name=once')).items.length, 1);
  await space.remove([...ids][0]);
});

test('a delete wins over a create, a pause and a resume that are under way', async () => {
  const made = (await space.api('POST', '/v1/sandboxes', {})).sandbox;
  const creating = space.call('POST', `/v1/sandboxes/${made.id}/pause`);
  const gone = await space.api('DELETE', `/v1/sandboxes/${made.id}?wait=30s`);
  await creating;
  assert.equal(gone.sandbox.state, 'deleted');
  for (const op of (await space.api('GET', `/v1/operations?sandbox=${made.id}`)).items)
    assert.ok(op.state === 'succeeded' || op.error.code === 'cancelled', JSON.stringify(op));
  const two = await space.create({});
  const pause = space.api('POST', `/v1/sandboxes/${two.id}/pause`).catch(() => {}); // whichever comes first
  await space.api('DELETE', `/v1/sandboxes/${two.id}?wait=30s`);
  await pause;
  assert.equal((await space.get(two.id)).state, 'deleted');
});
